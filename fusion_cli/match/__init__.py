"""Find what the rules describe: idioms (what a piece of the graph means) and regions (what is worth one operator)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

import onnx_ir as ir

from fusion_cli import collector
from fusion_cli.codes.match import HINTS
from fusion_cli.errors import Unsupported
from fusion_cli.explain.near_misses import Teller
from fusion_cli.graph.index import GraphIndex
from fusion_cli.language.pattern import Rule, RuleSet
from fusion_cli.language.rule_files import load_rules, parse_rules
from fusion_cli.match import borders
from fusion_cli.match.engine import Matcher
from fusion_cli.match.found import Idioms, Match, Miss
from fusion_cli.match.make_region import make_region
from fusion_cli.match.misses import Misses
from fusion_cli.match.roles import attentions_in
from fusion_cli.match.values import ValueIdioms
from fusion_cli.types import Region, Rejection, label

__all__ = ["MatchResult", "Rule", "RuleSet", "find_regions", "load_rules", "parse_rules"]


@dataclass(frozen=True, eq=False)
class MatchResult:
    """Regions in graph order, idioms recognised (count by name, readings of one result counted once), near misses."""

    regions: tuple[Region, ...]
    idioms: Mapping[str, int]
    rejections: tuple[Rejection, ...]
    concerned: frozenset[ir.Node] = frozenset()
    """Every node that is part of a region or of a rejection, at each of its places."""
    meanings: Mapping[ir.Node, tuple[str, ...]] = field(default_factory=dict)
    """What the nodes that were watched are part of: the idioms."""


@collector.paused()
def find_regions(
    model: ir.Model, rules: RuleSet, watch: Collection[ir.Node] = (), asked: str | None = None
) -> MatchResult:
    """All regions that some fusion rule describes, in the main graph and in the bodies of control flow; they may
    overlap, and none crosses the border of a body.

    Of the near misses a few of each kind and graph are kept, and all those that concern a node of `watch`; of the
    rule `asked` about, and of what it is written with, fainter ones too.
    """
    parts = _written_with(asked, rules)
    found = [_find_in(graph, rules, watch, parts) for graph in (model.graph, *model.graph.subgraphs())]
    counts: Counter[str] = Counter()
    for result in found:
        counts.update(result.idioms)
    regions = tuple(region for result in found for region in result.regions)
    rejections = tuple(r for result in found for r in result.rejections)
    concerned = frozenset().union(*(result.concerned for result in found))
    meanings = {node: names for result in found for node, names in result.meanings.items()}
    return MatchResult(regions, counts, rejections, concerned, meanings)


def _written_with(name: str | None, rules: RuleSet) -> frozenset[str]:
    """The rule and the idioms it is written with, directly or through others."""
    found: set[str] = set()
    waiting = [name] if name is not None else []
    while waiting:
        rule = rules.find(waiting.pop())
        if rule is not None and rule.name not in found:
            found.add(rule.name)
            waiting += sorted(set().union(*(p.references for p in rule.patterns)))
    return frozenset(found)


def _find_in(graph: ir.Graph, rules: RuleSet, watch: Collection[ir.Node], asked: Collection[str]) -> MatchResult:
    matcher = Matcher(GraphIndex(graph), Idioms())
    near = Misses(matcher, watch, asked)
    counts = _find_idioms(matcher, rules, near)
    regions: list[Region] = []
    rejections: list[Rejection] = []
    concerned: set[ir.Node] = set()
    for rule in rules.fusions:
        proposed = _proposals(matcher, rule, near)
        found, failed = _regions(matcher, rule, proposed)
        regions += found
        rejections += failed
        concerned.update(*proposed)
    position = matcher.index.position
    regions.sort(key=lambda r: (position[r.nodes[0]], r.rule))
    missed, told = Teller(near, rules, matcher.idioms).rejections()
    counted = [r.name for r in rules.idioms if r.counted]
    meanings = {n: matcher.idioms.meanings(n, counted) for n in watch if n in position}
    return MatchResult(tuple(regions), counts, (*missed, *rejections), frozenset(concerned | told), meanings)


def _find_idioms(matcher: Matcher, rules: RuleSet, near: Misses) -> Mapping[str, int]:
    """Add the idioms to the matcher's, in an order in which each comes after those it refers to. Returns how many there
    are of those that count."""
    by_value = ValueIdioms(matcher.index, [r for r in rules.idioms if r.by_value])
    counts: dict[str, int] = {}
    for rule in rules.idioms:
        matches, misses = by_value.find(rule) if rule.by_value else _find_rule(matcher, rule)
        matches = _not_parts(matches, rule, matcher.idioms)
        matcher.idioms.add(rule.name, matches)
        if matches and rule.counted:
            counts[rule.name] = len(_instances(matches))
        for miss in near.add(rule, misses, matches):
            matcher.idioms.add_nearly(rule.name, miss)
    return counts


def _proposals(matcher: Matcher, rule: Rule, near: Misses) -> Mapping[frozenset[ir.Node], Match | None]:
    """What a fusion would take as one: sets of nodes, each with the match it comes from, if it was not grown."""
    matches, misses = _find_rule(matcher, rule)
    groups, at_borders = _grown(matcher, rule)
    near.add(rule, [*misses, *at_borders], matches)
    found: dict[frozenset[ir.Node], Match | None] = {m.nodes: m for m in matches}
    return found | {nodes: None for nodes in groups if nodes not in found}


def _regions(
    matcher: Matcher, rule: Rule, proposed: Mapping[frozenset[ir.Node], Match | None]
) -> tuple[Iterable[Region], list[Rejection]]:
    """The regions that these sets of nodes are, each once, and why others are none."""
    regions: dict[tuple[ir.Node, ...], Region] = {}
    rejections: list[Rejection] = []
    for nodes, match in proposed.items():
        try:
            region = make_region(matcher.index, nodes, rule.name, rule.kernel, rule.opt_level)
        except Unsupported as e:
            rejections.append(_rejection(rule, matcher.index, nodes, e))
        else:
            region = replace(region, attentions=attentions_in(matcher.idioms, region.nodes))
            regions[region.nodes] = region if match is None else _in_rule_order(region, match)
    return regions.values(), rejections


def _find_rule(matcher: Matcher, rule: Rule) -> tuple[list[Match], list[Miss]]:
    found: dict[object, Match] = {}
    misses: list[Miss] = []
    for pattern in rule.patterns:
        matches, missed = matcher.find(pattern)
        for match in matches:
            # The same nodes may be read in two ways: either half of a value can be the gate, either factor the values.
            found.setdefault((match.nodes, match.inputs, match.outputs), match)
        misses += missed
    return list(found.values()), misses


def _grown(matcher: Matcher, rule: Rule) -> tuple[list[frozenset[ir.Node]], list[Miss]]:
    """Regions of rules that are nothing but one growing pattern, and what nearly belongs to one."""
    groups: list[frozenset[ir.Node]] = []
    misses: list[Miss] = []
    for pattern in rule.patterns:
        if len(pattern.calls) == 1 and pattern.calls[0].is_growing:
            found = matcher.grower.groups(pattern.calls[0])
            groups += found
            misses += borders.misses(matcher.grower.members, pattern, found)
    return groups, misses


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


def _not_parts(matches: list[Match], rule: Rule, idioms: Idioms) -> list[Match]:
    """Those that do not lie within a larger match of an idiom that the rule names after `unless`."""
    larger: dict[ir.Node, list[frozenset[ir.Node]]] = defaultdict(list)
    for other in (m for name in rule.unless for m in idioms.by_name.get(name, ())):
        for node in other.nodes:
            larger[node].append(other.nodes)
    if not larger:
        return matches

    def around(match: Match) -> list[frozenset[ir.Node]]:
        return min((larger.get(n, []) for n in match.nodes), key=len)

    return [m for m in matches if not any(m.nodes < nodes for nodes in around(m))]


def _instances(matches: list[Match]) -> list[Match]:
    """The largest matches whose result is not inside another: readings of one instance count once, and two instances
    may share what they are computed from."""
    taken: set[ir.Node | None] = set()
    chosen = []
    for match in sorted(matches, key=lambda m: -len(m.nodes)):
        if not all(value.producer() in taken for value in match.outputs):
            taken |= match.nodes
            chosen.append(match)
    return chosen


def _rejection(rule: Rule, index: GraphIndex, nodes: frozenset[ir.Node], reason: Unsupported) -> Rejection:
    names = tuple(label(n) for n in sorted(nodes, key=index.position.__getitem__))
    hint = reason.hint or HINTS.get(reason.code, "")
    return Rejection(
        rule.name,
        names[-1],
        "match",
        reason.code,
        reason.expected,
        reason.found,
        hint,
        progress=1.0,
        source=f"{rule.source}:{rule.patterns[0].line}",
        nodes=names,
        matched=len(names),
    )
