"""Shapes of results, as they follow from what operators read.

The model may give a result other names for its sizes than its operands have, as exporters do for graph outputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import onnx_ir as ir

from fusion_cli.dims import Dims, dims_of
from fusion_cli.match.graph import GraphIndex
from fusion_cli.match.operators import ELEMENTWISE, ROW_OPERATORS

_COMPUTING = ELEMENTWISE | ROW_OPERATORS


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
            if node.domain or node.op_type not in _COMPUTING:
                continue
            declared = dims_of(node.outputs[0]) or ()
            if node.op_type in ELEMENTWISE and not all(isinstance(d, int) for d in declared):
                declared = _broadcast([self._of(v, found) for v in node.inputs if v is not None], declared)
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
