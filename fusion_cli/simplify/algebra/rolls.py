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
    array_of,
    become,
    graph_of,
    is_one_of,
    producer_of,
)
from fusion_cli.sizes.dims import shape_of

_OPSET = 11
"""The first in which a Slice has its places as inputs, and axes may be negative."""
_STEPS = 4
"""The input of a Slice that says how far its places are apart."""
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
    nodes: tuple[ir.Node, ...]

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
        if inner is not None and abs(inner.axis - roll.axis) == 1 and _reads_alone(inner, roll):
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
    rows = _put_before(node, "Reshape", inner.source, np.array([*before, places.size, *behind], np.int64), merged)
    found = _put_before(node, "Gather", rows, places, merged, ir.AttrInt64("axis", first.axis))
    shape = np.array([*before, first.size, second.size, *behind], np.int64)
    become(node, "Reshape", [found, add_constant(graph_of(node), f"{node.outputs[0].name}_shape", shape)])


def _put_before(
    reader: ir.Node, operator: str, value: ir.Value, constant: Array, shape: ir.Shape, *attributes: ir.Attr
) -> ir.Value:
    """The result, of this shape, of a new node of a value and a constant."""
    name, graph = f"{reader.outputs[0].name}_{operator.lower()}", graph_of(reader)
    operand = add_constant(graph, f"{name}_operand", constant)
    node = ir.Node("", operator, [value, operand], attributes, name=f"{reader.name}_{operator.lower()}")
    made = node.outputs[0]
    made.name, made.type, made.shape = name, value.type, shape
    graph.insert_before(reader, node)
    return made


def _reads_alone(inner: _Roll, roll: _Roll) -> bool:
    """Whether nothing but the second rotation reads what the first makes."""
    made = roll.source
    slices = {n for n in roll.nodes if n.op_type == "Slice"}
    return not made.is_graph_output() and {reader for reader, _ in made.uses()} == slices and bool(inner.nodes)


def _roll(node: ir.Node | None) -> _Roll | None:
    """The rotation that a Concat ends; None where it does anything else, or the places or what lies at one of them are
    not known."""
    if node is None or not is_one_of(node, "Concat") or len(node.inputs) != 2 or opset_version(node) < _OPSET:
        return None
    later, earlier = (producer_of(v, "Slice") for v in node.inputs)
    shape = None if later is None or later.inputs[0] is None else shape_of(later.inputs[0])
    if later is None or earlier is None or shape is None or later.inputs[0] is not earlier.inputs[0]:
        return None
    source, rank = later.inputs[0], len(shape)
    axis = attribute(node, "axis") % rank
    size, together = shape[axis].known, [s.known for s in shape[axis + 1 :]]
    spans = [_span(s, axis, rank, size or 0) for s in (later, earlier)]
    if source is None or not size or None in together or math.prod(n or 0 for n in together) < _FEWEST or None in spans:
        return None
    (first, end), (begin, last) = (s for s in spans if s is not None)
    is_rotated = 0 < first < size == end and begin == 0 and last == first
    return _Roll(source, axis, first, size, (later, earlier, node)) if is_rotated else None


def _span(node: ir.Node, axis: int, rank: int, size: int) -> tuple[int, int] | None:
    """Where a Slice along this axis alone, place by place, begins and ends."""
    arrays = [array_of(v) for v in (*node.inputs[1:], *[None] * 4)[:4]]
    starts, ends, axes, steps = (None if a is None else a.reshape(-1).tolist() for a in arrays)
    if starts is None or ends is None or axes is None or len(starts) != 1 or axes[0] % rank != axis:
        return None
    if len(node.inputs) > _STEPS and node.inputs[_STEPS] is not None and steps != [1]:
        return None
    begin, end, _ = slice(starts[0], ends[0]).indices(size)
    return begin, end
