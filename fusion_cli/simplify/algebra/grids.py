"""Elements gathered at all places in turn, by grids of positions: the tensor itself, with axes of one place more."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from fusion_cli.operators.versions import attribute, opset_version
from fusion_cli.simplify.algebra.edits import (
    Applied,
    add_constant,
    become,
    graph_of,
    hand_on,
    is_one_of,
    producer_of,
)
from fusion_cli.simplify.algebra.positions import counted_axis
from fusion_cli.sizes.dims import shape_of

_OPSET = 13
"""The first in which an Unsqueeze has its axes as an input."""


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
        axis = last - 1 if size.known == 1 else counted_axis(part)
        if axis is None or not 0 <= axis < last or places[axis] != size:
            return None
        axes.append(axis)
        last = axis
    others = [axis for axis in range(len(places) - 1) if axis not in axes]
    return others if all(places[axis].known == 1 for axis in others) else None
