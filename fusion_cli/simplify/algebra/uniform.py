"""Arithmetic, logic and choices with tensors of one value that change nothing, such as the mask of an attention that
hides no key, or what a mask by key is met with for every query."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from fusion_cli.load.overridable import is_constant
from fusion_cli.simplify.algebra.edits import Applied, is_one_of
from fusion_cli.simplify.algebra.numbers import uniform
from fusion_cli.simplify.algebra.spread import has_shape_of, readers_that_spread, take_smaller

_NEUTRAL = {"Add": 0, "Sub": 0, "Mul": 1, "Div": 1, "And": True, "Or": False}


def drop_neutral(graph: ir.Graph) -> Iterator[Applied]:
    """Hand on what such a tensor is added to, subtracted from, multiplied by or divides, in place."""
    for node in list(graph):
        if not is_one_of(node, *_NEUTRAL):
            continue
        first, second = node.inputs
        pairs = [(first, second)] if node.op_type in ("Sub", "Div") else [(first, second), (second, first)]
        for kept, other in pairs:
            if kept is None or other is None or _is_weight(other) or uniform(other) != _NEUTRAL[node.op_type]:
                continue
            if _gives(node, kept):
                yield "NeutralTensor", [node]
                break


def drop_choices(graph: ir.Graph) -> Iterator[Applied]:
    """Hand on what a Where chooses everywhere, in place."""
    for node in list(graph):
        condition = uniform(node.inputs[0]) if is_one_of(node, "Where") else None
        chosen = None if condition is None else node.inputs[1 if condition else 2]
        if chosen is not None and _gives(node, chosen):
            yield "WhereAlways", [node]


def _gives(node: ir.Node, value: ir.Value) -> bool:
    """Let a node hand on one of its operands, if that has the shape of the result, or may be smaller."""
    readers = () if has_shape_of(value, node.outputs[0]) else readers_that_spread(node.outputs[0])
    if readers is not None:
        take_smaller(node, value, readers)
    return readers is not None


def _is_weight(value: ir.Value) -> bool:
    """Whether a constant has numbers along one axis at most: rules look for it where it is, trained or not."""
    if not is_constant(value) or value.shape is None or value.dtype == ir.DataType.BOOL:
        return False
    return sum(d != 1 for d in value.shape) <= 1
