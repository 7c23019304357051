"""Shapes of results, as they follow from what operators read.

The model may give a result other names for its sizes than its operands have, as exporters do for graph outputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import onnx_ir as ir

from fusion_cli.graph.index import GraphIndex
from fusion_cli.operators.registry import ROW_OPERATORS, is_elementwise
from fusion_cli.sizes.dims import Dims, dims_of

_OF_ONE_SHAPE = frozenset({"LayerNormalization", "LogSoftmax", "RMSNormalization", "Softmax"})
"""Operators of rows whose result has the shape of their first operand."""


class ResultShapes:
    """The shapes of one graph's values."""

    def __init__(self, index: GraphIndex) -> None:
        self.index = index

    def of_result(self, node: ir.Node) -> Dims:
        """The shape of the node's first result; empty if it is unknown."""
        return self._computed[node] if node in self._computed else dims_of(node.outputs[0]) or ()

    def of(self, value: ir.Value) -> Dims | None:
        """A value's shape, or None if it is unknown."""
        return self._of(value, self._computed)

    @cached_property
    def _computed(self) -> Mapping[ir.Node, Dims]:
        """By node, of those that compute."""
        found: dict[ir.Node, Dims] = {}
        for node in self.index.nodes:
            of_rows = not node.domain and node.op_type in ROW_OPERATORS
            if not of_rows and not is_elementwise(node):
                continue
            declared = dims_of(node.outputs[0]) or ()
            whole = not of_rows or node.op_type in _OF_ONE_SHAPE
            if whole and not all(isinstance(d, int) for d in declared):
                operands = node.inputs[:1] if of_rows else node.inputs
                declared = _broadcast([self._of(v, found) for v in operands if v is not None], declared)
            found[node] = declared
        return found

    def _of(self, value: ir.Value, computed: Mapping[ir.Node, Dims]) -> Dims | None:
        maker = self.index.producer(value)
        if value.shape is not None and maker is not None and maker in computed and maker.outputs[0] is value:
            return computed[maker]
        return dims_of(value)


def _broadcast(shapes: Sequence[Dims | None], declared: Dims) -> Dims:
    """The shape that operands make together, or the declared one where that cannot be told."""
    known = [s for s in shapes if s is not None]
    rank = max(map(len, known), default=0)
    if len(known) < len(shapes) or rank != len(declared):
        return declared
    padded = [(1,) * (rank - len(s)) + s for s in known]
    axes = [{d for d in sizes if d != 1} or {1} for sizes in zip(*padded, strict=True)]
    return tuple(next(iter(s)) for s in axes) if all(len(s) == 1 for s in axes) else declared
