"""Numbers that are counted, such as positions: what they cannot be below decides comparisons before the model runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from fusion_cli.simplify.algebra.edits import array_of, is_one_of

VIEWS = ("Expand", "Identity", "Reshape", "Squeeze", "Unsqueeze", "Transpose", "Flatten", "Tile")
"""Operators that hand elements of their first input on; an Identity is what a node becomes until its rule is done."""
_MEANS = {
    "GreaterOrEqual": (False, True),
    "Less": (False, False),
    "Greater": (True, True),
    "LessOrEqual": (True, False),
}
"""For comparisons: whether the first operand has to be more, and not just as much, for them to be decided, and how."""
_SWAPPED = {"GreaterOrEqual": "LessOrEqual", "LessOrEqual": "GreaterOrEqual", "Greater": "Less", "Less": "Greater"}
_MOST_STEPS = 16


def decided(node: ir.Node) -> bool | None:
    """What a comparison gives for all elements, None where that depends on them."""
    if not is_one_of(node, *_MEANS):
        return None
    first, second = node.inputs
    for operator, low, high in ((node.op_type, first, second), (_SWAPPED[node.op_type], second, first)):
        least, bound = _least(low), _highest(high)
        is_strict, found = _MEANS[operator]
        if least is not None and bound is not None and (least > bound if is_strict else least >= bound):
            return found
    return None


def first_and_step(node: ir.Node) -> tuple[Any, Any] | None:
    """Where a Range begins and how it goes on, if both are known."""
    if not is_one_of(node, "Range"):
        return None
    start, step = array_of(node.inputs[0]), array_of(node.inputs[2])
    return None if start is None or step is None or {start.size, step.size} != {1} else (start.item(), step.item())


def _least(value: ir.Value | None, steps: int = _MOST_STEPS) -> Any:
    """What no element is below: the first of those that are counted upwards, the least of constants; None of others."""
    array = array_of(value)
    if array is not None:
        return _one_end(array, np.min)
    node = None if value is None or steps == 0 else value.producer()
    if node is None or node.domain:
        return None
    if node.op_type in VIEWS:
        return _least(node.inputs[0], steps - 1)
    if node.op_type == "Cast":
        return _cast(_least(node.inputs[0], steps - 1), node)
    counts = first_and_step(node)
    return counts[0] if counts is not None and counts[1] > 0 else None


def _highest(value: ir.Value | None, steps: int = _MOST_STEPS) -> Any:
    """What no element of a constant is above."""
    array = array_of(value)
    if array is not None:
        return _one_end(array, np.max)
    node = None if value is None or steps == 0 else value.producer()
    if node is None or not is_one_of(node, *VIEWS):
        return None
    return _highest(node.inputs[0], steps - 1)


def _one_end(array: np.ndarray[Any, Any], end: Any) -> Any:
    """The least or the highest of numbers, None of none. NaN, if one is that, which is never more."""
    return end(array).item() if array.size and array.dtype.kind in "iuf" else None


def _cast(least: Any, node: ir.Node) -> Any:
    """The same of integers as floats, which are rounded in their order. Integers of fewer bytes may wrap around."""
    source, result = (None if v is None else v.dtype for v in (node.inputs[0], node.outputs[0]))
    if least is None or source is None or result is None or not source.is_integer() or not result.is_floating_point():
        return None
    if not (-(2**24) <= least <= 2**24):
        return None
    with np.errstate(over="ignore"):
        return float(np.asarray(least).astype(result.numpy()))
