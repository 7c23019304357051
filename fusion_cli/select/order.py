"""Whether regions, each run as one operator, still have an order to run in."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import onnx_ir as ir

from fusion_cli.load.structure import bodies_of
from fusion_cli.types import Region


def breaks_order(regions: Sequence[Region], position: Mapping[ir.Node, int]) -> int | None:
    """The index of the last region that lies on a cycle once every region is one node; None if there is none."""
    owner = {node: i for i, region in enumerate(regions) for node in region.nodes}
    vertex = {node: owner.get(node, len(regions) + p) for node, p in position.items()}
    # A region reads its inputs: the shape arithmetic that its nodes read has copies inside.
    reads = [(i, value) for i, region in enumerate(regions) for value in region.inputs]
    reads += [(vertex[node], value) for node in position if node not in owner for value in _read(node)]
    edges = {
        (vertex[producer], reader)
        for reader, value in reads
        if (producer := value.producer()) in vertex and vertex[producer] != reader
    }
    # What is left after peeling from the front lies on a cycle or behind one; peeling that from the back leaves cycles.
    behind = _peel(set(vertex.values()), edges)
    cyclic = _peel(behind, {(b, a) for a, b in edges if a in behind and b in behind})
    return max((i for i in cyclic if i < len(regions)), default=None)


def _peel(vertices: set[int], edges: Iterable[tuple[int, int]]) -> set[int]:
    """The vertices that are left when those without incoming edges are removed again and again."""
    after: dict[int, list[int]] = defaultdict(list)
    waiting = dict.fromkeys(vertices, 0)
    for a, b in edges:
        if a in waiting and b in waiting:
            after[a].append(b)
            waiting[b] += 1
    ready = [v for v, n in waiting.items() if not n]
    while ready:
        done = ready.pop()
        del waiting[done]
        for following in after[done]:
            waiting[following] -= 1
            if not waiting[following]:
                ready.append(following)
    return set(waiting)


def _read(node: ir.Node) -> list[ir.Value]:
    """The node's inputs and what its nested bodies capture."""
    inner = (n for body in bodies_of(node) for n in body.all_nodes())
    return [v for n in (node, *inner) for v in n.inputs if v is not None]
