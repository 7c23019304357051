"""The heaviest set of disjoint node sets: exact in each connected component, up to a bound on the search."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence

MAX_STEPS = 20_000
"""Search steps per component after which the best set found so far is taken."""


def best_disjoint(sets: Sequence[frozenset[Hashable]], weights: Sequence[float]) -> list[int]:
    """Indices of pairwise disjoint sets with the largest total weight, ascending."""
    conflicts = _conflicts(sets)
    chosen: list[int] = []
    for component in _components(conflicts):
        chosen += _solve(sorted(component, key=lambda i: (-weights[i], -len(sets[i]), i)), weights, conflicts)
    return sorted(chosen)


def _conflicts(sets: Sequence[frozenset[Hashable]]) -> list[set[int]]:
    members: dict[Hashable, list[int]] = defaultdict(list)
    for i, nodes in enumerate(sets):
        for node in nodes:
            members[node].append(i)
    conflicts: list[set[int]] = [set() for _ in sets]
    for sharing in members.values():
        for i in sharing:
            conflicts[i].update(sharing)
    for i, found in enumerate(conflicts):
        found.discard(i)
    return conflicts


def _components(conflicts: list[set[int]]) -> list[list[int]]:
    seen: set[int] = set()
    components = []
    for start in range(len(conflicts)):
        if start in seen:
            continue
        component, stack = [], [start]
        seen.add(start)
        while stack:
            i = stack.pop()
            component.append(i)
            for j in conflicts[i] - seen:
                seen.add(j)
                stack.append(j)
        components.append(component)
    return components


def _solve(order: list[int], weights: Sequence[float], conflicts: list[set[int]]) -> list[int]:
    """Branch and bound, heaviest first: the first leaf is the greedy answer, so running out of steps is never worse."""
    best: list[int] = []
    best_weight = -1.0
    steps = 0
    rest = [0.0] * (len(order) + 1)
    for k in range(len(order) - 1, -1, -1):
        rest[k] = rest[k + 1] + weights[order[k]]
    stack: list[tuple[int, list[int], float, frozenset[int]]] = [(0, [], 0.0, frozenset())]
    while stack and steps < MAX_STEPS:
        steps += 1
        k, taken, weight, blocked = stack.pop()
        if weight + rest[k] <= best_weight:
            continue
        if k == len(order):
            best, best_weight = taken, weight
            continue
        i = order[k]
        stack.append((k + 1, taken, weight, blocked))
        if i not in blocked:
            stack.append((k + 1, [*taken, i], weight + weights[i], blocked | conflicts[i]))
    return best
