"""Elements gathered at all places in turn, by grids of positions: the tensor itself, with axes of one place more."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from fusion_cli.operators.versions import attribute, opset_version
from fusion_cli.simplify.algebra.edits import (
    Applied,
    add_constant,
    array_of,
    become,
    graph_of,
    hand_on,
    is_one_of,
    producer_of,
)
from fusion_cli.simplify.algebra.numbers import first_and_step
from fusion_cli.sizes.algebra import Shape
from fusion_cli.sizes.dims import shape_of

_OPSET = 13
"""The first in which an Unsqueeze has its axes as an input."""
_MOST_STEPS = 16


def read_whole(graph: ir.Graph) -> Iterator[Applied]:
    """Write a GatherND that takes every element in its turn as an Unsqueeze, in place."""
    for node in list(graph):
        if not is_one_of(node, "GatherND") or opset_version(node) < _OPSET or attribute(node, "batch_dims") != 0:
            continue
        data, grid = node.inputs
        axes = None if data is None or grid is None else _axes_of_one(data, grid)
        if data is None or axes is None:
            continue
        if axes:
            places = add_constant(graph_of(node), f"{node.outputs[0].name}_axes", np.array(axes, np.int64))
            become(node, "Unsqueeze", [data, places])
        else:
            hand_on(node, data)
        yield "GatherWhole", [node]


def _axes_of_one(data: ir.Value, grid: ir.Value) -> list[int] | None:
    """The axes of a grid of indices that the tensor lacks, if the others are its own in their order, all of each."""
    shape, places, parts = shape_of(data), shape_of(grid), producer_of(grid, "Concat")
    if shape is None or places is None or parts is None or len(parts.inputs) != len(shape):
        return None
    if attribute(parts, "axis") not in (-1, len(places) - 1):
        return None
    axes: list[int] = []
    last = len(places) - 1
    for part, size in zip(reversed(parts.inputs), reversed(shape), strict=True):
        # Whatever finds an element along an axis of one place finds that.
        axis = last - 1 if size.known == 1 else _axis(part)
        if axis is None or not 0 <= axis < last or places[axis] != size:
            return None
        axes.append(axis)
        last = axis
    others = [axis for axis in range(len(places) - 1) if axis not in axes]
    return others if all(places[axis].known == 1 for axis in others) else None


def _axis(value: ir.Value | None, steps: int = _MOST_STEPS) -> int | None:
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
    source = node.inputs[0] if node.op_type in ("Expand", "Identity", "Reshape", "Unsqueeze") else None
    before, axis = None if source is None else shape_of(source), _axis(source, steps - 1)
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
    found = [] if array is None else [i for i, size in enumerate(array.shape) if size != 1]
    is_counting = array is not None and len(found) == 1 and bool((array.reshape(-1) == np.arange(array.size)).all())
    return found[0] if is_counting else None
