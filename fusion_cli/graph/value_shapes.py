"""The shapes of one graph's values: as they follow from operators, and which of their sizes are equal.

The model may give a result other names for its sizes than its operands have, as exporters do for graph outputs, and
shape inference gives a new name to what it cannot follow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import onnx_ir as ir

from fusion_cli.graph.index import GraphIndex
from fusion_cli.operators.registry import ROW_OPERATORS, is_elementwise
from fusion_cli.sizes.algebra import Shape, Size, Term
from fusion_cli.sizes.dims import shape_of
from fusion_cli.sizes.equalities import Sizes
from fusion_cli.sizes.operations import broadcast_shapes

_OF_ONE_SHAPE = frozenset({"LayerNormalization", "LogSoftmax", "RMSNormalization", "Softmax"})
"""Operators of rows whose result has the shape of their first operand."""


class Shapes:
    """The shapes of one graph's values."""

    def __init__(self, index: GraphIndex) -> None:
        self.index = index

    def of_result(self, node: ir.Node) -> Shape:
        """The shape of the node's first result; empty if it is unknown."""
        return self._computed[node] if node in self._computed else shape_of(node.outputs[0]) or ()

    def of(self, value: ir.Value) -> Shape | None:
        """A value's shape, or None if it is unknown."""
        return self._of(value, self._computed)

    def with_one_name(self, value: ir.Value) -> Shape | None:
        """A value's shape with one name for each size, though it goes by several: sizes are equal that meet where a
        model that runs needs equal ones. Where two named sizes are broadcast, neither is taken to be 1."""
        shape = shape_of(value)
        return None if shape is None else self._equal.shape(shape)

    @cached_property
    def _equal(self) -> Sizes:
        equal = Sizes()
        for node in self.index.nodes:
            for sizes in _meeting(node):
                equal.equate(sizes)
        return equal

    @cached_property
    def _computed(self) -> Mapping[ir.Node, Shape]:
        """By node, of those that compute."""
        found: dict[ir.Node, Shape] = {}
        for node in self.index.nodes:
            of_rows = not node.domain and node.op_type in ROW_OPERATORS
            if not of_rows and not is_elementwise(node):
                continue
            declared = shape_of(node.outputs[0]) or ()
            whole = not of_rows or node.op_type in _OF_ONE_SHAPE
            if whole and any(size.known is None for size in declared):
                operands = node.inputs[:1] if of_rows else node.inputs
                declared = _broadcast([self._of(v, found) for v in operands if v is not None], declared)
            found[node] = declared
        return found

    def _of(self, value: ir.Value, computed: Mapping[ir.Node, Shape]) -> Shape | None:
        maker = self.index.producer(value)
        if value.shape is not None and maker is not None and maker in computed and maker.outputs[0] is value:
            return computed[maker]
        return shape_of(value)


def _broadcast(shapes: Sequence[Shape | None], declared: Shape) -> Shape:
    """The shape that operands make together, or the declared one where that cannot be told."""
    known = [s for s in shapes if s is not None]
    if len(known) < len(shapes) or max(map(len, known), default=0) != len(declared):
        return declared
    made = broadcast_shapes(known)
    open_sizes = (isinstance(s.symbol, Term) and s.symbol.op == "broadcast" for s in made)
    return declared if any(open_sizes) else made


def _meeting(node: ir.Node) -> Iterator[set[Size]]:
    shapes = [shape_of(v) for v in node.inputs if v is not None]
    known = [s for s in shapes if s is not None]
    if is_elementwise(node):
        yield from _columns([*known, shape_of(node.outputs[0]) or ()])
    elif node.op_type == "MatMul" and not node.domain and len(known) == 2 and min(map(len, known)) > 1:
        left, right = known
        yield {left[-1], right[-2]}
        yield from _columns([left[:-2], right[:-2]])


def _columns(shapes: list[Shape]) -> Iterator[set[Size]]:
    """The sizes of each axis of values that are broadcast."""
    for i in range(1, max(map(len, shapes)) + 1):
        yield {s[-i] for s in shapes if len(s) >= i}
