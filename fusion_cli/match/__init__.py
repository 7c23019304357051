"""Find what the rules describe: idioms (what a piece of the graph means) and regions (what is worth one operator)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import onnx_ir as ir

from fusion_cli.errors import Unsupported
from fusion_cli.match.engine import Idioms, Match, Matcher, Miss
from fusion_cli.match.graph import GraphIndex
from fusion_cli.match.pattern import Pattern, Rule, RuleSet
from fusion_cli.match.region import make_region
from fusion_cli.match.rules import load_rules, parse_rules
from fusion_cli.match.values import ValueIdioms
from fusion_cli.types import Region, Rejection

__all__ = ["MatchResult", "Rule", "RuleSet", "find_regions", "load_rules", "parse_rules"]

MISSES_PER_RULE = 20
LEAST_PROGRESS = 0.3
"""Attempts that ended earlier than this are not near misses: every Add starts a dozen rules."""


@dataclass(frozen=True, eq=False)
class MatchResult:
    """Regions in graph order, idioms recognised (count by name, overlapping readings counted once), near misses."""

    regions: tuple[Region, ...]
    idioms: Mapping[str, int]
    rejections: tuple[Rejection, ...]


def find_regions(model: ir.Model, rules: RuleSet) -> MatchResult:
    """All regions of the model's main graph that some fusion rule describes; they may overlap."""
    index = GraphIndex(model.graph)
    idioms = Idioms()
    matcher = Matcher(index, idioms)
    by_value = ValueIdioms(index, [r for r in rules.idioms if r.by_value])
    counts: dict[str, int] = {}
    rejections: list[Rejection] = []
    for rule in rules.idioms:
        matches, misses = by_value.find(rule) if rule.by_value else _find_rule(matcher, rule)
        matches = [m for m in matches if not _is_part(m, rule, idioms)]
        for match in matches:
            idioms.add(match)
        if matches and rule.counted:
            counts[rule.name] = len(_disjoint(matches))
        rejections += _near_misses(misses, matches)
    regions: dict[tuple[str, frozenset[ir.Node]], Region] = {}
    for rule in rules.fusions:
        matches, misses = _find_rule(matcher, rule)
        rejections += _near_misses(misses, matches)
        by_nodes = {m.nodes: m for m in matches}
        for nodes in dict.fromkeys([*by_nodes, *_groups(matcher, rule)]):
            try:
                region = make_region(index, nodes, rule.name, rule.kernel, rule.opt_level)
            except Unsupported as e:
                rejections.append(_rejection(rule.name, index, nodes, e))
            else:
                region = _in_rule_order(region, by_nodes[nodes]) if nodes in by_nodes else region
                regions[rule.name, frozenset(region.nodes)] = region
    ordered = sorted(regions.values(), key=lambda r: (index.position[r.nodes[0]], r.rule))
    return MatchResult(tuple(ordered), counts, tuple(rejections))


def _find_rule(matcher: Matcher, rule: Rule) -> tuple[list[Match], list[Miss]]:
    found: dict[frozenset[ir.Node], Match] = {}
    misses: list[Miss] = []
    for pattern in rule.patterns:
        matches, missed = matcher.find(pattern)
        for match in matches:
            found.setdefault(match.nodes, match)
        misses += missed
    return list(found.values()), misses


def _groups(matcher: Matcher, rule: Rule) -> list[frozenset[ir.Node]]:
    """Regions of rules that are nothing but one growing pattern."""

    def lone(pattern: Pattern) -> bool:
        return len(pattern.calls) == 1 and pattern.calls[0].is_growing

    return [g for p in rule.patterns if lone(p) for g in matcher.grower.groups(p.calls[0])]


def _in_rule_order(region: Region, match: Match) -> Region:
    """Number a region's inputs and outputs as the rule's header does, so that a template written for the rule can
    rely on it; values that the header does not name follow."""
    inputs = [v for v in match.inputs if v in region.inputs]
    outputs = [v for v in match.outputs if v in region.outputs]
    return replace(
        region,
        inputs=tuple(dict.fromkeys([*inputs, *region.inputs])),
        outputs=tuple(dict.fromkeys([*outputs, *region.outputs])),
    )


def _is_part(match: Match, rule: Rule, idioms: Idioms) -> bool:
    return any(match.nodes <= other.nodes for name in rule.unless for other in idioms.by_name.get(name, ()))


def _disjoint(matches: list[Match]) -> list[Match]:
    """The largest matches that share no node."""
    taken: set[ir.Node] = set()
    chosen = []
    for match in sorted(matches, key=lambda m: -len(m.nodes)):
        if not match.nodes & taken:
            taken |= match.nodes
            chosen.append(match)
    return chosen


def _near_misses(misses: list[Miss], matches: list[Match]) -> list[Rejection]:
    """The furthest attempts at places the rule did not match after all."""
    matched = frozenset().union(*(m.nodes for m in matches)) if matches else frozenset()
    furthest: dict[ir.Node, Miss] = {}
    for miss in misses:
        if miss.progress >= LEAST_PROGRESS and miss.node not in matched:
            known = furthest.get(miss.node)
            if known is None or miss.progress > known.progress:
                furthest[miss.node] = miss
    ranked = sorted(furthest.values(), key=lambda m: -m.progress)[:MISSES_PER_RULE]
    return [
        Rejection(m.rule, _name(m.node), "match", m.code, m.expected, m.found, progress=round(m.progress, 3))
        for m in ranked
    ]


def _rejection(rule: str, index: GraphIndex, nodes: frozenset[ir.Node], reason: Unsupported) -> Rejection:
    last = max(nodes, key=index.position.__getitem__)
    return Rejection(rule, _name(last), "match", reason.code, reason.expected, reason.found, progress=1.0)


def _name(node: ir.Node) -> str:
    return node.name or f"{node.op_type}->{node.outputs[0].name}"
