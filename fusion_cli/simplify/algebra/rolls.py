"""Positions that are rotated along an axis, by two slices that are joined the other way round: one lookup of them all,
and one for two axes side by side (the shifted windows of Swin)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from fusion_cli.operators.versions import attribute, opset_version
from fusion_cli.simplify.algebra.edits import (
    Applied,
    Array,
    add_constant,
    become,
    become_reshape,
    graph_of,
    is_one_of,
    producer_of,
    put_with_constant,
)
from fusion_cli.simplify.algebra.positions import cut_of, one_number
from fusion_cli.sizes.dims import shape_of

_OPSET = 11
"""The first in which a Slice has its places as inputs, and axes may be negative."""
_SAME = 0
"""What a Reshape takes for the operand's size at the same place."""
_FEWEST = 8
"""Elements side by side that are looked up together; of fewer a lookup is slower than copies."""


@dataclass(frozen=True)
class _Roll:
    """Along an axis of `size` places those from `first` on, and then those before."""

    source: ir.Value
    axis: int
    first: int
    size: int
    slices: tuple[ir.Node, ir.Node]
    joined: ir.Node

    @property
    def nodes(self) -> tuple[ir.Node, ...]:
        return *self.slices, self.joined

    @property
    def places(self) -> Array:
        return np.roll(np.arange(self.size, dtype=np.int64), -self.first)


def look_up_rolls(graph: ir.Graph) -> Iterator[Applied]:
    """Write each rotation as a Gather, and two of neighbouring axes as a Reshape, a Gather and a Reshape, in place."""
    done: set[ir.Node] = set()
    for node in reversed(list(graph)):
        roll = None if node in done else _roll(node)
        if roll is None:
            continue
        inner = _roll(roll.source.producer())
        if inner is not None and abs(inner.axis - roll.axis) == 1 and _reads_alone(roll):
            _look_up_both(node, inner, roll)
            nodes = (*inner.nodes, *roll.nodes)
        else:
            places = add_constant(graph_of(node), f"{node.outputs[0].name}_places", roll.places)
            become(node, "Gather", [roll.source, places], ir.AttrInt64("axis", roll.axis))
            nodes = roll.nodes
        done.update(nodes)
        yield "RollGather", nodes


def _look_up_both(node: ir.Node, inner: _Roll, roll: _Roll) -> None:
    """The two axes as one, of which all places are looked up."""
    first, second = sorted((inner, roll), key=lambda r: r.axis)
    sizes = [size.known or 0 for size in shape_of(roll.source) or ()]
    behind, before = sizes[second.axis + 1 :], [_SAME] * first.axis
    places = (first.places[:, None] * second.size + second.places).reshape(-1)
    merged = ir.Shape([*(inner.source.shape or ())[: first.axis], places.size, *behind])
    rows = put_with_constant(node, "Reshape", inner.source, np.array([*before, places.size, *behind], np.int64), merged)
    found = put_with_constant(node, "Gather", rows, places, merged, ir.AttrInt64("axis", first.axis))
    become_reshape(node, found, [*before, first.size, second.size, *behind])


def _reads_alone(roll: _Roll) -> bool:
    """Whether nothing but the slices of the second rotation reads what the first makes."""
    readers = {reader for reader, _ in roll.source.uses()}
    return not roll.source.is_graph_output() and readers == set(roll.slices)


def _roll(node: ir.Node | None) -> _Roll | None:
    """The rotation that a Concat ends; None where it does anything else, or the places or what lies at one of them are
    not known."""
    if node is None or not is_one_of(node, "Concat") or len(node.inputs) != 2 or opset_version(node) < _OPSET:
        return None
    later, earlier = (producer_of(v, "Slice") for v in node.inputs)
    source = None if later is None else later.inputs[0]
    shape = None if source is None else shape_of(source)
    if later is None or earlier is None or source is None or shape is None or earlier.inputs[0] is not source:
        return None
    axis = attribute(node, "axis") % len(shape)
    size, together = shape[axis].known, [s.known for s in shape[axis + 1 :]]
    spans = [_span(s, axis, size or 0) for s in (later, earlier)]
    if not size or None in together or math.prod(n or 0 for n in together) < _FEWEST or None in spans:
        return None
    (first, end), (begin, last) = (s for s in spans if s is not None)
    is_rotated = 0 < first < size == end and begin == 0 and last == first
    return _Roll(source, axis, first, size, (later, earlier), node) if is_rotated else None


def _span(node: ir.Node, axis: int, size: int) -> tuple[int, int] | None:
    """Where a Slice along this axis alone, place by place, begins and ends."""
    cut, end = cut_of(node), one_number(node, "ends")
    if cut is None or end is None or cut[0] != axis:
        return None
    begin, end, _ = slice(cut[1], end).indices(size)
    return begin, end
