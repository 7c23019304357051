"""The yardsticks' cases: small graphs at sizes that models have, each to become one kernel (or few) of one family."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Literal
from zlib import crc32

import numpy as np
import numpy.typing as npt
import onnx
import onnx.parser
from onnx import TensorProto, helper, numpy_helper

from benchmarks.gpu_specs import TINY

Sizes = Mapping[str, int]
OPSET = 23
_HALF = 2
"""Bytes of a float16."""
_FEW = 16
"""Rows of which so many or fewer are as fast as weights can be read."""


@dataclass(frozen=True)
class KernelCase:
    """A graph in ONNX's text, its float16 inputs (weights, whose names end in _w, are constants) by the names of their
    sizes, its outputs, and what it is held against."""

    id: str
    family: str
    graph: str
    inputs: Mapping[str, str]
    outputs: tuple[str, ...]
    sizes: Sizes
    work: Callable[[Sizes], float]
    """Operations or bytes of one run, by `unit`."""
    unit: Literal["TFLOP/s", "TB/s", "us"]
    math: str
    """Its function in kernel_yardsticks.py."""
    to_be: float
    """The share of the best yardstick's rate that it is to reach; in `us`, the most times an empty kernel."""

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self.sizes[d] for d in self.inputs[name].split())

    def weight(self, name: str) -> npt.NDArray[np.float16]:
        """A constant's values, the same on every call."""
        shape = self.shape(name)
        values = np.random.default_rng(crc32(name.encode())).standard_normal(shape, np.float32)
        # Sums over a row of weights are then about as large as what is multiplied.
        scaled: npt.NDArray[np.float32] = values / np.sqrt(shape[0] if len(shape) > 1 else 1, dtype=np.float32)
        return scaled.astype(np.float16)

    def model(self) -> onnx.ModelProto:
        """The graph as a model, with random weights."""
        graph = onnx.parser.parse_graph(f"{self.family} () => () {{ {self.graph} }}")
        for name in self.inputs:
            if is_weight(name):
                graph.initializer.append(numpy_helper.from_array(self.weight(name), name))
            else:
                graph.input.append(helper.make_tensor_value_info(name, TensorProto.FLOAT16, self.shape(name)))
        graph.output.extend(helper.make_tensor_value_info(o, TensorProto.FLOAT16, None) for o in self.outputs)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=11)


def is_weight(name: str) -> bool:
    return name.endswith("_w")


def small(case: KernelCase) -> KernelCase:
    """The same at sizes that a CPU computes at once; heads keep their groups."""
    sizes = {d: n if d in ("H", "G") else min(n, 16) for d, n in case.sizes.items()}
    return replace(case, id=TINY + case.id, sizes=sizes)


def _flops(s: Sizes, widths: tuple[str, ...]) -> float:
    return 2.0 * s["M"] * s["K"] * sum(s[w] for w in widths)


def _moved(shapes: tuple[str, ...], s: Sizes) -> float:
    """Bytes of tensors read or written once."""
    return float(_HALF * sum(prod(s[d] for d in shape.split()) for shape in shapes))


_TAILS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "bias_gelu": ("a = Add (p, b_w) y = Gelu (a)", {"b_w": "N"}),
    "bias_residual": ("a = Add (p, b_w) y = Add (a, r)", {"b_w": "N", "r": "M N"}),
    "bias_silu": ("a = Add (p, b_w) s = Sigmoid (a) y = Mul (a, s)", {"b_w": "N"}),
}
"""What follows one product, and what it reads beside it."""


def _product(
    name: str, family: str, graph: str, inputs: Mapping[str, str], outputs: tuple[str, ...], sizes: Sizes, *,
    written: tuple[str, ...], math: str, to_be: float,
) -> KernelCase:  # fmt: skip
    """Products of x; few rows are as fast as the weights, and results of the shapes `written`, can be moved."""
    widths = tuple(shape.removeprefix("K ") for shape in inputs.values() if shape.startswith("K "))
    few = sizes["M"] <= _FEW
    work: Callable[[Sizes], float] = partial(_flops, widths=widths)
    if few:
        work, to_be = partial(_moved, (*inputs.values(), *written)), 0.90
    return KernelCase(name, family, graph, inputs, outputs, sizes, work, "TB/s" if few else "TFLOP/s", math, to_be)


def _linear(kind: str, m: int, n: int, k: int) -> KernelCase:
    """x @ w and what follows it."""
    tail, more = _TAILS[kind]
    return _product(
        f"{kind}_{m}x{n}x{k}", "linear", f"p = MatMul (x, n_w) {tail}", {"x": "M K", "n_w": "K N", **more}, ("y",),
        {"M": m, "N": n, "K": k}, written=("M N",), math=kind, to_be=0.97,
    )  # fmt: skip


def _horizontal(m: int, q: int, v: int, k: int) -> KernelCase:
    """Queries, keys and values of one input in one launch."""
    lines = "".join(f"{o}0 = MatMul (x, {o}_w) {o} = Add ({o}0, {o}b_w) " for o in "qkv")
    inputs = {"x": "M K", **{f"{o}_w": f"K {n}" for o, n in zip("qkv", "QVV", strict=True)}}
    inputs |= {f"{o}b_w": n for o, n in zip("qkv", "QVV", strict=True)}
    return _product(
        f"qkv_{m}x{q}+2x{v}x{k}", "horizontal", lines, inputs, ("q", "k", "v"), {"M": m, "K": k, "Q": q, "V": v},
        written=(), math="qkv", to_be=0.97,
    )  # fmt: skip


def _gated(m: int, n: int, k: int) -> KernelCase:
    graph = "g = MatMul (x, gate_w) s = Sigmoid (g) a = Mul (g, s) u = MatMul (x, up_w) y = Mul (a, u)"
    return _product(
        f"gated_{m}x{n}x{k}", "gated", graph, {"x": "M K", "gate_w": "K N", "up_w": "K N"}, ("y",),
        {"M": m, "N": n, "K": k}, written=("M N",), math="gated", to_be=1.08,
    )  # fmt: skip


def _products() -> Iterator[KernelCase]:
    for m, n, k in ((128, 3072, 768), (1024, 3072, 768), (1576, 3072, 768)):  # BERT, ViT
        yield _linear("bias_gelu", m, n, k)
    for m, n, k in ((1024, 768, 3072), (1024, 768, 768), (2048, 4096, 16384), (2048, 3584, 18944)):
        yield _linear("bias_residual", m, n, k)
    for m, n, k in ((1, 16384, 4096), (4, 16384, 4096), (16, 16384, 4096), (128, 16384, 4096), (2048, 16384, 4096)):
        yield _linear("bias_silu", m, n, k)
    for m, q, v, k in ((1024, 768, 768, 768), (2048, 3584, 512, 3584), (1, 3584, 512, 3584)):
        yield _horizontal(m, q, v, k)
    for m, n, k in ((2048, 18944, 3584), (128, 5504, 2048), (1, 18944, 3584)):
        yield _gated(m, n, k)


def _attended(s: Sizes, causal: bool) -> float:
    return (2.0 if causal else 4.0) * s["B"] * s["H"] * s["S"] * s["T"] * s["D"]


def _attention() -> Iterator[KernelCase]:
    """Full, causal and masked; a decode reads a cache of keys and values once."""
    inputs = {"q": "B H S D", "k": "B G T D", "v": "B G T D"}
    for b, h, g, s, d in (
        (4, 16, 16, 4096, 128), (1, 32, 32, 8192, 128), (1, 28, 4, 2048, 128), (4, 32, 32, 4096, 64),
        (1, 64, 64, 8192, 64), (8, 12, 12, 128, 64), (8, 12, 12, 512, 64),
    ):  # fmt: skip
        sizes = {"B": b, "H": h, "G": g, "S": s, "T": s, "D": d}
        for kind, flag in (("full", ""), ("causal", "<is_causal = 1>")):
            yield KernelCase(
                f"{kind}_b{b}_h{h}by{g}_s{s}_d{d}", "attention", f"y = Attention {flag} (q, k, v)", inputs, ("y",),
                sizes, partial(_attended, causal=kind == "causal"), "TFLOP/s", f"attention_{kind}", 1.0,
            )  # fmt: skip
    sizes = {"B": 8, "H": 12, "G": 12, "S": 512, "T": 512, "D": 64, "1": 1}
    yield KernelCase(
        "masked_b8_h12by12_s512_d64", "attention", "y = Attention (q, k, v, m)", {**inputs, "m": "B 1 S T"}, ("y",),
        sizes, partial(_attended, causal=False), "TFLOP/s", "attention_masked", 1.0,
    )  # fmt: skip
    for b, h, g, t, d in ((4, 16, 4, 4096, 128), (1, 32, 8, 8192, 128), (16, 32, 8, 4096, 128), (8, 12, 12, 1024, 64)):
        yield KernelCase(
            f"decode_b{b}_h{h}by{g}_t{t}_d{d}", "decode", "y = Attention (q, k, v)", inputs, ("y",),
            {"B": b, "H": h, "G": g, "S": 1, "T": t, "D": d}, partial(_moved, (*inputs.values(), "B H S D")), "TB/s",
            "attention_full", 0.75,
        )  # fmt: skip
    # One token after a few: as fast as a kernel starts, and reads next to nothing.
    yield KernelCase(
        "decode_b1_h32by8_t16_d128", "decode", "y = Attention (q, k, v)", inputs, ("y",),
        {"B": 1, "H": 32, "G": 8, "S": 1, "T": 16, "D": 128}, lambda _: 1.0, "us", "attention_full", 3.0,
    )  # fmt: skip


_SUM = {"x": "M N", "r": "M N", "g_w": "N"}
ROWS = {
    "residual_layer_norm": (
        "y = Add (x, r) z = LayerNormalization (y, g_w, b_w)",
        {**_SUM, "b_w": "N"},
        ("y", "z"),
    ),
    "residual_rms_norm": ("y = Add (x, r) z = RMSNormalization (y, g_w)", _SUM, ("y", "z")),
    "masked_softmax": ("s = Add (x, m) y = Softmax (s)", {"x": "M N", "m": "M N"}, ("y",)),
}
ELEMENTS = {
    "silu_product": ("s = Sigmoid (x) a = Mul (x, s) y = Mul (a, u)", {"x": "M N", "u": "M N"}, ("y",)),
    "bias_gelu_pass": ("a = Add (x, b_w) y = Gelu (a)", {"x": "M N", "b_w": "N"}, ("y",)),
}


def _passes() -> Iterator[KernelCase]:
    """From 64 MB on they are as fast as memory, at a few rows as fast as a kernel starts."""
    for family, graphs, to_be in (("rowwise", ROWS, 0.85), ("pointwise", ELEMENTS, 0.90)):
        for name, (graph, inputs, outputs) in graphs.items():
            moved = (*(s for n, s in inputs.items() if not is_weight(n)), *("M N" for _ in outputs))
            for m, n in ((8192, 4096), (16384, 8192)):
                work = partial(_moved, moved)
                yield KernelCase(
                    f"{name}_{m}x{n}", family, graph, inputs, outputs, {"M": m, "N": n}, work, "TB/s", name, to_be
                )
            sizes = {"M": 128, "N": 768}
            yield KernelCase(
                f"{name}_128x768", family, graph, inputs, outputs, sizes, lambda _: 1.0, "us", name, 1.5
            )  # fmt: skip


CASES: tuple[KernelCase, ...] = (*_products(), *_attention(), *_passes())
_ONE = re.compile(r"(bias_gelu|bias_residual|bias_silu|gated)_(\d+)x(\d+)x(\d+)")
_THREE = re.compile(r"qkv_(\d+)x(\d+)\+2x(\d+)x(\d+)")
PRODUCTS = ("linear", "horizontal", "gated")
"""Families of which there are kernels of ours and the vendor's."""


def case_of(id: str) -> KernelCase:
    """The case of an id, a product of any size; small with `tiny_` before it. KeyError where there is none."""
    if id.startswith(TINY):
        return small(case_of(id.removeprefix(TINY)))
    if found := _THREE.fullmatch(id):
        return _horizontal(*map(int, found.groups()))
    if found := _ONE.fullmatch(id):
        kind, *sizes = found.groups()
        return _gated(*map(int, sizes)) if kind == "gated" else _linear(kind, *map(int, sizes))
    return {c.id: c for c in CASES}[id]
