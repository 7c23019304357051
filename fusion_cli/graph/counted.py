"""Values that count, consecutive numbers along one axis alone, and the masks that are made of such positions."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import onnx_ir as ir

from fusion_cli.load.overridable import is_constant
from fusion_cli.operators.registry import having, is_elementwise
from fusion_cli.simplify.algebra.edits import array_of
from fusion_cli.simplify.algebra.positions import counted_axis, counted_from
from fusion_cli.sizes.dims import shape_of
from fusion_cli.sizes.operations import is_least_of

_CHEAP = having("cheap")
_MOST_NODES = 8


def axis_of_positions(value: ir.Value) -> int | None:
    """The axis (negative, from the end) along which integers are counted: by a constant, or from 0 on by a Range."""
    if value.dtype not in (ir.DataType.INT32, ir.DataType.INT64):
        return None
    if not is_constant(value):
        axis = counted_axis(value)
        return None if axis is None or value.shape is None else axis - len(value.shape)
    array = array_of(value)  # longer ones stay arrays: functions have copies of those that they embed
    found = None if array is None else counted_from(array)
    return None if found is None else found[0]


def spreads_no_further(value: ir.Value, reader: ir.Node) -> bool:
    """Whether what a node makes of a value by elements is as large along each of the value's axes, but those of one."""
    shape, result = shape_of(value), shape_of(reader.outputs[0])
    if shape is None or result is None:
        return shape is not None and all(size.known is not None for size in shape)
    pairs = zip(reversed(shape), reversed(result), strict=False)
    # What is cut to the whole is not longer than that, and no single place is left of several.
    return all(size.known is not None or size == whole or is_least_of(size, whole, 2) for size, whole in pairs)


def made_of_positions(
    nodes: Iterable[ir.Node], is_position: Callable[[ir.Value], bool], is_number: Callable[[ir.Value], bool]
) -> frozenset[ir.Node]:
    """The nodes that make masks of positions and numbers alone, by a few cheap operations: every reader may as well do
    that anew, number by number, instead of reading from memory."""
    chains: dict[ir.Node, frozenset[ir.Node]] = {}
    counted: set[ir.Node] = set()
    for node in nodes:
        if not is_elementwise(node) or node.domain or node.op_type not in _CHEAP:
            continue
        made = [(v, v.producer()) for v in node.inputs if v is not None]
        known = (maker in chains or is_position(v) or is_number(v) for v, maker in made)
        if all(known) and all(spreads_no_further(v, node) for v, _ in made):
            chain = frozenset({node}).union(*(chains.get(maker, ()) for _, maker in made if maker is not None))
            if len(chain) <= _MOST_NODES:
                chains[node] = chain
                if any(maker in counted or is_position(v) for v, maker in made):
                    counted.add(node)
    return frozenset().union(*(chains[node] for node in counted))
