"""Whether regions, each run as one operator, still have an order to run in."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import onnx_ir as ir

from fusion_cli.types import Region


def breaks_order(regions: Sequence[Region], position: dict[ir.Node, int]) -> int | None:
    """The index of the last region that lies on a cycle once every region is one node; None if there is none."""
    owner = {node: i for i, region in enumerate(regions) for node in region.nodes}
    vertex = {node: owner.get(node, len(regions) + p) for node, p in position.items()}
    after: dict[int, set[int]] = defaultdict(set)
    waiting: dict[int, int] = defaultdict(int)
    for node in position:
        for value in _read(node):
            producer = value.producer()
            if producer in vertex and vertex[producer] != vertex[node] and vertex[node] not in after[vertex[producer]]:
                after[vertex[producer]].add(vertex[node])
                waiting[vertex[node]] += 1
    ready = [v for v in set(vertex.values()) if not waiting[v]]
    done: set[int] = set()
    while ready:
        current = ready.pop()
        done.add(current)
        for following in after[current]:
            waiting[following] -= 1
            if not waiting[following]:
                ready.append(following)
    stuck = [i for i in range(len(regions)) if i not in done]
    return stuck[-1] if stuck else None


def _read(node: ir.Node) -> list[ir.Value]:
    """The node's inputs and what its nested bodies capture."""
    values = [v for v in node.inputs if v is not None]
    for attribute in node.attributes.values():
        if attribute.type == ir.AttributeType.GRAPH:
            for inner in attribute.as_graph():
                values += _read(inner)
        elif attribute.type == ir.AttributeType.GRAPHS:
            for graph in attribute.as_graphs():
                for inner in graph:
                    values += _read(inner)
    return values
