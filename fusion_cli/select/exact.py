"""The heaviest set of disjoint node sets, in time linear in their number: exact where few sets overlap at a time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence

MAX_STATES = 256
"""Different futures that are followed at a time; beyond this many the lightest are given up."""

_Chain = tuple[int, "_Chain"] | None
"""Indices of chosen sets, the last first."""


def best_disjoint(sets: Sequence[frozenset[Hashable]], weights: Sequence[float]) -> list[int]:
    """Indices of pairwise disjoint sets with a total weight as large as can be found, ascending.

    The sets come in an order in which those that overlap are near each other: the choice is made one by one, and all
    choices that forbid the same later sets are one state, of which only the heaviest counts.
    """
    conflicts = _conflicts(sets, weights)
    states: dict[int, tuple[float, _Chain]] = {0: (0.0, None)}
    for i, forbids in conflicts.items():
        following: dict[int, tuple[float, _Chain]] = {}
        for forbidden, (weight, chain) in states.items():
            _keep(following, forbidden >> 1, weight, chain)
            if not forbidden & 1:
                _keep(following, (forbidden | forbids) >> 1, weight + weights[i], (i, chain))
        if len(following) > MAX_STATES:
            heaviest = sorted(following.items(), key=lambda item: -item[1][0])
            following = dict(heaviest[:MAX_STATES])
        states = following
    weight, chain = max(states.values(), key=lambda state: state[0])
    greedy = _greedy(sets, weights)
    if sum(weights[i] for i in greedy) > weight:
        return greedy
    chosen = []
    while chain is not None:
        last, chain = chain
        chosen.append(last)
    return chosen[::-1]


def _keep(states: dict[int, tuple[float, _Chain]], forbidden: int, weight: float, chain: _Chain) -> None:
    if forbidden not in states or weight > states[forbidden][0]:
        states[forbidden] = (weight, chain)


def _conflicts(sets: Sequence[frozenset[Hashable]], weights: Sequence[float]) -> dict[int, int]:
    """For each set worth a look, which later ones it overlaps: bit k is the k-th of those that follow."""
    kept = _worth(sets, weights)
    members: dict[Hashable, list[int]] = defaultdict(list)
    for place, i in enumerate(kept):
        for node in sets[i]:
            members[node].append(place)
    overlapping: list[set[int]] = [set() for _ in kept]
    for sharing in members.values():
        for place in sharing:
            overlapping[place].update(sharing)
    return {
        i: sum(1 << (later - place) for later in overlapping[place] if later > place) for place, i in enumerate(kept)
    }


def _worth(sets: Sequence[frozenset[Hashable]], weights: Sequence[float]) -> list[int]:
    """The heaviest of the sets that are equal, in the order given."""
    heaviest: dict[frozenset[Hashable], int] = {}
    for i, nodes in enumerate(sets):
        if nodes not in heaviest or weights[i] > weights[heaviest[nodes]]:
            heaviest[nodes] = i
    return sorted(heaviest.values())


def _greedy(sets: Sequence[frozenset[Hashable]], weights: Sequence[float]) -> list[int]:
    """The heaviest first, each that still can be taken."""
    taken: set[Hashable] = set()
    chosen = []
    for i in sorted(range(len(sets)), key=lambda i: (-weights[i], -len(sets[i]), i)):
        if taken.isdisjoint(sets[i]):
            taken |= sets[i]
            chosen.append(i)
    return sorted(chosen)
