"""Values that elementwise operators broadcast to a shape that another operand has: they may be smaller before."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from fusion_cli.load.overridable import is_constant
from fusion_cli.operators.registry import is_elementwise
from fusion_cli.simplify.algebra.edits import Applied, hand_on, is_one_of
from fusion_cli.sizes.dims import dims_of, numbers

_MOST_RESULTS = 64


def drop_spread(graph: ir.Graph) -> Iterator[Applied]:
    """Take what an Expand gives for its operand, where all that reads it spreads that as far, in place."""
    for node in list(graph):
        value = node.inputs[0] if is_one_of(node, "Expand") else None
        if value is None or _is_number(value) or not node.outputs[0].uses():
            continue
        readers = readers_that_spread(node.outputs[0])
        if readers is not None:
            take_smaller(node, value, readers)
            yield "ExpandSpread", [node]


def _is_number(value: ir.Value) -> bool:
    """Whether it is a constant of one element, which may be a neutral one as far as it goes."""
    return is_constant(value) and value.const_value is not None and value.const_value.size == 1


def take_smaller(node: ir.Node, value: ir.Value, readers: tuple[ir.Node, ...]) -> None:
    """Let a node hand on a value that broadcasts to its result, and these readers make less of it."""
    hand_on(node, value)
    for each in readers:
        each.outputs[0].shape = None
    node.outputs[0].shape = value.shape
    for each in readers:
        shapes = [numbers(v, {}) for v in each.inputs if v is not None]
        known = [s for s in shapes if s is not None]
        each.outputs[0].shape = ir.Shape(np.broadcast_shapes(*known)) if len(known) == len(shapes) else None


def has_shape_of(value: ir.Value, result: ir.Value) -> bool:
    """As far as is known; a shape of which nothing is known is no other's."""
    shape = dims_of(value)
    return shape is not None and shape == dims_of(result)


def readers_that_spread(value: ir.Value) -> tuple[ir.Node, ...] | None:
    """The nodes of which the results become smaller if a value is a smaller one that broadcasts to it:
    they are elementwise, and so are all of their readers, which have an operand of the whole shape that stays so. None
    if there is no such end."""
    smaller: dict[ir.Value, ir.Node | None] = {value: None}
    pending = [value]
    while pending:
        current = pending.pop()
        if current.is_graph_output() or len(smaller) > _MOST_RESULTS:
            return None
        for reader, _ in current.uses():
            made = reader.outputs[0]
            if not is_elementwise(reader):
                return None
            # What two paths from the value meet in is looked at again from the second, when both are known.
            if made not in smaller and not any(v and v not in smaller and has_shape_of(v, made) for v in reader.inputs):
                smaller[made] = reader
                pending.append(made)
    return tuple(node for node in smaller.values() if node is not None)
