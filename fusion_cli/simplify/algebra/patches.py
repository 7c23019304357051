"""Neighbours that Slices with steps take apart and a Concat lays side by side, as where Swin merges patches: rows of
the same tensor in another order."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations, product

import numpy as np
import onnx_ir as ir

from fusion_cli.operators.versions import attribute, integers, opset_version
from fusion_cli.simplify.algebra.edits import (
    Applied,
    add_constant,
    array_of,
    become,
    graph_of,
    is_one_of,
    producer_of,
    put_before,
)
from fusion_cli.sizes.algebra import Shape
from fusion_cli.sizes.dims import shape_of

_OPSET = 10
"""The first in which a Slice has its places as inputs, and steps."""
_REST = -1
"""What a Reshape takes for what is left."""
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
        shape = None if parts is None else shape_of(parts[0].source)
        result = shape_of(node.outputs[0])
        if parts is None or order is None or shape is None or result is None:
            continue
        whole, perm = _taken_apart(shape, parts[0].steps, order)
        joined = [size.known or _REST for size in result]
        if max(whole.count(_REST), joined.count(_REST)) > 1:
            continue
        _transpose(node, parts[0].source, whole, perm, joined)
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
    across = (shape_of(source) or (None,))[-1]
    return found if is_one_grid and is_whole and across is not None and (across.known or 0) >= _FEWEST else None


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
    numbers = {name: _numbers(node, name) for name in ("starts", "ends", "axes", "steps")}
    starts, ends = numbers["starts"], numbers["ends"]
    if starts is None or ends is None:
        return None
    axes, steps = numbers["axes"] or range(len(starts)), numbers["steps"] or [1] * len(starts)
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


def _numbers(node: ir.Node, name: str) -> list[int] | None:
    value = integers(node, name)
    array = array_of(value) if isinstance(value, ir.Value) else None
    return None if array is None else [int(n) for n in array.reshape(-1)]


def _order(parts: Sequence[_Part]) -> tuple[int, ...] | None:
    """The axes along which parts follow one another, the slowest first."""
    steps = parts[0].steps
    for axes in permutations(steps):
        places = product(*(range(steps[axis]) for axis in axes))
        if [tuple(part.firsts[axis] for axis in axes) for part in parts] == list(places):
            return axes
    return None


def _taken_apart(shape: Shape, steps: dict[int, int], order: Sequence[int]) -> tuple[list[int], list[int]]:
    """The sizes with an axis more behind each that is cut, and the permutation that puts those before the last."""
    sizes: list[int] = []
    outer: list[int] = []
    inner: dict[int, int] = {}
    for axis, size in enumerate(shape):
        outer.append(len(sizes))
        sizes.append((size.known or _REST) if axis not in steps else (size.known or 0) // steps[axis])
        if axis in steps:
            inner[axis] = len(sizes)
            sizes.append(steps[axis])
    return sizes, [*outer[:-1], *(inner[axis] for axis in order), outer[-1]]


def _transpose(
    node: ir.Node, source: ir.Value, whole: Sequence[int], perm: Sequence[int], joined: Sequence[int]
) -> None:
    name, graph, sizes = node.outputs[0].name, graph_of(node), [None if n == _REST else n for n in whole]
    shapes = [
        add_constant(graph, f"{name}_{what}", np.array(n, np.int64))
        for what, n in (("apart", whole), ("shape", joined))
    ]
    apart = put_before(node, "Reshape", [source, shapes[0]], f"{name}_rows", source.type, ir.Shape(sizes))
    shape = ir.Shape([sizes[p] for p in perm])
    turned = put_before(node, "Transpose", [apart], f"{name}_turned", source.type, shape, ir.AttrInt64s("perm", perm))
    become(node, "Reshape", [turned, shapes[1]])
