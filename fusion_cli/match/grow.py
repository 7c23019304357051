"""The built-in patterns that match a connected set of nodes: Pointwise, Rowwise, Move and Convolutions (see
match/members.py)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

import onnx_ir as ir

from fusion_cli.graph.convexity import is_convex, joins, way_back
from fusion_cli.graph.index import GraphIndex
from fusion_cli.language.pattern import Call
from fusion_cli.match.carried import carried
from fusion_cli.match.members import Members
from fusion_cli.operators.registry import MOVES

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
        self.members = Members(index)

    def backward(
        self,
        call: Call,
        target: ir.Value,
        source: ir.Value | None,
        taken: frozenset[ir.Node],
        fits: Callable[[ir.Value], bool],
    ) -> Iterator[Grown]:
        """Regions that end at `target`, nearest source first. Of sources that do not fit only the nearest counts."""
        least, most = _bounds(call)
        if least == 0 and source in (None, target):
            yield Grown(target, target, frozenset())
        reached: dict[ir.Node, None] = {}
        edge = [target]
        tried = False
        while edge and len(reached) < most:
            sources: list[ir.Value] = []
            for value in edge:
                node = self.index.producer(value)
                if node is None or node in reached or node in taken or not self.members.allows(call, node):
                    continue
                reached[node] = None
                sources += [v for v in self.members.operands(call, node) if v not in sources]
            for value in sources:
                if value is source or (
                    source is None and not self._is_cast(call, value) and (not tried or fits(value))
                ):
                    tried = True
                    yield from self._whole(call, value, target, taken)
                    if source is not None:
                        return
            edge = sources

    def doubtful(self, call: Call, value: ir.Value) -> ir.Node | None:
        """The nearest reshape above that stops the region that ends at a value because sizes are not known."""
        edge = [value]
        seen: set[ir.Node] = set()
        while edge and len(seen) < _bounds(call)[1]:
            node = self.index.producer(edge.pop(0))
            if node is None or node in seen:
                continue
            if self.members.may_keep_rows(call, node):
                return node
            if self.members.allows(call, node):
                seen.add(node)
                edge += self.members.operands(call, node)
        return None

    def forward(
        self, call: Call, source: ir.Value, taken: frozenset[ir.Node], fits: Callable[[ir.Value], bool]
    ) -> Iterator[Grown]:
        """Regions that start at `source`, nearest target first. Of targets that do not fit only the nearest counts."""
        least, most = _bounds(call)
        if least == 0:
            yield Grown(source, source, frozenset())
        reached: dict[ir.Node, None] = {}
        edge = [source]
        tried = False
        while edge and len(reached) < most:
            targets: list[ir.Value] = []
            for value in edge:
                for node in self.index.consumers(value):
                    if node in reached or node in taken or not self.members.allows(call, node):
                        continue
                    if value in self.members.operands(call, node):
                        reached[node] = None
                        targets.append(node.outputs[0])
            for target in targets:
                if not self._is_cast(call, target) and (not tried or fits(target)):
                    tried = True
                    yield from self._whole(call, source, target, taken)
            edge = targets

    def _whole(self, call: Call, source: ir.Value, target: ir.Value, taken: frozenset[ir.Node]) -> Iterator[Grown]:
        """The region of all nodes between two values, if it is within the bounds."""
        least, most = _bounds(call)
        start = self.index.producer(source)
        first = self.index.position[start] if start is not None else -1
        reached: dict[ir.Node, None] = {}
        edge = [target]
        while edge and len(reached) < 8 * most:
            node = self.index.producer(edge.pop(0))
            if node is None or node in reached or node in taken or self.index.position[node] <= first:
                continue
            if self.members.allows(call, node):
                reached[node] = None
                edge += [v for v in self.members.operands(call, node) if v is not source]
        nodes = self._between(source, target, reached)
        closed = not call.attributes.get("closed") or self.members.are_closed(call, source, nodes)
        scaled = not call.attributes.get("factors") or self.members.are_factors(source, nodes)
        passed = self.index.is_transparent if call.op == "Move" else lambda n: n.op_type in MOVES
        computing = sum(not passed(n) for n in nodes)
        if closed and scaled and nodes and least <= computing and len(nodes) <= most:
            yield Grown(source, target, nodes)

    def maximal(self, call: Call, source: ir.Value, taken: frozenset[ir.Node]) -> Iterator[Grown]:
        """The largest region that starts at `source` and keeps its shape; its target is the last value made."""
        least, most = _bounds(call)
        nodes: dict[ir.Node, None] = {}
        inside = set(taken)
        frontier = [source]
        while frontier and len(nodes) < most:
            value = frontier.pop(0)
            for node in self.index.consumers(value):
                if node in nodes or node in taken or len(nodes) >= most or not self.members.allows(call, node):
                    continue
                # A reshape to a shape computed from this very value is no way out: regions copy such arithmetic.
                if self.members.keeps_shape(call, node, source) and (
                    call.op == "Move" or joins(self.index, node, inside)
                ):
                    nodes[node] = None
                    inside.add(node)
                    frontier.append(node.outputs[0])
        ends = sorted(nodes, key=self.index.position.__getitem__)
        while ends and self._is_cast(call, ends[-1].outputs[0]):
            ends.pop()
        if len(ends) >= least:
            yield Grown(source, ends[-1].outputs[0] if ends else source, frozenset(ends))

    def _is_cast(self, call: Call, value: ir.Value) -> bool:
        """Whether a value is no end of a Move, which goes through casts: those at its ends are not its own."""
        node = self.index.producer(value)
        return call.op == "Move" and node is not None and self.index.is_transparent(node)

    def groups(self, call: Call, among: Collection[ir.Node] | None = None) -> list[frozenset[ir.Node]]:
        """All maximal regions of the graph, or of some of its nodes, disjoint, each convex."""
        least, most = _bounds(call)
        group_of: dict[ir.Node, set[ir.Node]] = {}
        for node in self.index.nodes if among is None else sorted(among, key=self.index.position.__getitem__):
            if not self.members.allows(call, node) or not self.members.is_data(node):
                continue
            joined = group_of[node] = {node}
            for value in node.inputs:
                producer = self.index.producer(value)
                group = group_of.get(producer, joined) if producer is not None else joined
                if group is joined or len(group) + len(joined) > most or not self._are_one(call, node, group, joined):
                    continue
                joined, less = (group, joined) if len(group) > len(joined) else (joined, group)
                joined |= less
                group_of.update(dict.fromkeys(less, joined))
        distinct = {id(g): g for g in group_of.values()}.values()
        return [frozenset(g) for g in distinct if len(g) >= max(least, 1) and self.members.are_of_kind(call, g)]

    def _are_one(self, call: Call, node: ir.Node, group: set[ir.Node], joined: set[ir.Node]) -> bool:
        """Whether a group and what a node, which reads some of it, has been joined to are a region together."""
        if not self.members.have_one_shape(call, chain(group, joined)):
            return False
        # By itself a node is looked at alone: large groups grow by one after the other.
        if joins(self.index, node, group) if len(joined) == 1 else is_convex(self.index, group | joined):
            return True
        copies = carried(self.index, group | joined) if call.op == "Convolutions" else set()
        return bool(copies) and way_back(self.index, group | joined, copies) is None

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
