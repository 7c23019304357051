"""Choose, among overlapping candidates, the set that saves the most.

Each target chooses for itself; the choices must nest. A region chosen for one target may lie wholly inside one chosen
for another: the outer becomes a function that calls the inner, so a session without the outer's kernel still runs the
inner's. A candidate that cuts across what an earlier target chose is turned down.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

import onnx_ir as ir

from fusion_cli.codes.select import HINTS
from fusion_cli.select.exact import best_disjoint
from fusion_cli.select.order import breaks_order
from fusion_cli.types import Candidate, Rejection

__all__ = ["select"]

MOST_CHOICES = 8
"""How often the choice is made again without regions that cannot all have their inputs."""


def select(
    candidates: Sequence[Candidate],
    graph: ir.Graph,
    targets: Sequence[str],
) -> tuple[tuple[Candidate, ...], tuple[Rejection, ...]]:
    """The candidates to outline, outermost first, and why each other one that pays was not taken."""
    position = {node: i for i, node in enumerate(graph.all_nodes())}
    chosen: list[Candidate] = []
    rejections: list[Rejection] = []
    for target in targets:
        paying = [c for c in candidates if target in c.targets]
        earlier = _by_node(chosen)
        fitting = [c for c in paying if _nests(c, earlier)]
        winners = _best_in_order(fitting, position, rejections, target)
        taken, rivals = {*winners, *chosen}, _by_node(winners)
        rejections += [_lost(c, target, rivals) for c in paying if c not in taken]
        chosen = list(dict.fromkeys([*chosen, *winners]))
    chosen.sort(key=lambda c: (-len(c.region.nodes), position[c.region.nodes[0]]))
    return tuple(chosen), tuple(rejections)


def _by_node(candidates: Sequence[Candidate]) -> Mapping[ir.Node, list[Candidate]]:
    found: dict[ir.Node, list[Candidate]] = defaultdict(list)
    for candidate in candidates:
        for node in candidate.region.nodes:
            found[node].append(candidate)
    return found


def _overlapping(candidate: Candidate, others: Mapping[ir.Node, list[Candidate]]) -> list[Candidate]:
    return list(dict.fromkeys(c for n in candidate.region.nodes for c in others.get(n, ())))


def _nests(candidate: Candidate, earlier: Mapping[ir.Node, list[Candidate]]) -> bool:
    """Whether the candidate lies inside or around each of the earlier ones that it overlaps."""
    own = frozenset(candidate.region.nodes)
    others = (frozenset(c.region.nodes) for c in _overlapping(candidate, earlier))
    return all(own <= other or other <= own for other in others)


def _best_in_order(
    fitting: Sequence[Candidate], position: dict[ir.Node, int], rejections: list[Rejection], target: str
) -> list[Candidate]:
    """The best disjoint candidates. Two convex regions can still need each other's results: the lesser of those that
    do is dropped, and the choice made again without it."""
    waiting = list(fitting)
    for _ in range(MOST_CHOICES):
        best = best_disjoint([frozenset(c.region.nodes) for c in waiting], [c.weight(target) for c in waiting])
        winners = [waiting[i] for i in best]
        kept, dropped = _without_cycles(winners, position, target)
        rejections += [_cyclic(c, target) for c in dropped]
        if not dropped:
            return winners
        lesser = set(dropped)
        waiting = [c for c in waiting if c not in lesser]
    return kept


def _without_cycles(
    winners: Sequence[Candidate], position: dict[ir.Node, int], target: str
) -> tuple[list[Candidate], list[Candidate]]:
    """Those that have an order to run in, and those dropped for it, the least first."""
    kept, dropped = sorted(winners, key=lambda c: -c.weight(target)), []
    while (culprit := breaks_order([c.region for c in kept], position)) is not None:
        dropped.append(kept.pop(culprit))
    return kept, dropped


def _cyclic(candidate: Candidate, target: str) -> Rejection:
    expected, found = "an order in which every region has its inputs", "two regions that need each other"
    gain = round(candidate.scores[target].gain_us, 3)
    told = Rejection.of(candidate.region, "select", "FUS351", expected, found, HINTS["FUS351"], target)
    return replace(told, saving_us=gain)


def _lost(candidate: Candidate, target: str, winners: Mapping[ir.Node, list[Candidate]]) -> Rejection:
    rivals = sorted({w.region.rule for w in _overlapping(candidate, winners)})
    gain = max(candidate.scores[target].gain_us, 0.0)
    found = "a region of another target cuts across it"
    if rivals:
        found = f"{', '.join(rivals)} saves more on {target} than its {gain:.1f} us"
    expected = "the best use of its nodes"
    told = Rejection.of(candidate.region, "select", "FUS350", expected, found, HINTS["FUS350"], target)
    return replace(told, covered_by=rivals[0] if rivals else "")
