"""Arithmetic and logic with tensors of one value that change nothing, such as the mask of an attention that hides no
key, or what a mask by key is met with for every query."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx_ir as ir

from fusion_cli.load.overridable import is_constant
from fusion_cli.simplify.algebra.counted import VIEWS, decided
from fusion_cli.simplify.algebra.edits import Applied, hand_on, is_one_of
from fusion_cli.simplify.algebra.spread import has_shape_of, readers_that_spread

_NEUTRAL = {"Add": 0, "Sub": 0, "Mul": 1, "Div": 1, "And": True, "Or": False}
_MOST_ELEMENTS = 1 << 26
_MOST_STEPS = 16


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
            readers = () if has_shape_of(kept, node.outputs[0]) else readers_that_spread(node.outputs[0])
            if readers is not None:
                hand_on(node, kept)
                for each in (node, *readers):
                    each.outputs[0].shape = None
                yield "NeutralTensor", [node]
                break


def _is_weight(value: ir.Value) -> bool:
    """Whether a constant has numbers along one axis at most: rules look for it where it is, trained or not."""
    if not is_constant(value) or value.shape is None or value.dtype == ir.DataType.BOOL:
        return False
    return sum(d != 1 for d in value.shape) <= 1


def uniform(value: ir.Value | None, steps: int = _MOST_STEPS) -> Any:
    """The number that all elements of a value are, None where that is not known. Of a truth value True or False."""
    if value is None or steps == 0:
        return None
    if is_constant(value):
        return _only_number(value)
    node = value.producer()
    if node is None or node.domain:
        return None
    if node.op_type in VIEWS:
        return uniform(node.inputs[0], steps - 1)
    if node.op_type == "ConstantOfShape":
        filled = node.attributes.get("value")
        return 0.0 if filled is None else filled.as_tensor().numpy().item()
    if node.op_type in ("And", "Or"):
        first, second = (uniform(v, steps - 1) for v in node.inputs)
        deciding = node.op_type == "Or"
        return deciding if deciding in (first, second) else None if None in (first, second) else not deciding
    if (said := decided(node)) is not None:
        return said
    if node.op_type == "Where":
        condition = uniform(node.inputs[0], steps - 1)
        return None if condition is None else uniform(node.inputs[1 if condition else 2], steps - 1)
    return None


def _only_number(value: ir.Value) -> Any:
    tensor = value.const_value
    if tensor is None or not 0 < tensor.size <= _MOST_ELEMENTS or tensor.dtype == ir.DataType.STRING:
        return None
    array = tensor.numpy().reshape(-1)
    first = array[0]
    # Most tensors differ early on.
    return first.item() if (array[:16] == first).all() and np.all(array == first) else None
