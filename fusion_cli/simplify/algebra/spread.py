"""Values that elementwise operators broadcast to a shape that another operand has: they may be smaller before."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from fusion_cli.load.overridable import is_constant
from fusion_cli.operators.registry import is_elementwise
from fusion_cli.simplify.algebra.edits import Applied, hand_on, is_one_of
from fusion_cli.sizes.dims import dims_of

_MOST_STEPS = 16


def drop_spread(graph: ir.Graph) -> Iterator[Applied]:
    """Take what an Expand gives for its operand, where all that reads it spreads that as far, in place."""
    for node in list(graph):
        value = node.inputs[0] if is_one_of(node, "Expand") else None
        if value is None or is_constant(value) or not node.outputs[0].uses():
            continue
        readers = readers_that_spread(node.outputs[0])
        if readers is not None:
            hand_on(node, value)
            for each in (node, *readers):
                each.outputs[0].shape = None
            yield "ExpandSpread", [node]


def has_shape_of(value: ir.Value, result: ir.Value) -> bool:
    """As far as is known; a shape of which nothing is known is no other's."""
    shape = dims_of(value)
    return shape is not None and shape == dims_of(result)


def readers_that_spread(value: ir.Value, steps: int = _MOST_STEPS) -> tuple[ir.Node, ...] | None:
    """The nodes of which the results become smaller if a value is a smaller one that broadcasts to it, and no others'
    do: they are elementwise, and so are all of their readers, with an operand of the whole shape. None if there is no
    such end."""
    smaller: list[ir.Node] = []
    if value.is_graph_output() or steps == 0:
        return None
    for reader, _ in value.uses():
        others = [v for v in reader.inputs if v is not None and v is not value]
        if not is_elementwise(reader):
            return None
        if any(has_shape_of(v, reader.outputs[0]) for v in others):
            continue
        further = readers_that_spread(reader.outputs[0], steps - 1)
        if further is None or not all(v.shape is not None and all(d == 1 for d in v.shape) for v in others):
            return None
        smaller += [reader, *further]
    return tuple(smaller)
