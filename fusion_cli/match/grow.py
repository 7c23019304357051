"""The built-in patterns that match a connected set of nodes: Pointwise, Rowwise and Move.

Pointwise   elementwise operators, any arrangement, operands broadcast to one shape
Rowwise     those, and reductions, softmax and norms over the last axis
Move        reshapes, transposes and their like: data moves, no number changes
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import onnx_ir as ir

from fusion_cli.match.graph import GraphIndex
from fusion_cli.match.operators import ELEMENTWISE, MOVES, ROW_OPERATORS
from fusion_cli.match.pattern import Call
from fusion_cli.match.predicates import dims_of

_DATA = frozenset({ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.BOOL, ir.DataType.DOUBLE})
DEFAULT_MAX_OPS = 64


@dataclass(frozen=True)
class Grown:
    """A region from one value to another; empty (source is target) where the pattern asked for no operator at least."""

    source: ir.Value
    target: ir.Value
    nodes: frozenset[ir.Node]


class Grower:
    """Grows regions in one graph."""

    def __init__(self, index: GraphIndex) -> None:
        self.index = index

    def backward(
        self,
        call: Call,
        target: ir.Value,
        source: ir.Value | None,
        taken: frozenset[ir.Node],
    ) -> Iterator[Grown]:
        """Regions that end at `target`, nearest source first."""
        least, most = _bounds(call)
        if least == 0 and source in (None, target):
            yield Grown(target, target, frozenset())
        reached: dict[ir.Node, None] = {}
        edge = [target]
        while edge and len(reached) < most:
            sources: list[ir.Value] = []
            for value in edge:
                node = self.index.producer(value)
                if node is None or node in reached or node in taken or not self._allowed(call, node):
                    continue
                reached[node] = None
                sources += [v for v in self._operands(call, node) if v not in sources]
            for value in sources:
                if source is None or value is source:
                    nodes = self._between(value, target, reached)
                    if len(nodes) >= max(least, 1):
                        yield Grown(value, target, nodes)
            edge = sources

    def forward(self, call: Call, source: ir.Value, taken: frozenset[ir.Node]) -> Iterator[Grown]:
        """Regions that start at `source`, nearest target first."""
        least, most = _bounds(call)
        if least == 0:
            yield Grown(source, source, frozenset())
        reached: dict[ir.Node, None] = {}
        edge = [source]
        while edge and len(reached) < most:
            targets: list[ir.Value] = []
            for value in edge:
                for node in self.index.consumers(value):
                    if node in reached or node in taken or not self._allowed(call, node):
                        continue
                    if value in self._operands(call, node):
                        reached[node] = None
                        targets.append(node.outputs[0])
            for target in targets:
                nodes = self._between(source, target, reached)
                if len(nodes) >= max(least, 1):
                    yield Grown(source, target, nodes)
            edge = targets

    def maximal(self, call: Call, source: ir.Value, taken: frozenset[ir.Node]) -> Grown | None:
        """The largest region that starts at `source` and keeps its shape; its target is the last value made."""
        least, most = _bounds(call)
        nodes: dict[ir.Node, None] = {}
        frontier = [source]
        while frontier and len(nodes) < most:
            value = frontier.pop(0)
            for node in self.index.consumers(value):
                if node in nodes or node in taken or len(nodes) >= most or not self._allowed(call, node):
                    continue
                if self._fits(call, node, source) and self.index.is_convex({*nodes, *taken, node}):
                    nodes[node] = None
                    frontier.append(node.outputs[0])
        if len(nodes) < least:
            return None
        last = max(nodes, key=self.index.position.__getitem__, default=None)
        return Grown(source, last.outputs[0] if last is not None else source, frozenset(nodes))

    def groups(self, call: Call) -> list[frozenset[ir.Node]]:
        """All maximal regions of the graph, disjoint, each convex."""
        least, most = _bounds(call)
        group_of: dict[ir.Node, set[ir.Node]] = {}
        for node in self.index.nodes:
            if not self._allowed(call, node) or not self._worth(node):
                continue
            joined = {node}
            for value in node.inputs:
                producer = self.index.producer(value)
                group = group_of.get(producer) if producer is not None else None
                if group is None or group <= joined or value is None:
                    continue
                merged = joined | group
                if len(merged) <= most and self._same_rows(call, group, joined) and self.index.is_convex(merged):
                    joined = merged
            for member in joined:
                group_of[member] = joined
        distinct = {id(g): g for g in group_of.values()}.values()
        return [frozenset(g) for g in distinct if len(g) >= max(least, 1) and self._is_kind(call, g)]

    # ---- what may be part of a region

    def _allowed(self, call: Call, node: ir.Node) -> bool:
        if node.domain:
            return False
        if call.op == "Move":
            return node.op_type in MOVES
        if node.op_type in ELEMENTWISE:
            return True
        if call.op != "Rowwise" or node.op_type not in ROW_OPERATORS:
            return False
        attributes = self.index.attributes(node)
        return (
            attributes.get("axis", -1) == -1
            and attributes.get("axes", [-1]) == [-1]
            and attributes.get("keepdims", 1) == 1
            and len(node.outputs) == 1
        )

    @staticmethod
    def _is_kind(call: Call, group: Iterable[ir.Node]) -> bool:
        """Whether a group is of the pattern's own kind: without a reduction it is Pointwise's to find."""
        return call.op != "Rowwise" or any(n.op_type in ROW_OPERATORS for n in group)

    def _operands(self, call: Call, node: ir.Node) -> list[ir.Value]:
        values = node.inputs[:1] if call.op == "Move" else node.inputs
        return [v for v in values if v is not None and not self.index.is_constant(v)]

    def _worth(self, node: ir.Node) -> bool:
        """Whether the node handles data rather than shapes."""
        output = node.outputs[0]
        return output.dtype in _DATA and output.shape is not None

    def _fits(self, call: Call, node: ir.Node, source: ir.Value) -> bool:
        shape, wanted = dims_of(node.outputs[0]), dims_of(source)
        if call.op == "Move":
            return True
        if shape is None or wanted is None:
            return False
        return shape == wanted or (call.op == "Rowwise" and shape == [*wanted[:-1], 1])

    def _same_rows(self, call: Call, left: Iterable[ir.Node], right: Iterable[ir.Node]) -> bool:
        shapes = {tuple(dims_of(n.outputs[0]) or ()) for n in (*left, *right)}
        if call.op == "Pointwise":
            return len(shapes) == 1
        rows = {s[:-1] for s in shapes}
        widths = {s[-1] for s in shapes if s} - {1}
        return len(rows) == 1 and len(widths) <= 1 and all(shapes)

    def _between(self, source: ir.Value, target: ir.Value, reached: Iterable[ir.Node]) -> frozenset[ir.Node]:
        """The reached nodes that lie on a path from source to target."""
        inside = set(reached)
        ordered = sorted(inside, key=self.index.position.__getitem__)
        below: set[ir.Value] = {source}
        downstream: set[ir.Node] = set()
        for node in ordered:
            if any(v in below for v in node.inputs if v is not None):
                downstream.add(node)
                below.update(node.outputs)
        above: set[ir.Value] = {target}
        nodes: set[ir.Node] = set()
        for node in reversed(ordered):
            if node in downstream and any(v in above for v in node.outputs):
                nodes.add(node)
                above.update(v for v in node.inputs if v is not None and v is not source)
        return frozenset(nodes)


def _bounds(call: Call) -> tuple[int, int]:
    return int(call.attributes.get("min_ops", 0)), int(call.attributes.get("max_ops", DEFAULT_MAX_OPS))
