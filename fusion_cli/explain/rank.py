"""What was turned down, the costliest first: alike places told once, and what is understood otherwise last."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import onnx_ir as ir

from fusion_cli.explain.potential import Potential
from fusion_cli.types import Candidate, Rejection, label

KINDS = 20
"""Rejections of one rule at one stage that differ in more than their place; the costliest are kept."""
_IMPOSSIBLE = ("FUS110", "FUS111")
"""Regions that cannot be one, whatever is done about it."""
_CONDITION = "FUS106"
_NAME = re.compile(r"`[^`]*`")
_MISSED = ("match", "plan")
"""Stages that say why there is no candidate at all; later ones know what the candidate would save."""
_ECHOED = (*_MISSED, "score")


def rank(
    rejections: Iterable[Rejection],
    graph: ir.Graph,
    chosen: Sequence[Candidate],
    potential: Potential | None,
    watch: Collection[str] = (),
) -> tuple[Rejection, ...]:
    """The rejections with what they cost, costliest first and those with `covered_by` last.

    Places that are alike are one rejection, with its first place; a place with a node of `watch` stands by itself.
    Without a `potential` nothing is said to cost anything.
    """
    by_name = {label(n): n for n in graph.all_nodes()}
    watched = frozenset(watch)
    merged = _merge(rejections, by_name, watched)
    taken = {label(n): c for c in chosen for n in c.region.nodes}
    costed = [_covered(r, taken) for r in _alike([_costed(r, by_name, potential) for r in merged], watched)]
    costed.sort(key=lambda r: (r.covered_by != "", -r.saving_us, -r.progress, -r.matched, r.rule, r.node))
    shown = _without_echoes(costed)
    shown.sort(key=lambda r: r.covered_by != "")
    counts: Counter[tuple[str, str]] = Counter()
    kept = []
    for rejection in shown:
        counts[rejection.rule, rejection.stage] += 1
        if counts[rejection.rule, rejection.stage] <= KINDS or not watched.isdisjoint(rejection.nodes):
            kept.append(rejection)
    return tuple(kept)


def _merge(rejections: Iterable[Rejection], by_name: Mapping[str, ir.Node], watched: frozenset[str]) -> list[Rejection]:
    """One rejection for the places of a rule where the same operators were turned down for the same reason. (Those of
    a rule that did not match are merged already.)"""
    merged: dict[object, Rejection] = {}
    for number, rejection in enumerate(rejections):
        operators = tuple(sorted(by_name[n].op_type for n in rejection.nodes if n in by_name))
        key: object = (rejection.rule, rejection.stage, rejection.code, rejection.source, rejection.target, operators)
        if rejection.progress < 1 or not watched.isdisjoint(rejection.nodes):
            key = number
        known = merged.get(key)
        merged[key] = rejection if known is None else replace(known, places=known.places + rejection.places)
    return list(merged.values())


def _alike(costed: Iterable[Rejection], watched: frozenset[str]) -> list[Rejection]:
    """One rejection, the costliest, for all places where the same condition of a rule failed for the same reason, with
    what is around them differing."""
    alike: dict[object, Rejection] = {}
    for number, rejection in enumerate(costed):
        key: object = (rejection.rule, rejection.source, rejection.expected, _NAME.sub("", rejection.hint))
        if rejection.code != _CONDITION or not watched.isdisjoint(rejection.nodes):
            key = number
        known = alike.setdefault(key, rejection)
        if known is not rejection:
            first = max(known, rejection, key=lambda r: r.saving_us)
            places, saving = known.places + rejection.places, known.saving_us + rejection.saving_us
            alike[key] = replace(first, places=places, saving_us=round(saving, 3))
    return list(alike.values())


def _costed(rejection: Rejection, by_name: Mapping[str, ir.Node], potential: Potential | None) -> Rejection:
    if rejection.stage not in _MISSED or rejection.code in _IMPOSSIBLE or potential is None:
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
    told: dict[str, list[tuple[frozenset[str], str]]] = {}
    found = []
    for rejection in ranked:
        nodes = frozenset(rejection.nodes)
        if rejection.stage in _ECHOED and nodes and not rejection.covered_by:
            first = min(nodes, key=lambda n: len(told.get(n, ())))
            rule = next((rule for others, rule in told.get(first, ()) if nodes <= others), "")
            if rejection.stage in _MISSED:
                same = causes.setdefault((rejection.code, rejection.found), {})
                rule = rule or next((same[n] for n in rejection.nodes if n in same), "")
                same.update(dict.fromkeys(nodes, rule or rejection.rule))
            if rule:
                rejection = replace(rejection, covered_by=rule)
            else:
                for name in nodes:
                    told.setdefault(name, []).append((nodes, rejection.rule))
        found.append(rejection)
    return found
