"""Convexity: whether a path leaves a set of nodes and comes back, so that they could not run as one operator."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable

import onnx_ir as ir

from fusion_cli.graph.index import GraphIndex


def is_convex(index: GraphIndex, nodes: Collection[ir.Node]) -> bool:
    """Whether no path leaves `nodes` and comes back."""
    return way_back(index, nodes) is None


def way_back(
    index: GraphIndex,
    nodes: Collection[ir.Node],
    private: Collection[ir.Node] = (),
    remade: Collection[ir.Node] = (),
) -> ir.Node | None:
    """The first node outside at which a path that left `nodes` comes back, if there is one. `nodes` do not read
    `private` ones: they hold copies of them, and those that are `remade` read what these do."""
    inside = frozenset(nodes)
    producers = frozenset().union(*map(index.predecessors, inside.union(remade))) - inside
    first = min(map(index.position.__getitem__, inside))
    # What comes before all of them depends on none: most regions are done with here.
    late = [n for n in producers if index.position[n] > first and n not in private]
    return _dependent(index, sorted(late, key=index.position.__getitem__), inside) if late else None


def joins(index: GraphIndex, node: ir.Node, inside: Collection[ir.Node]) -> bool:
    """Whether a convex set stays so with another node: no path leads through others from one to the other."""
    place = index.position[node]
    before = [n for n in index.predecessors(node) if n not in inside]
    if inside and _dependent(index, before, inside) is not None:
        return False
    later = (n for n in inside if index.position[n] > place)
    after = {m for n in later for m in index.predecessors(n) if m is not node and m not in inside}
    return _dependent(index, after, (node,)) is None


def _dependent(index: GraphIndex, nodes: Iterable[ir.Node], targets: Collection[ir.Node]) -> ir.Node | None:
    """The first of `nodes` that is a target or depends on one. Looks at the nearest nodes first, and at none that comes
    before all targets or is no deeper than any."""
    first = min(map(index.position.__getitem__, targets))
    top = min(map(index.depth.__getitem__, targets))
    seen: set[ir.Node] = set()
    for node in nodes:
        waiting = deque((node,))
        while waiting:
            current = waiting.popleft()
            if current in targets:
                return node
            if current not in seen and index.position[current] > first and index.depth[current] > top:
                seen.add(current)
                waiting += index.predecessors(current)
    return None
