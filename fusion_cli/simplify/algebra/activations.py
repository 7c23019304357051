"""Activations written out, as the operators that runtimes have kernels for: HardSigmoid and HardSwish.

The library's rules for these ask neither for the opset nor for the type, and take constants that are nearly right.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import onnx_ir as ir

from fusion_cli.operators.versions import attribute, first_opset, opset_version
from fusion_cli.simplify.algebra.edits import (
    Applied,
    array_of,
    become,
    is_one_of,
    number_with,
    only_reader,
    producer_of,
    with_constant,
)

_TYPES = (ir.DataType.FLOAT, ir.DataType.FLOAT16)
"""Those that both operators have in all their opsets, and ONNX Runtime has kernels or casts for."""
_SLOPE = 1 / 6
_ATTRIBUTES = (ir.AttrFloat32("alpha", _SLOPE), ir.AttrFloat32("beta", 0.5))


def name_activations(graph: ir.Graph) -> Iterator[Applied]:
    """Write clip(x + 3, 0, 6) / 6 as HardSigmoid, and x times that as HardSwish (or with HardSigmoid, in opsets that do
    not have it), in place."""
    for node in list(graph):
        if node.outputs and node.outputs[0].dtype in _TYPES and is_one_of(node, "Mul", "Div"):
            if (found := _hard_sigmoid(node)) is not None:
                yield "HardSigmoid", found
            elif (found := _hard_swish(node)) is not None:
                yield "HardSwish", found


def _hard_sigmoid(node: ir.Node) -> list[ir.Node] | None:
    value = _sixth_of(node)
    clipped = _clipped(value)
    if value is None or clipped is None:
        return None
    source, add, clip = clipped
    become(node, "HardSigmoid", [source], *_ATTRIBUTES)
    return [add, clip, node]


def _hard_swish(node: ir.Node) -> list[ir.Node] | None:
    """x * clip(x + 3, 0, 6) / 6, with the division last, or x * HardSigmoid(x)."""
    has_swish = opset_version(node) >= first_opset("HardSwish")
    product = producer_of(_sixth_of(node), "Mul")
    for value, gate in _operands(product):
        clipped = _clipped(gate)
        if product is None or clipped is None or clipped[0] is not value:
            continue
        source, add, clip = clipped
        if has_swish:
            become(node, "HardSwish", [source])
        elif only_reader(gate) is None:
            continue
        else:
            become(clip, "HardSigmoid", [source], *_ATTRIBUTES)
            become(node, "Mul", [source, gate])
        return [add, clip, product, node]
    for value, gate in _operands(node):
        sigmoid = producer_of(gate, "HardSigmoid")
        if has_swish and sigmoid is not None and sigmoid.inputs[0] is value and _is_usual(sigmoid):
            become(node, "HardSwish", [value])
            return [sigmoid, node]
    return None


def _operands(node: ir.Node | None) -> Iterator[tuple[ir.Value, ir.Value]]:
    """The two operands of a product, in both orders."""
    if node is not None and is_one_of(node, "Mul"):
        a, b = node.inputs
        if a is not None and b is not None:
            yield a, b
            yield b, a


def _is_usual(sigmoid: ir.Node) -> bool:
    """Whether a HardSigmoid is the one in HardSwish, but for what exporters round off."""
    alpha, beta = attribute(sigmoid, "alpha"), attribute(sigmoid, "beta")
    return math.isclose(alpha, _SLOPE, rel_tol=1e-6) and beta == 0.5


def _sixth_of(node: ir.Node) -> ir.Value | None:
    """What a node divides by six."""
    for value, index, constant in with_constant(node):
        number = number_with(value, constant)
        if number is None or (node.op_type == "Div" and index == 1):
            continue
        closeness = float(ir.DataType.from_numpy(constant.dtype).eps)
        if number == 6 if node.op_type == "Div" else math.isclose(number, _SLOPE, rel_tol=closeness):
            return value
    return None


def _clipped(value: ir.Value | None) -> tuple[ir.Value, ir.Node, ir.Node] | None:
    """The x, and the two nodes, of clip(x + 3, 0, 6)."""
    clip = producer_of(value, "Clip")
    add = None if clip is None else producer_of(clip.inputs[0], "Add")
    if clip is None or add is None or _bounds(clip) != (0, 6):
        return None
    for source, _, constant in with_constant(add):
        if number_with(source, constant) == 3:
            return source, add, clip
    return None


def _bounds(clip: ir.Node) -> tuple[float | None, float | None]:
    """The constant bounds of a Clip, which are attributes in older opsets."""
    if "min" in clip.attributes or "max" in clip.attributes:
        return clip.attributes.get_float("min", None), clip.attributes.get_float("max", None)
    found = [array_of(v) for v in clip.inputs[1:]] + [None, None]
    low, high = (None if a is None or a.size != 1 else float(a.item()) for a in found[:2])
    return low, high
