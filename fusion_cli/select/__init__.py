"""Choose, among overlapping candidates, the set that saves the most.

Each target chooses for itself; the choices must nest. A region chosen for one target may lie wholly inside one chosen
for another: the outer becomes a function that calls the inner, so a session without the outer's kernel still runs the
inner's. A candidate that cuts across what an earlier target chose is turned down.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from fusion_cli.select.exact import best_disjoint
from fusion_cli.select.order import breaks_order
from fusion_cli.types import Candidate, Rejection

__all__ = ["select"]


def select(
    candidates: Sequence[Candidate],
    graph: ir.Graph,
    targets: Sequence[str],
) -> tuple[tuple[Candidate, ...], tuple[Rejection, ...]]:
    """The candidates to outline, outermost first, and why each other one that pays was not taken."""
    position = {node: i for i, node in enumerate(graph)}
    chosen: list[Candidate] = []
    rejections: list[Rejection] = []
    for target in targets:
        paying = [c for c in candidates if target in c.targets]
        fitting = [c for c in paying if all(_nests(c, other) for other in chosen)]
        best = best_disjoint([frozenset(c.region.nodes) for c in fitting], [c.weight(target) for c in fitting])
        winners = [fitting[i] for i in best]
        winners = _without_cycles(winners, position, rejections, target)
        rejections += [_lost(c, target, winners) for c in paying if c not in winners and c not in chosen]
        chosen += [c for c in winners if c not in chosen]
    chosen.sort(key=lambda c: (-len(c.region.nodes), position[c.region.nodes[0]]))
    return tuple(chosen), tuple(rejections)


def _nests(candidate: Candidate, other: Candidate) -> bool:
    a, b = frozenset(candidate.region.nodes), frozenset(other.region.nodes)
    return a.isdisjoint(b) or a <= b or b <= a


def _without_cycles(
    winners: list[Candidate], position: dict[ir.Node, int], rejections: list[Rejection], target: str
) -> list[Candidate]:
    """Two convex regions can still need each other's results. Drop the least of those that do until none is left."""
    kept = sorted(winners, key=lambda c: -c.weight(target))
    while (culprit := breaks_order([c.region for c in kept], position)) is not None:
        dropped = kept.pop(culprit)
        rejections.append(
            Rejection(
                dropped.region.rule,
                dropped.region.node_names[-1],
                "select",
                "FUS351",
                "an order in which every region has its inputs",
                "two regions that need each other",
                saving_us=dropped.scores[target].gain_us,
            )
        )
    return kept


def _lost(candidate: Candidate, target: str, winners: list[Candidate]) -> Rejection:
    nodes = frozenset(candidate.region.nodes)
    rivals = sorted({w.region.rule for w in winners if not nodes.isdisjoint(w.region.nodes)})
    found = f"{', '.join(rivals)} saves more on {target}" if rivals else "a region of another target cuts across it"
    return Rejection(
        candidate.region.rule,
        candidate.region.node_names[-1],
        "select",
        "FUS350",
        "the best use of its nodes",
        found,
        saving_us=round(candidate.scores[target].gain_us, 3),
    )
