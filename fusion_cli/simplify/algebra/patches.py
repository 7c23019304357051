"""Neighbours that Slices with steps take apart and a Concat lays side by side, as where Swin merges patches: rows of
the same tensor in another order."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations, product

import numpy as np
import onnx_ir as ir

from fusion_cli.operators.versions import attribute, opset_version
from fusion_cli.simplify.algebra.edits import (
    Applied,
    become_reshape,
    is_one_of,
    producer_of,
    put_before,
    put_with_constant,
    written_sizes,
)
from fusion_cli.simplify.algebra.positions import numbers_of
from fusion_cli.sizes.algebra import Shape, Size
from fusion_cli.sizes.dims import shape_of

_OPSET = 10
"""The first in which a Slice has its places as inputs, and steps."""
_FEWEST = 8
"""Elements side by side that are moved together; of fewer a Transpose may be slower than copies."""
_MOST_AXES = 3


@dataclass(frozen=True)
class _Part:
    """What Slices take of a tensor: along axes every so many-th place, from the first on."""

    source: ir.Value
    steps: dict[int, int]
    firsts: dict[int, int]
    nodes: tuple[ir.Node, ...]


def join_patches(graph: ir.Graph) -> Iterator[Applied]:
    """Write all parts of a grid, joined along the last axis, as a Reshape, a Transpose and a Reshape, in place."""
    for node in list(graph):
        parts = _parts(node)
        order = None if parts is None else _order(parts)
        if parts is None or order is None:
            continue
        source, steps = parts[0].source, parts[0].steps
        sizes, perm = _taken_apart(shape_of(source) or (), steps, order)
        apart, joined = written_sizes(sizes), written_sizes(shape_of(node.outputs[0]) or ())
        if apart is None or joined is None:
            continue
        shape = ir.Shape([size.known for size in sizes])
        rows = put_with_constant(node, "Reshape", source, np.array(apart, np.int64), shape)
        name, shape = f"{node.outputs[0].name}_transpose", ir.Shape([shape[p] for p in perm])
        turned = put_before(node, "Transpose", [rows], name, source.type, shape, ir.AttrInt64s("perm", perm))
        become_reshape(node, turned, joined)
        yield "SliceTranspose", [*dict.fromkeys(n for part in parts for n in part.nodes), node]


def _parts(node: ir.Node) -> list[_Part] | None:
    """What a Concat along the last axis joins, if it is as many parts of one tensor as its grid has."""
    shape = shape_of(node.outputs[0])
    if not is_one_of(node, "Concat") or shape is None or attribute(node, "axis") not in (-1, len(shape) - 1):
        return None
    found = [part for value in node.inputs if value is not None and (part := _part(value)) is not None]
    if len(found) != len(node.inputs) or len(found) < 2:
        return None
    source, steps = found[0].source, found[0].steps
    is_one_grid = all(part.source is source and part.steps == steps for part in found)
    is_whole = math.prod(steps.values()) == len(found) and len(steps) <= _MOST_AXES
    across = (shape_of(source) or shape)[-1].known or 0
    return found if is_one_grid and is_whole and across >= _FEWEST else None


def _part(value: ir.Value) -> _Part | None:
    steps: dict[int, int] = {}
    firsts: dict[int, int] = {}
    nodes: list[ir.Node] = []
    while (node := producer_of(value, "Slice")) is not None and node.inputs[0] is not None:
        cuts = _cuts(node)
        if cuts is None or steps.keys() & cuts.keys():
            return None
        for axis, (first, step) in cuts.items():
            steps[axis], firsts[axis] = step, first
        nodes.append(node)
        value = node.inputs[0]
    return _Part(value, steps, firsts, tuple(nodes)) if steps else None


def _cuts(node: ir.Node) -> dict[int, tuple[int, int]] | None:
    """By axis but the last, the first place that a Slice takes and how far it is to the next, where it goes on to the
    end."""
    shape = None if node.inputs[0] is None else shape_of(node.inputs[0])
    if shape is None or opset_version(node) < _OPSET:
        return None
    starts, ends = (numbers_of(node, name) for name in ("starts", "ends"))
    if starts is None or ends is None:
        return None
    axes, steps = numbers_of(node, "axes", [*range(len(starts))]), numbers_of(node, "steps", [1] * len(starts))
    if axes is None or steps is None:
        return None
    found: dict[int, tuple[int, int]] = {}
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        place, size = axis % len(shape), shape[axis].known
        if not size or step < 1 or place == len(shape) - 1:
            return None
        first, last, _ = slice(start, end, step).indices(size)
        if first >= step or last != size:
            return None
        if step > 1:
            found[place] = first, step
    return found


def _order(parts: Sequence[_Part]) -> tuple[int, ...] | None:
    """The axes along which parts follow one another, the slowest first."""
    steps = parts[0].steps
    for axes in permutations(steps):
        places = product(*(range(steps[axis]) for axis in axes))
        if [tuple(part.firsts[axis] for axis in axes) for part in parts] == list(places):
            return axes
    return None


def _taken_apart(shape: Shape, steps: dict[int, int], order: Sequence[int]) -> tuple[list[Size], list[int]]:
    """The sizes with an axis more behind each that is cut, and the permutation that puts those before the last."""
    sizes: list[Size] = []
    outer: list[int] = []
    inner: dict[int, int] = {}
    for axis, size in enumerate(shape):
        outer.append(len(sizes))
        sizes.append(Size((size.known or 0) // steps[axis]) if axis in steps else size)
        if axis in steps:
            inner[axis] = len(sizes)
            sizes.append(Size(steps[axis]))
    return sizes, [*outer[:-1], *(inner[axis] for axis in order), outer[-1]]
