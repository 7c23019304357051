"""Two nodes that each do the same kind of thing with a number, as one: factors, and bounds.

The library's rules for bounds take those of older opsets, which are attributes, for missing, and give values of one
name to several constants. A Min and a Max are left, which rules know as they are, and so are additions: what rounds by
adding a large number and taking it away would not.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from fusion_cli.operators.versions import opset_version
from fusion_cli.simplify.algebra.edits import (
    Applied,
    add_constant,
    array_of,
    become,
    graph_of,
    is_one_of,
    number_with,
    only_reader,
    rounded,
    starts_there,
    with_constant,
)

_TYPES = (ir.DataType.FLOAT, ir.DataType.FLOAT16)
_OPSET = 11
"""The first in which the bounds of a Clip are inputs."""
Bounds = tuple[ir.Value, float, float]
"""What a node bounds, and between which numbers."""


def combine_factors(graph: ir.Graph) -> Iterator[Applied]:
    """Write pairs of products by numbers as one node, in place."""
    for node in list(graph):
        if node.outputs and node.outputs[0].dtype in _TYPES and (first := _one_product(node)) is not None:
            yield "MulMul", [first, node]


def combine_bounds(graph: ir.Graph) -> Iterator[Applied]:
    """Write pairs of bounds as one node, in place."""
    for node in list(graph):
        if node.outputs and node.outputs[0].dtype in _TYPES and (first := _one_clip(node)) is not None:
            yield "ClipClip", [first, node]


def _one_product(node: ir.Node) -> ir.Node | None:
    second = _factor(node)
    first = None if second is None else _before(second[0])
    inner = None if first is None else _factor(first)
    if first is None or inner is None or second is None or not starts_there(inner[0]):
        return None
    dtype = node.outputs[0].dtype
    product = rounded(np.array([inner[1] * second[1]]), dtype)
    if product is None:
        return None
    factor = add_constant(graph_of(node), f"{node.outputs[0].name}_factor", product.reshape(()))
    become(node, "Mul", [inner[0], factor])
    return first


def _one_clip(node: ir.Node) -> ir.Node | None:
    outer = _bounds(node)
    first = None if outer is None else _before(outer[0])
    inner = None if first is None else _bounds(first)
    if first is None or inner is None or outer is None or {first.op_type, node.op_type} == {"Max", "Min"}:
        return None
    low, high = (min(max(bound, outer[1]), outer[2]) for bound in inner[1:])
    if (low, high) == (0, math.inf):
        become(node, "Relu", [inner[0]])
        return first
    dtype, name = node.outputs[0].dtype, node.outputs[0].name
    assert dtype is not None
    arrays = {end: np.array(n, dtype.numpy()) for end, n in (("min", low), ("max", high)) if math.isfinite(n)}
    bounds = [
        add_constant(graph_of(node), f"{name}_{end}", arrays[end]) if end in arrays else None for end in ("min", "max")
    ]
    become(node, "Clip", [inner[0], *bounds])
    return first


def _before(value: ir.Value) -> ir.Node | None:
    """The node that makes a value, if that has one reader."""
    return None if only_reader(value) is None else value.producer()


def _factor(node: ir.Node) -> tuple[ir.Value, float] | None:
    """What a node multiplies, and by which number."""
    if is_one_of(node, "Mul", "Div"):
        for value, index, constant in with_constant(node):
            number = number_with(value, constant)
            if number is not None and node.op_type == "Mul":
                return value, number
            if number and index == 0:
                return value, 1 / number
    return None


def _bounds(node: ir.Node) -> Bounds | None:
    if opset_version(node) < _OPSET or node.domain or not node.inputs or node.inputs[0] is None:
        return None
    if node.op_type == "Relu":
        return node.inputs[0], 0, math.inf
    if node.op_type == "Clip":
        ends = [-math.inf, math.inf]
        for i, bound in enumerate(node.inputs[1:]):
            array = array_of(bound)
            if bound is not None and (array is None or array.size != 1):
                return None
            ends[i] = ends[i] if array is None else float(array.item())
        return node.inputs[0], ends[0], ends[1]
    if node.op_type in ("Max", "Min"):
        for value, _, constant in with_constant(node):
            number = number_with(value, constant)
            if number is not None:
                return (value, number, math.inf) if node.op_type == "Max" else (value, -math.inf, number)
    return None
