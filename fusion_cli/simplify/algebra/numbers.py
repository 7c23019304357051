"""What numbers the elements of a value are, as far as that is known before the model runs: one number for all, or those
that they are not below or above, such as positions, which are counted. Either decides comparisons."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import onnx_ir as ir

from fusion_cli.load.overridable import is_constant
from fusion_cli.simplify.algebra.edits import array_of, is_one_of
from fusion_cli.simplify.algebra.positions import first_and_step, is_difference_of_neighbours

_VIEWS = frozenset("Expand Flatten Gather GatherND Identity Reshape Squeeze Tile Transpose Unsqueeze".split())
"""Operators that hand elements of their first input on; an Identity is what a node becomes until its rule is done."""
_COMPARISONS = ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
_MOST_ELEMENTS = 1 << 26
_MOST_STEPS = 16


def uniform(value: ir.Value | None, steps: int = _MOST_STEPS) -> Any:
    """The number that all elements of a value are, None where that is not known. Of a truth value True or False."""
    if value is None or steps == 0:
        return None
    if is_constant(value):
        return _only_number(value)
    node = value.producer()
    if node is None or node.domain:
        return None
    if node.op_type in _VIEWS:
        return uniform(node.inputs[0], steps - 1)
    if node.op_type == "ConstantOfShape":
        filled = node.attributes.get("value")
        return 0.0 if filled is None else filled.as_tensor().numpy().item()
    if node.op_type in ("Cast", "CumSum", "Not"):
        return _of_truth(node, uniform(node.inputs[0], steps - 1))
    if node.op_type == "Sub":
        return 1 if is_difference_of_neighbours(node) else None
    if node.op_type in ("And", "Or"):
        first, second = (uniform(v, steps - 1) for v in node.inputs)
        deciding = node.op_type == "Or"
        return deciding if deciding in (first, second) else None if None in (first, second) else not deciding
    if node.op_type == "Where":
        condition = uniform(node.inputs[0], steps - 1)
        return None if condition is None else uniform(node.inputs[1 if condition else 2], steps - 1)
    return decided(node, steps)


def _of_truth(node: ir.Node, number: Any) -> Any:
    """What a Cast, a CumSum or a Not makes of a truth value or of the number that is one; sums of ones are several
    numbers."""
    if number not in (0, 1) or (node.op_type == "CumSum" and number):
        return None
    return not number if node.op_type == "Not" else number


def decided(node: ir.Node, steps: int = _MOST_STEPS) -> bool | None:
    """What a comparison gives for all elements, None where that depends on them."""
    if not is_one_of(node, *_COMPARISONS):
        return None
    inputs = reversed(node.inputs) if node.op_type.startswith("Less") else node.inputs
    (least, most), (other_least, other_most) = (_ends(v, steps - 1) for v in inputs)
    is_more, is_no_less = (_holds(test, least, other_most) for test in (operator.gt, operator.ge))
    is_less, is_no_more = (_holds(test, other_least, most) for test in (operator.gt, operator.ge))
    if node.op_type == "Equal":
        holds, fails = is_no_less and is_no_more, is_more or is_less
    elif node.op_type.endswith("OrEqual"):
        holds, fails = is_no_less, is_less
    else:
        holds, fails = is_more, is_no_more
    return holds if holds or fails else None


def _ends(value: ir.Value | None, steps: int) -> tuple[Any, Any]:
    """What no element is below, and what none is above: NaN, if one is that, which is never more. None where that is
    not known, as of none."""
    array = array_of(value)
    if array is not None and array.size and array.dtype.kind in "biuf":
        return array.min().item(), array.max().item()
    node = None if value is None or steps == 0 else value.producer()
    if node is not None and is_one_of(node, *_VIEWS):
        return _ends(node.inputs[0], steps - 1)
    if node is not None and is_one_of(node, "Cast"):
        least, most = _ends(node.inputs[0], steps - 1)
        return _cast(least, node), _cast(most, node)
    counts = None if node is None else first_and_step(node)
    if counts is not None:
        return counts[0] if counts[1] > 0 else None, None
    number = uniform(value, steps)
    return number, number


def _holds(test: Any, a: Any, b: Any) -> bool:
    return a is not None and b is not None and bool(test(a, b))


def _cast(number: Any, node: ir.Node) -> Any:
    """The same of integers as floats, which are rounded in their order. Integers of fewer bytes may wrap around."""
    source, result = (None if v is None else v.dtype for v in (node.inputs[0], node.outputs[0]))
    if number is None or source is None or result is None or not source.is_integer() or not result.is_floating_point():
        return None
    if not (-(2**24) <= number <= 2**24):
        return None
    with np.errstate(over="ignore"):
        return float(np.asarray(number).astype(result.numpy()))


def _only_number(value: ir.Value) -> Any:
    tensor = value.const_value
    if tensor is None or not 0 < tensor.size <= _MOST_ELEMENTS or tensor.dtype == ir.DataType.STRING:
        return None
    array = tensor.numpy().reshape(-1)
    first = array[0]
    # Most tensors differ early on.
    return first.item() if (array[:16] == first).all() and np.all(array == first) else None
