"""How many instances of an idiom a file can hold, counted in the file without any matching of patterns.

The corpus says what the modules executed. A file can hold less (an exporter writes once what modules compute twice on
the same input, and nothing for what no output needs) or more (modules of other classes, calls that do two things).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

import onnx
from onnx import numpy_helper

from benchmarks.idioms import attributes, in_operators, nodes

MARKERS: Mapping[str, tuple[str, ...]] = {
    "attention": ("Softmax",),
    "layernorm": ("Root",),
    "rmsnorm": ("Root",),
    "groupnorm": ("InstanceNormalization", "Root"),
    "gelu_erf": ("Erf",),
    "gelu_tanh": ("Tanh",),
    "quickgelu": ("Sigmoid",),
    "silu": ("Sigmoid", "Exp"),
    "mish": ("Softplus", "Exp"),
    "hardswish": ("HardSigmoid", "Clip"),
}
"""Operators of which each decomposed instance needs one of its own: no more instances than these and the idiom's own
operators. `Root` is Sqrt, or Pow with 0.5 or -0.5; a Softmax must reach a product."""
EXACT = ("linear", "rope")
"""Idioms whose instances in the file can be counted for themselves: products with a weight matrix, and vectors turned
by a quarter (negated and concatenated)."""
_PASSED = (
    "Cast", "Dropout", "Where", "IsNaN", "Identity", "Mul", "Add", "Div", "Reshape", "Transpose", "Expand",
    "Unsqueeze", "Squeeze",
)  # fmt: skip
_DEPTH = 6


def in_file(model: onnx.ModelProto) -> dict[str, int]:
    """Upper bounds by idiom; those of `EXACT` are counts. An idiom that is not here has no bound."""
    counts = _marks(model.graph)
    own = in_operators(model)
    bounds = {idiom: own[idiom] + sum(counts[m] for m in markers) for idiom, markers in MARKERS.items()}
    return bounds | {"linear": own["linear"], "rope": own["rope"] + counts["QuarterTurn"]}


def present(truth: Mapping[str, int], bounds: Mapping[str, int], idiom: str) -> int:
    """Instances of `idiom` in a file with these `bounds`, whose modules executed `truth`."""
    if idiom in EXACT and idiom in bounds:
        return bounds[idiom]
    return min(truth.get(idiom, 0), bounds.get(idiom, truth.get(idiom, 0)))


def _marks(graph: onnx.GraphProto) -> Counter[str]:
    readers: dict[str, list[onnx.NodeProto]] = defaultdict(list)
    numbers = {t.name: t for t in graph.initializer}
    for node in nodes(graph):
        for name in node.input:
            readers[name].append(node)
        if node.op_type == "Constant" and "value" in attributes(node):
            numbers[node.output[0]] = attributes(node)["value"]

    def reaches(node: onnx.NodeProto, target: tuple[str, ...], passed: tuple[str, ...], depth: int) -> bool:
        following = [r for name in node.output for r in readers[name]]
        return any(
            r.op_type in target or (depth > 0 and r.op_type in passed and reaches(r, target, passed, depth - 1))
            for r in following
        )

    found: Counter[str] = Counter()
    for node in nodes(graph):
        if node.op_type == "Softmax":
            found["Softmax"] += reaches(node, ("MatMul", "Einsum", "Gemm"), _PASSED, _DEPTH)
        elif node.op_type == "Neg":
            found["QuarterTurn"] += reaches(node, ("Concat",), ("Unsqueeze", "Reshape"), 2)
        elif node.op_type == "Sqrt" or (node.op_type == "Pow" and _is_half(numbers.get(node.input[1]))):
            found["Root"] += 1
        else:
            found[node.op_type] += 1
    return found


def _is_half(exponent: onnx.TensorProto | None) -> bool:
    if exponent is None:
        return False
    value = numpy_helper.to_array(exponent)
    return bool(value.size == 1 and abs(value.item()) == 0.5)
