"""What became of every node of a model."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import onnx_ir as ir

from fusion_cli.types import Candidate, Fate, GraphNode, Region, label


def fates(
    graph: ir.Graph, regions: Sequence[Region], chosen: Sequence[Candidate], near: Collection[ir.Node]
) -> tuple[GraphNode, ...]:
    """Every node, those of bodies too, where `chosen` of the `regions` are fused and misses
    concern the nodes `near`."""
    nodes = list(graph.all_nodes())
    position = {n: i for i, n in enumerate(nodes)}
    found: dict[ir.Node, Fate] = dict.fromkeys(near, "missed")
    found |= dict.fromkeys((n for r in regions for n in r.nodes), "turned down")
    found |= dict.fromkeys((n for c in chosen for n in c.region.nodes), "fused")
    return tuple(GraphNode(label(n), n.op_type, found.get(n, "left"), _reads(n, position)) for n in nodes)


def after(graph: Iterable[GraphNode], kept: Iterable[str]) -> tuple[GraphNode, ...]:
    """The nodes, of which only those named in `kept` are still fused."""
    names = frozenset(kept)
    return tuple(replace(n, fate="taken back") if n.fate == "fused" and n.name not in names else n for n in graph)


def _reads(node: ir.Node, position: Mapping[ir.Node, int]) -> tuple[int, ...]:
    producers = (v.producer() for v in node.inputs if v is not None)
    return tuple(dict.fromkeys(position[p] for p in producers if p is not None))
