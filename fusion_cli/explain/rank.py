"""What was turned down, the costliest first: alike places once, and what is understood otherwise last."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import onnx_ir as ir

from fusion_cli.codes.match import CONDITION, NO_WORK, NOT_CONVEX, SIZES
from fusion_cli.explain.potential import Potential
from fusion_cli.types import Candidate, Rejection, label

KINDS = 20
"""Rejections of one rule at one stage that differ in more than their place; the costliest are kept."""
_IMPOSSIBLE = (NO_WORK, NOT_CONVEX)
"""Regions that cannot be one, whatever is done about it."""
_NAME = re.compile(r"`[^`]*`")
_MISSED = ("match", "plan")
"""Stages that say why there is no candidate at all; later ones know what the candidate would save."""
_ECHOED = (*_MISSED, "score")


def rank(
    rejections: Iterable[Rejection],
    graph: ir.Graph,
    chosen: Sequence[Candidate],
    potential: Potential,
    watch: Collection[str] = (),
) -> tuple[Rejection, ...]:
    """The rejections with what they cost, costliest first and those with `covered_by` last.

    Places that are alike are one rejection, with its first place; a place with a node of `watch` stands by itself.
    """
    by_name = {label(n): n for n in graph.all_nodes()}
    watched = frozenset(watch)
    merged = _grouped(rejections, lambda r: _same_operators(r, by_name), watched)
    taken = {label(n): c for c in chosen for n in c.region.nodes}
    costed = [_costed(r, by_name, potential) for r in merged]
    alike = _grouped(costed, lambda r: _same_condition(r) or _same_sizes(r, by_name), watched)
    told = [_covered(r, taken) for r in alike]
    told.sort(key=lambda r: (r.covered_by != "", -r.saving_us, -r.progress, -r.matched, r.rule, r.node))
    shown = _without_echoes(told)
    shown.sort(key=lambda r: r.covered_by != "")
    counts: Counter[tuple[str, str]] = Counter()
    kept = []
    for rejection in shown:
        counts[rejection.rule, rejection.stage] += 1
        if counts[rejection.rule, rejection.stage] <= KINDS or not watched.isdisjoint(rejection.nodes):
            kept.append(rejection)
    return tuple(kept)


def _grouped(
    rejections: Iterable[Rejection], key: Callable[[Rejection], object], watched: frozenset[str]
) -> list[Rejection]:
    """One rejection, the costliest, for all of one key; those without a key (None) or at watched nodes each stand by
    themselves."""
    groups: dict[object, Rejection] = {}
    for number, rejection in enumerate(rejections):
        group = key(rejection) if watched.isdisjoint(rejection.nodes) else None
        known = groups.setdefault(number if group is None else group, rejection)
        if known is not rejection:
            first = max(known, rejection, key=lambda r: r.saving_us)
            places, saving = known.places + rejection.places, known.saving_us + rejection.saving_us
            groups[group] = replace(first, places=places, saving_us=round(saving, 3))
    return list(groups.values())


def _same_operators(rejection: Rejection, by_name: Mapping[str, ir.Node]) -> object:
    """Of a rule that matched wholly: the reason, and the operators that were turned down. (The misses of one that did
    not are grouped already.)"""
    if rejection.progress < 1:
        return None
    operators = tuple(sorted(by_name[n].op_type for n in rejection.nodes if n in by_name))
    return rejection.rule, rejection.stage, rejection.code, rejection.source, rejection.target, operators


def _same_condition(rejection: Rejection) -> object:
    """The condition of a rule that failed and why, whatever is around it."""
    if rejection.code != CONDITION:
        return None
    return rejection.rule, rejection.source, rejection.expected, _NAME.sub("", rejection.hint)


def _same_sizes(rejection: Rejection, by_name: Mapping[str, ir.Node]) -> object:
    """Sizes that are not known to be equal, of the same operators, whatever they are called."""
    if rejection.code != SIZES:
        return None
    operators = tuple(sorted(by_name[n].op_type for n in rejection.nodes if n in by_name))
    return rejection.rule, rejection.source, rejection.matched, operators, _NAME.sub("", rejection.hint)


def _costed(rejection: Rejection, by_name: Mapping[str, ir.Node], potential: Potential) -> Rejection:
    if rejection.stage not in _MISSED or rejection.code in _IMPOSSIBLE:
        return rejection
    nodes = [by_name[n] for n in rejection.nodes if n in by_name]
    return replace(rejection, saving_us=round(potential.saving_us(nodes) * rejection.places, 3))


def _covered(rejection: Rejection, taken: Mapping[str, Candidate]) -> Rejection:
    """Say which fusion has all the nodes already."""
    owners = [taken[n].region for n in rejection.nodes if n in taken]
    if rejection.covered_by or not owners:
        return rejection
    # What cannot be one region, or would not pay as one, is no loss where part of it is in another.
    whole = len(owners) == len(rejection.nodes) and all(r is owners[0] for r in owners)
    hopeless = rejection.code in _IMPOSSIBLE or rejection.stage == "score"
    return replace(rejection, covered_by=owners[0].rule) if whole or hopeless else rejection


def _without_echoes(ranked: Iterable[Rejection]) -> list[Rejection]:
    """Mark a miss whose nodes another, costlier or larger one concerns too, or some of whose nodes one concerns that
    was stopped by the same: mending that one comes first."""
    causes: dict[tuple[str, str], dict[str, str]] = {}
    seen: dict[str, list[tuple[frozenset[str], str]]] = {}
    found = []
    for rejection in ranked:
        nodes = frozenset(rejection.nodes)
        if rejection.stage in _ECHOED and nodes and not rejection.covered_by:
            first = min(nodes, key=lambda n: len(seen.get(n, ())))
            rule = next((rule for others, rule in seen.get(first, ()) if nodes <= others), "")
            if rejection.stage in _MISSED:
                same = causes.setdefault((rejection.code, rejection.found), {})
                rule = rule or next((same[n] for n in rejection.nodes if n in same), "")
                same.update(dict.fromkeys(nodes, rule or rejection.rule))
            if rule:
                rejection = replace(rejection, covered_by=rule)
            else:
                for name in nodes:
                    seen.setdefault(name, []).append((nodes, rejection.rule))
        found.append(rejection)
    return found
