"""The cost model's cases on CPUs: single fusions and whole models of real sizes, and their times."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

import numpy as np
import onnx
import onnx.parser
from onnx import TensorProto, helper, numpy_helper

import fusion_cli
from benchmarks.cost_cases import Measured
from fusion_cli.sessions.process import Process
from fusion_cli.types import Options
from fusion_cli.verify.whole_model import reference_for

SECONDS = 1.5
"""How long a case is timed at most, but for five rounds."""


@dataclass(frozen=True)
class CpuCase:
    """A graph in ONNX's text at a size `s` of its inputs; weights, whose names end in _w, are random constants."""

    graph: str
    inputs: str
    """Names with their shapes, as "x: s 768; k_w: 768 768"."""
    outputs: str
    id: str
    size: int
    is_model: bool = False
    """Whether it is taken as a whole, with what the score says pays; else all of it is one fusion, whatever it says."""

    def model(self) -> onnx.ModelProto:
        graph = onnx.parser.parse_graph(f"g () => () {{ {self.graph} }}")
        for name, text in (part.strip().split(": ") for part in self.inputs.split(";")):
            shape = [d if d == "s" else int(d) for d in text.split()]
            if name.endswith("_w"):
                graph.initializer.append(numpy_helper.from_array(_weight(name, [int(d) for d in shape]), name))
            else:
                graph.input.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        for name in self.outputs.split():
            graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, None))
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11)

    @property
    def options(self) -> Options:
        return Options(
            targets=("cpu",), dims={"s": (self.size, self.size)}, force=not self.is_model, verify=False
        )  # fmt: skip


def _weight(name: str, shape: list[int]) -> np.ndarray:
    values = np.random.default_rng(crc32(name.encode())).standard_normal(shape, np.float32)
    found: np.ndarray = values / np.float32(np.sqrt(np.prod(shape[1:]) if len(shape) == 4 else shape[0]))
    return found


_TOKENS = (1, 128, 1024, 8192)
_KEYS = (16, 128, 512, 1024)
_SIDES = (14, 28, 56, 112)
_ROWS = "x: s 768"
_QKV = "q: 1 12 s 64; k: 1 12 s 64; v: 1 12 s 64"
_SINGLE = {
    "chain": ("a = Add (x, z) c = Tanh (a) d = Mul (c, z) e = Sub (d, x) y = Relu (e)", f"{_ROWS}; z: s 768", "y"),
    "silu_product": ("g = Sigmoid (x) a = Mul (x, g) y = Mul (a, z)", f"{_ROWS}; z: s 768", "y"),
    "bias_gelu": ("a = Add (x, b_w) g = Gelu (a) y = Mul (g, x)", f"{_ROWS}; b_w: 768", "y"),
    "layer_norm": (
        "y = Add (x, z) n = LayerNormalization (y, g_w, b_w)", f"{_ROWS}; z: s 768; g_w: 768; b_w: 768", "y n"
    ),
    "rms_norm": ("y = Add (x, z) n = RMSNormalization (y, g_w)", f"{_ROWS}; z: s 768; g_w: 768", "y n"),
    "softmax": ("a = Add (x, m) y = Softmax (a)", "x: s 512; m: s 512", "y"),
    "linear_silu": (
        "p = MatMul (x, n_w) a = Add (p, b_w) g = Sigmoid (a) y = Mul (a, g)", f"{_ROWS}; n_w: 768 768; b_w: 768", "y"
    ),
    "gated": (
        "g = MatMul (x, gate_w) s1 = Sigmoid (g) a = Mul (g, s1) u = MatMul (x, up_w) y = Mul (a, u)",
        f"{_ROWS}; gate_w: 768 2048; up_w: 768 2048", "y",
    ),
}  # fmt: skip
_ATTENTIONS = {
    "attention": ("y = Attention (q, k, v)", _QKV, "y"),
    "causal": ("y = Attention <is_causal = 1> (q, k, v)", _QKV, "y"),
}
_CONVS = {
    "conv_relu": (
        "c = Conv <pads = [1, 1, 1, 1]> (x, f_w, b_w) y = Mul (c, c)", "x: 1 64 s s; f_w: 64 64 3 3; b_w: 64", "y"
    ),
}  # fmt: skip


def _layer(name: str, x: str, gate: bool) -> tuple[str, list[str]]:
    """A transformer layer of 512 channels and 8 heads, pre-norm; its text and weights; its result is {name}_y."""
    norm = "RMSNormalization" if gate else "LayerNormalization"
    extra = "" if gate else ", {p}b_w"
    parts = [f"{name}_n = {norm} ({x}, {name}_g_w{extra.format(p=name + '_')})"]
    weights = [f"{name}_{w}_w: 512 512" for w in "qkvo"] + [f"{name}_g_w: 512", f"{name}_b_w: 512"]
    for w in "qkv":
        parts.append(f"{name}_{w}0 = MatMul ({name}_n, {name}_{w}_w) {name}_{w}1 = Reshape ({name}_{w}0, heads)")
        parts.append(f"{name}_{w} = Transpose <perm = [0, 2, 1, 3]> ({name}_{w}1)")
    parts.append(f"{name}_a = Attention ({name}_q, {name}_k, {name}_v)")
    parts.append(f"{name}_t = Transpose <perm = [0, 2, 1, 3]> ({name}_a) {name}_r = Reshape ({name}_t, rows)")
    parts.append(f"{name}_p = MatMul ({name}_r, {name}_o_w) {name}_h = Add ({x}, {name}_p)")
    extra = "" if gate else f", {name}_b_w"
    parts.append(f"{name}_m = {norm} ({name}_h, {name}_g_w{extra})")
    parts.append(f"{name}_u = MatMul ({name}_m, {name}_up_w)")
    weights += [f"{name}_up_w: 512 2048", f"{name}_down_w: 2048 512"]
    if gate:
        parts.append(f"{name}_gt = MatMul ({name}_m, {name}_gate_w) {name}_sg = Sigmoid ({name}_gt)")
        parts.append(f"{name}_sl = Mul ({name}_gt, {name}_sg) {name}_f = Mul ({name}_sl, {name}_u)")
        weights.append(f"{name}_gate_w: 512 2048")
    else:
        parts.append(f"{name}_f = Gelu ({name}_u)")
    parts.append(f"{name}_d = MatMul ({name}_f, {name}_down_w) {name}_y = Add ({name}_h, {name}_d)")
    return " ".join(parts), weights


def _stack(count: int, gate: bool) -> tuple[str, str, str]:
    text = ["heads = Constant <value_ints = [1, -1, 8, 64]> () rows = Constant <value_ints = [1, -1, 512]> ()"]
    weights, value = ["x: 1 s 512"], "x"
    for i in range(count):
        layer, own = _layer(f"l{i}", value, gate)
        text.append(layer)
        weights += own if not gate else [w for w in own if "_b_w" not in w]
        value = f"l{i}_y"
    return " ".join(text), "; ".join(weights), value


def _convolutions() -> tuple[str, str, str]:
    """Four residual blocks of 64 channels."""
    text, weights, value = [], ["x: 1 64 s s"], "x"
    for i in range(4):
        text.append(f"c{i} = Conv <pads = [1, 1, 1, 1]> ({value}, f{i}_w, b_w) s{i} = Sigmoid (c{i})")
        text.append(f"a{i} = Mul (c{i}, s{i}) y{i} = Add (a{i}, {value})")
        weights.append(f"f{i}_w: 64 64 3 3")
        value = f"y{i}"
    return " ".join(text), "; ".join([*weights, "b_w: 64"]), value


def _cases() -> Iterator[CpuCase]:
    for graphs, sizes in ((_SINGLE, _TOKENS), (_ATTENTIONS, _KEYS), (_CONVS, _SIDES)):
        for name, (graph, inputs, outputs) in graphs.items():
            for size in sizes:
                yield CpuCase(graph, inputs, outputs, f"cpu_{name}_{size}", size)
    stacks = {"layers_1": _stack(1, False), "layers_4": _stack(4, False), "gated_layers_2": _stack(2, True)}
    for name, (graph, inputs, outputs) in stacks.items():
        for size in (1, 32, 128, 512):
            yield CpuCase(graph, inputs, outputs, f"cpu_{name}_{size}", size, is_model=True)
    graph, inputs, outputs = _convolutions()
    for size in _SIDES:
        yield CpuCase(graph, inputs, outputs, f"cpu_convolutions_{size}", size, is_model=True)


CPU_CASES: tuple[CpuCase, ...] = tuple(_cases())


def measure(case: CpuCase, folder: Path) -> Measured:
    """Microseconds of a case in ONNX Runtime, as it is and fused, alternating in one process, which writes its files
    into `folder`. Raises FusionError, or CannotRun."""
    path, made = folder / f"{case.id}.onnx", folder / f"{case.id}.fused.onnx"
    onnx.save(case.model(), path)
    options = case.options
    report = fusion_cli.optimize(path, made, targets=["cpu"], dims=options.dims, force=options.force, verify=False)
    with Process() as process:
        feeds = reference_for(path, options, process.open).feeds
        libraries = [folder / lib.path for lib in report.libraries]
        models = [process.open(path, use="timing"), process.open(made, libraries=libraries, use="timing")]
        timing = models[0].time_against(models[1:], feeds, seconds=SECONDS, most=1000)
    speed = timing.speed(1)
    rules = tuple(sorted(f.rule for f in report.fusions))
    return Measured(timing.us(0), timing.us(1), rules, (speed.low, speed.high))
