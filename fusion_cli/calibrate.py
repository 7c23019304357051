"""What this machine's device does in ONNX Runtime, measured, and written as a profile to predict with.

Models of few nodes are timed beside each other; what a run takes besides is told apart by how many nodes it has.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
from onnx import numpy_helper

from fusion_cli.devices.profile import read_profile
from fusion_cli.errors import FusionError
from fusion_cli.listener import NOBODY, Listener
from fusion_cli.sessions import CPU, CUDA, CUDA_GRAPH, Array, CannotRun, Providers
from fusion_cli.sessions.process import Process

SECONDS = 2.0
"""How long a model is timed at most, but for five runs."""
_NODES = 100
"""Of the longer of two chains."""
_TINY = 8
_SIDE = {"cpu": 1024, "cuda": 4096}
"""Rows and columns of products."""
_MEMORY = {"cpu": 1 << 24, "cuda": 1 << 28}
"""Elements of what is copied through memory; four to eight times the cache."""
_SCALED = ("memory", "dispatch", "compute")
"""Sections of what a device reaches; others say how kernels compare with that."""
_OWN = frozenset({"name", "description", "measured", "default"})
"""What a profile says of itself, before its sections."""
_LIKE = {
    "op_us": "node_us",
    "kernel_us": "node_us",
    "near_bandwidth_gbs": "cache_bandwidth_gbs",
    "shape_node_us": "node_us",
    "simple_gops": "special_gops",
}
"""Numbers that are in proportion to one that is measured, where the machine that they were fitted on has one."""
_SHARE = 4
"""What stays in the cache is so small a part of it."""


@dataclass(frozen=True)
class Rate:
    """A number of a profile, by its section and key, and what was measured for it in words."""

    section: str
    key: str
    value: float
    measured: str


def calibrate(base: Path, name: str, machine: str, listener: Listener = NOBODY) -> str:
    """The profile in the file `base` with the numbers that this machine's device has in their place, as the text of a
    profile of this name. Raises FusionError where ONNX Runtime cannot run on such a device here."""
    kind = read_profile(base).kind
    with Process() as process:
        try:
            if kind == "cuda" and "CUDAExecutionProvider" not in process.available_providers():
                raise CannotRun("it has no CUDA provider")
            rates = _Bench(process, kind, read_profile(base).cache_bytes, listener).rates()
        except CannotRun as error:
            hint = "calibrate on the machine itself, with onnxruntime-gpu for a GPU"
            raise FusionError(f"ONNX Runtime cannot be timed on such a device: {error}", hint=hint) from error
    return with_rates(base.read_text("utf-8"), rates, name, f"{machine}: measured by fusion-cli devices calibrate")


def with_rates(text: str, rates: Sequence[Rate], name: str, description: str) -> str:
    """A profile's text with these numbers, each with what was measured for it; others stay as they are, but for what
    the base says of itself. Where it has, in [reference], what was measured so on the machine that its numbers were
    fitted on, each is what was fitted by the ratio of the two, and so are those that are like it."""
    reference = tomllib.loads(text).get("reference", {})
    wanted = {(r.section, r.key): r for r in rates}
    ratios = {r.key: r.value / reference[r.key] for r in rates if r.key in reference}
    section, lines = "", []
    for line in text.splitlines():
        if found := re.match(r"\[(\w+)\]", line):
            section = found[1]
        key = line.partition("=")[0].strip()
        if line.startswith("#") or section == "reference" or (not section and key in _OWN):
            continue
        rate = wanted.get((section, key))
        ratio = ratios.get(_LIKE.get(key, key)) if section in _SCALED else None
        if ratio is not None:
            told = f"by the ratio of what was measured: {ratio:.3g}" if rate is None else rate.measured
            line = f"{key} = {_number(line) * ratio:.6g}  # {told}"
        elif rate is not None:
            line = f"{key} = {rate.value:.6g}  # {rate.measured}"
        lines.append(line)
    body = "\n".join(lines)
    told = description.replace("\\", "/").replace('"', "'")
    return f'name = "{name}"\ndescription = "{told}"\n{body.strip()}\n'


def _number(line: str) -> float:
    """What a line of TOML sets its key to."""
    (found,) = tomllib.loads(line).values()
    return float(found)


class _Bench:
    """Times models on one device."""

    def __init__(self, process: Process, kind: str, cache_bytes: float, listener: Listener) -> None:
        self.process, self.kind, self.listener = process, kind, listener
        self.cached = int(cache_bytes / _SHARE / 3 / 4)
        """Elements of which three tensors stay in the cache."""
        self._steps = 0

    def rates(self) -> list[Rate]:
        """All that is measured; on a GPU what a kernel and a run take in a CUDA graph, too."""
        run, chain = self._us(_chain(_TINY, 1)), self._us(_chain(_TINY, _NODES))
        node = (chain - run) / (_NODES - 1)
        found = [
            Rate("dispatch", "run_us", max(run - node, 0.0), f"one node of {_TINY} elements: {run:.1f} us"),
            Rate("dispatch", "node_us", node, f"{_NODES} nodes of {_TINY} elements: {chain:.1f} us"),
        ]
        if self.kind == "cuda":
            graph, graphs = (self._us(_chain(_TINY, n), CUDA_GRAPH) for n in (1, _NODES))
            launch = (graphs - graph) / (_NODES - 1)
            found += [
                Rate("dispatch", "graph_us", graph, f"a CUDA graph of one node: {graph:.1f} us"),
                Rate("launch", "default", launch, f"a CUDA graph of {_NODES} nodes: {graphs:.1f} us"),
            ]
        found += [
            self._bandwidth("bandwidth_gbs", _MEMORY[self.kind]),
            self._bandwidth("cache_bandwidth_gbs", self.cached),
        ]
        found += [self._product("float32")]
        if self.kind == "cuda":
            found += [self._product("float16")]
        else:
            found += [self._elementwise()]
        return found

    def _bandwidth(self, key: str, elements: int) -> Rate:
        """By negating a tensor of float32, many times for a small one, in microseconds that one more takes."""
        us, moved = self._another(elements, 3), 8.0 * elements
        return Rate("memory", key, moved / us / 1e3, f"Neg over {moved / 1e6:.1f} MB: {us:.1f} us")

    def _product(self, dtype: str) -> Rate:
        """By a square product with a constant."""
        side = _SIDE[self.kind]
        weight = np.random.default_rng(0).standard_normal((side, side)).astype(dtype)
        short = "float16" if dtype == "float16" else "float"
        graph = f"g ({short}[{side}, {side}] x) => ({short}[{side}, {side}] y) {{ y = MatMul (x, w) }}"
        us = self._us(_model(graph, {"w": weight}), feeds={"x": weight})
        return Rate("compute", dtype, 2.0 * side**3 / us / 1e6, f"MatMul {side}x{side}x{side}: {us:.1f} us")

    def _elementwise(self) -> Rate:
        """By the error function of what stays in the cache."""
        us = self._another(self.cached, 5, "Erf")
        return Rate("compute", "special_gops", self.cached / us / 1e3, f"Erf of {self.cached} elements: {us:.1f} us")

    def _another(self, elements: int, nodes: int, op: str = "Neg") -> float:
        """Microseconds that a node more takes, by so many of them and one."""
        one, several = (self._us(_chain(elements, n, op)) for n in (1, nodes))
        return max((several - one) / (nodes - 1), 1e-3)

    def _us(
        self, model: onnx.ModelProto, providers: Providers | None = None, feeds: Mapping[str, Array] | None = None
    ) -> float:
        """A run's median in microseconds."""
        self.listener.step(self._steps, 16, model.graph.name)
        self._steps += 1
        given = feeds or {
            "x": np.ones([d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim], np.float32)
        }
        usual = CUDA if self.kind == "cuda" else CPU
        runner = self.process.open(model.SerializeToString(), providers=providers or usual, use="timing")
        return runner.time_against([], given, seconds=SECONDS, most=1000).us(0)


def _chain(elements: int, nodes: int, op: str = "Neg") -> onnx.ModelProto:
    """Nodes one after the other that ONNX Runtime joins to none: what is in between is an output, too."""
    lines = " ".join(f"v{i + 1} = {op} ({'x' if i == 0 else f'v{i}'})" for i in range(nodes))
    outs = ", ".join(f"float[{elements}] v{i + 1}" for i in range(nodes) if i == nodes - 1)
    return _model(f"chain (float[{elements}] x) => ({outs}) {{ {lines} }}", {})


def _model(graph: str, weights: Mapping[str, Array]) -> onnx.ModelProto:
    parsed = onnx.parser.parse_graph(graph)
    parsed.initializer.extend(numpy_helper.from_array(array, name) for name, array in weights.items())
    return onnx.helper.make_model(parsed, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=10)
