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

    Sets that are connected by overlaps are chosen from together; these come in an order in which those that overlap are
    near each other.
    """
    kept = _worth(sets, weights)
    return sorted(i for group in _connected(kept, sets) for i in _best_of(group, sets, weights))


def _connected(kept: Sequence[int], sets: Sequence[frozenset[Hashable]]) -> list[list[int]]:
    """The sets in groups that do not overlap each other, each in the order given."""
    first: dict[Hashable, int] = {}
    parent = {i: i for i in kept}

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = i = parent[parent[i]]
        return i

    for i in kept:
        for node in sets[i]:
            parent[root(i)] = root(first.setdefault(node, i))
    groups: dict[int, list[int]] = defaultdict(list)
    for i in kept:
        groups[root(i)].append(i)
    return list(groups.values())


def _best_of(group: Sequence[int], sets: Sequence[frozenset[Hashable]], weights: Sequence[float]) -> Sequence[int]:
    """The choice is made one by one, and all choices that forbid the same later sets are one state, of which only the
    heaviest counts."""
    if len(group) == 1:
        return group
    states: dict[int, tuple[float, _Chain]] = {0: (0.0, None)}
    for i, forbids in _conflicts(group, sets).items():
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
    greedy = _greedy(group, sets, weights)
    if sum(weights[i] for i in greedy) > weight:
        return greedy
    chosen = []
    while chain is not None:
        last, chain = chain
        chosen.append(last)
    return chosen


def _keep(states: dict[int, tuple[float, _Chain]], forbidden: int, weight: float, chain: _Chain) -> None:
    if forbidden not in states or weight > states[forbidden][0]:
        states[forbidden] = (weight, chain)


def _conflicts(group: Sequence[int], sets: Sequence[frozenset[Hashable]]) -> dict[int, int]:
    """For each set of a group, which ones from itself on it overlaps: bit k is the k-th after it."""
    first: dict[Hashable, int] = {}
    sharing: dict[Hashable, int] = {}
    for place, i in enumerate(group):
        for node in sets[i]:
            start = first.setdefault(node, place)
            sharing[node] = sharing.get(node, 0) | 1 << (place - start)
    conflicts = {}
    for place, i in enumerate(group):
        conflicts[i] = 0
        for node in sets[i]:
            conflicts[i] |= sharing[node] >> (place - first[node])
    return conflicts


def _worth(sets: Sequence[frozenset[Hashable]], weights: Sequence[float]) -> list[int]:
    """The heaviest of the sets that are equal, in the order given."""
    heaviest: dict[frozenset[Hashable], int] = {}
    for i, nodes in enumerate(sets):
        if nodes not in heaviest or weights[i] > weights[heaviest[nodes]]:
            heaviest[nodes] = i
    return sorted(heaviest.values())


def _greedy(group: Sequence[int], sets: Sequence[frozenset[Hashable]], weights: Sequence[float]) -> list[int]:
    """The heaviest first, each that still can be taken."""
    taken: set[Hashable] = set()
    chosen = []
    for i in sorted(group, key=lambda i: (-weights[i], -len(sets[i]), i)):
        if taken.isdisjoint(sets[i]):
            taken |= sets[i]
            chosen.append(i)
    return chosen
