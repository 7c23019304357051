"""Find what the rules describe: idioms (what a piece of the graph means) and regions (what is worth one operator)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import onnx_ir as ir

from fusion_cli import collector
from fusion_cli.graph.index import GraphIndex
from fusion_cli.language.pattern import Rule, RuleSet
from fusion_cli.language.rule_files import load_rules, parse_rules
from fusion_cli.match import borders
from fusion_cli.match.choices import Choices
from fusion_cli.match.engine import find
from fusion_cli.match.found import Idioms, Match, Miss
from fusion_cli.match.left_over import left_over
from fusion_cli.match.make_region import make_region
from fusion_cli.match.misses import Misses
from fusion_cli.match.roles import attention_ends, attentions_in
from fusion_cli.match.stops import NoRegion
from fusion_cli.match.values import find_by_value
from fusion_cli.types import Region

__all__ = ["GraphMatches", "MatchResult", "NoRegion", "Rule", "RuleSet", "find_regions", "load_rules", "parse_rules"]

NotRegion = tuple[Rule, frozenset[ir.Node], NoRegion]
"""Nodes that a rule matched wholly, and why they are no region."""


@dataclass(frozen=True, eq=False)
class GraphMatches:
    """What the rules found in one graph, the main one or a body, and what they nearly found."""

    index: GraphIndex
    regions: Sequence[Region]
    counts: Mapping[str, int]
    """How many there are of each idiom that counts, readings of one result counted once."""
    idioms: Idioms
    misses: Misses
    not_regions: Sequence[NotRegion]


@dataclass(frozen=True, eq=False)
class MatchResult:
    """What these rules found in a model. (What they nearly found: explain/near_misses.py.)"""

    rules: RuleSet
    graphs: Sequence[GraphMatches]

    @cached_property
    def regions(self) -> tuple[Region, ...]:
        """The regions of each graph, in its order."""
        return tuple(region for graph in self.graphs for region in graph.regions)

    @cached_property
    def idioms(self) -> Mapping[str, int]:
        """The idioms recognised, by name."""
        return sum((Counter(graph.counts) for graph in self.graphs), Counter())

    def meanings(self, node: ir.Node) -> tuple[str, ...]:
        """The idioms that the node is part of."""
        return tuple(n for g in self.graphs if node in g.index.position for n in g.idioms.meanings(node, g.counts))


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
    return MatchResult(rules, [_find_in(g, rules, watch, parts) for g in (model.graph, *model.graph.subgraphs())])


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


def _find_in(graph: ir.Graph, rules: RuleSet, watch: Collection[ir.Node], asked: Collection[str]) -> GraphMatches:
    index = GraphIndex(graph)
    choices = Choices(index, Idioms())
    misses = Misses(choices, watch, asked)
    counts = _find_idioms(choices, rules, misses)
    regions: list[Region] = []
    not_regions: list[NotRegion] = []
    for rule in rules.fusions:
        found, failed = _regions(index, rule, _proposals(choices, rule, misses), choices.idioms)
        regions += found
        not_regions += failed
    for rule in rules.fusions:
        regions += _regions(index, rule, dict.fromkeys(left_over(choices.grower, rule, regions)), choices.idioms)[0]
    regions.sort(key=lambda r: (index.position[r.nodes[0]], r.rule))
    return GraphMatches(index, regions, counts, choices.idioms, misses, not_regions)


def _find_idioms(choices: Choices, rules: RuleSet, near: Misses) -> Mapping[str, int]:
    """Add the idioms to `choices`, each after those it refers to. Returns how many there are of those that count."""
    by_value = find_by_value(choices.index, [r for r in rules.idioms if r.by_value])
    counts: dict[str, int] = {}
    for rule in rules.idioms:
        matches, misses = by_value[rule.name] if rule.by_value else _find_rule(choices, rule)
        matches = _not_parts(matches, rule, choices.idioms)
        choices.idioms.add(rule.name, matches)
        if matches and rule.counted:
            counts[rule.name] = len(_instances(matches))
        for miss in near.add(rule, misses, matches):
            choices.idioms.add_nearly(rule.name, miss)
    return counts


def _proposals(choices: Choices, rule: Rule, near: Misses) -> Mapping[frozenset[ir.Node], Match | None]:
    """What a fusion would take as one: sets of nodes, each with the match it comes from, if it was not grown."""
    matches, misses = _find_rule(choices, rule)
    groups, at_borders = _grown(choices, rule)
    near.add(rule, [*misses, *at_borders], matches)
    found: dict[frozenset[ir.Node], Match | None] = {m.nodes: m for m in matches}
    return found | {nodes: None for nodes in groups if nodes not in found}


def _regions(
    index: GraphIndex, rule: Rule, proposed: Mapping[frozenset[ir.Node], Match | None], idioms: Idioms
) -> tuple[Iterable[Region], list[NotRegion]]:
    """The regions that these sets of nodes are, each once, and why others are none."""
    regions: dict[tuple[ir.Node, ...], Region] = {}
    failed: list[NotRegion] = []
    ends = attention_ends(idioms)
    for nodes, match in proposed.items():
        try:
            region = make_region(index, nodes, rule.name, rule.kernel, rule.opt_level)
        except NoRegion as reason:
            # Without the frames it was raised through: they hold every match, in a circle.
            failed.append((rule, nodes, reason.with_traceback(None)))
        else:
            if not ends.isdisjoint(region.nodes):
                region = replace(region, attentions=attentions_in(idioms, region.nodes))
            if rule.channels_last:
                region = replace(region, channels_last=True)
            regions[region.nodes] = region if match is None else _in_rule_order(region, match)
    return regions.values(), failed


def _find_rule(choices: Choices, rule: Rule) -> tuple[list[Match], list[Miss]]:
    found: dict[object, Match] = {}
    misses: list[Miss] = []
    for pattern in rule.patterns:
        matches, missed = find(choices, pattern)
        for match in matches:
            # The same nodes may be read in two ways: either half of a value can be the gate, either factor the values.
            found.setdefault((match.nodes, match.inputs, match.outputs), match)
        misses += missed
    return list(found.values()), misses


def _grown(choices: Choices, rule: Rule) -> tuple[list[frozenset[ir.Node]], list[Miss]]:
    """Regions of rules that are nothing but one growing pattern, and what nearly belongs to one."""
    groups: list[frozenset[ir.Node]] = []
    misses: list[Miss] = []
    for pattern in rule.patterns:
        if len(pattern.calls) == 1 and pattern.calls[0].is_growing:
            found = choices.grower.groups(pattern.calls[0])
            groups += found
            misses += borders.misses(choices.grower.members, pattern, found)
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
