"""Positions: numbers that are counted along an axis from 0 on, also where the length is not known, and what such
numbers differ by."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from fusion_cli.operators.versions import attribute, integers
from fusion_cli.simplify.algebra.edits import Array, array_of, is_one_of, producer_of
from fusion_cli.sizes.algebra import Shape, Size
from fusion_cli.sizes.dims import shape_of

_MOST_STEPS = 16


def first_and_step(node: ir.Node) -> tuple[Any, Any] | None:
    """Where a Range begins and how it goes on, if both are known."""
    if not is_one_of(node, "Range"):
        return None
    start, step = array_of(node.inputs[0]), array_of(node.inputs[2])
    return None if start is None or step is None or {start.size, step.size} != {1} else (start.item(), step.item())


def counted_axis(value: ir.Value | None, steps: int = _MOST_STEPS) -> int | None:
    """The axis along which elements count their places from 0 on, and along which alone they differ; None where that
    is not known."""
    shape = None if value is None else shape_of(value)
    if value is None or shape is None or steps == 0:
        return None
    node = value.producer()
    if node is None or node.domain:
        return _axis_of_constant(value)
    if node.op_type == "Range":
        return 0 if first_and_step(node) == (0, 1) else None
    if node.op_type == "Slice":
        axis, cut = counted_axis(node.inputs[0], steps - 1), cut_of(node)
        return axis if cut is not None and cut[1] == 0 else None
    source = node.inputs[0] if node.op_type in ("Expand", "Identity", "Reshape", "Unsqueeze") else None
    before, axis = None if source is None else shape_of(source), counted_axis(source, steps - 1)
    if before is None or axis is None:
        return None
    found = len(shape) - len(before) + axis if node.op_type == "Expand" else _same_axis(before, axis, shape)
    return found if found is not None and shape[found] == before[axis] else None


def _same_axis(before: Shape, axis: int, after: Shape) -> int | None:
    """Where an axis of several places is once others of one place came or went."""
    kept, left = ([i for i, size in enumerate(shape) if size.known != 1] for shape in (before, after))
    is_same = axis in kept and [before[i] for i in kept] == [after[i] for i in left]
    return left[kept.index(axis)] if is_same else None


def _axis_of_constant(value: ir.Value) -> int | None:
    array = array_of(value)
    found = None if array is None or max(array.shape, default=1) != array.size else counted_from(array)
    return found[0] % array.ndim if array is not None and found is not None and found[1] == 0 else None


def counted_from(array: Array) -> tuple[int, int] | None:
    """The axis (negative, from the end) along which consecutive integers lie, the same at all places of the others,
    and the first of them; None of other numbers."""
    if array.dtype.kind != "i" or array.size < 2:
        return None
    first, last = int(array.flat[0]), int(array.flat[-1])
    for axis in range(-array.ndim, 0):
        size = array.shape[axis]
        if last == first + size - 1 > first:
            counted = np.arange(size).reshape(-1, *(1,) * (-axis - 1)) + first
            if np.array_equal(array, np.broadcast_to(counted, array.shape)):
                return axis, first
    return None


def is_difference_of_neighbours(node: ir.Node) -> bool:
    """Whether a Sub takes from each of several positions the one before, and from the first, 0, the number -1 that is
    put before it: as transformers looks for places where the positions of packed sequences begin anew. All of it is 1
    then."""
    later, earlier = (producer_of(v, "Slice") for v in node.inputs)
    concat = None if later is None else producer_of(later.inputs[0], "Concat")
    if later is None or earlier is None or concat is None or later.inputs[0] is not earlier.inputs[0]:
        return False
    if len(concat.inputs) != 2 or concat.inputs[1] is None:
        return False
    ahead, positions = concat.inputs[0], concat.inputs[1]
    axis, shape = counted_axis(positions), shape_of(positions)
    if axis is None or shape is None or attribute(concat, "axis") not in (axis, axis - len(shape)):
        return False
    cuts = cut_of(later), cut_of(earlier), _end_of(later), _end_of(earlier)
    is_whole = cuts == ((axis, 1), (axis, 0), shape[axis] + Size(1), shape[axis])
    return is_whole and _is_one_less(ahead, positions, axis)


def _is_one_less(value: ir.Value | None, positions: ir.Value, axis: int) -> bool:
    """Whether a value is the first of several positions (none of none), less one."""
    sub = producer_of(value, "Sub")
    first = None if sub is None else producer_of(sub.inputs[0], "Slice")
    one = None if sub is None else array_of(sub.inputs[1])
    if one is None or one.size != 1 or one.item() != 1 or first is None or first.inputs[0] is not positions:
        return False
    return cut_of(first) == (axis, 0) and _end_of(first) == Size(1)


def _end_of(node: ir.Node) -> Size | None:
    """Where a Slice of one axis ends."""
    end = integers(node, "ends")
    return number_of(end) if isinstance(end, ir.Value) else None


def cut_of(node: ir.Node) -> tuple[int, int] | None:
    """The one axis along which a Slice takes elements one after the other, and from where on, which is from the end if
    it is negative."""
    shape = None if node.inputs[0] is None else shape_of(node.inputs[0])
    start, axis = (one_number(node, name) for name in ("starts", "axes"))
    if shape is None or start is None or axis is None:
        return None
    return (axis % len(shape), start) if numbers_of(node, "steps", [1]) == [1] else None


def one_number(node: ir.Node, name: str) -> int | None:
    """The one constant that a node reads as a list of integers."""
    found = numbers_of(node, name)
    return found[0] if found is not None and len(found) == 1 else None


def numbers_of(node: ir.Node, name: str, without: list[int] | None = None) -> list[int] | None:
    """The constants that a node reads as a list of integers, `without` where it reads no such list; None where they are
    not known."""
    value = integers(node, name)
    array = array_of(value) if isinstance(value, ir.Value) else None
    return without if value is None else None if array is None else [int(n) for n in array.reshape(-1)]


def number_of(value: ir.Value | None, steps: int = _MOST_STEPS) -> Size | None:
    """The one integer in a value, of shape arithmetic, by the sizes of the model's inputs."""
    array = array_of(value)
    if array is not None:
        return Size(int(array.item())) if array.size == 1 and array.dtype.kind == "i" else None
    node = None if value is None or steps == 0 else value.producer()
    if node is None or node.domain:
        return None
    if node.op_type in ("Identity", "Reshape", "Squeeze", "Unsqueeze"):
        return number_of(node.inputs[0], steps - 1)
    if node.op_type == "Add":
        first, second = (number_of(v, steps - 1) for v in node.inputs)
        return None if first is None or second is None else first + second
    elements = _sizes_of(node)
    return elements[0] if elements is not None and len(elements) == 1 else None


def _sizes_of(node: ir.Node) -> Shape | None:
    """The sizes that a Shape gives, or the one that a Gather takes of them."""
    if node.op_type == "Shape" and node.inputs[0] is not None:
        shape = shape_of(node.inputs[0])
        return None if shape is None else shape[attribute(node, "start") or 0 : attribute(node, "end")]
    source = producer_of(node.inputs[0], "Shape") if node.op_type == "Gather" else None
    whole, at = None if source is None else _sizes_of(source), None if source is None else array_of(node.inputs[1])
    if whole is None or at is None or at.size != 1 or not -len(whole) <= at.item() < len(whole):
        return None
    return (whole[at.item()],)
