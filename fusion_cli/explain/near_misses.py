"""Near misses as rejections: those that say something, in words, and with what is understood otherwise."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace

import onnx_ir as ir

from fusion_cli import collector
from fusion_cli.codes.match import MISSING
from fusion_cli.explain.words import Words, in_words, why_no_region
from fusion_cli.language.pattern import Rule, RuleSet
from fusion_cli.match import GraphMatches, MatchResult
from fusion_cli.match.found import Idioms, Match, Miss
from fusion_cli.match.misses import LEAST_NODES, covered_by, place_of
from fusion_cli.operators.registry import ARRANGING
from fusion_cli.types import Rejection, label


@dataclass(frozen=True)
class NearMisses:
    """Why rules that came near found nothing, and every node that a region or such a rejection concerns, at each of
    its places."""

    rejections: tuple[Rejection, ...]
    concerned: frozenset[ir.Node]


@collector.paused()
def near_misses(found: MatchResult) -> NearMisses:
    """What the rules nearly found: a few misses of each kind and graph, and all at nodes that were watched."""
    diagnoses = [_Diagnosis(graph, found.rules) for graph in found.graphs]
    rejections = tuple(r for d in diagnoses for r in (*d.misses(), *d.not_regions()))
    return NearMisses(rejections, frozenset().union(*(d.concerned for d in diagnoses)))


class _Diagnosis:
    """The near misses of one graph. A miss of a mere part of others is theirs, and one that is understood as another
    idiom is none."""

    def __init__(self, graph: GraphMatches, rules: RuleSet) -> None:
        self.graph = graph
        self.near = graph.misses
        self.index = graph.index
        self.rules = (*rules.idioms, *rules.fusions)
        self.sources = {r.name: r.source for r in self.rules}
        self.users = rules.users
        self.meanings = _Meanings(rules, graph.idioms)
        self.concerned = {n for r in graph.regions for n in r.nodes}

    def misses(self) -> Iterator[Rejection]:
        """Every miss that says something."""
        for rule in self.rules:
            for kind in self.near.kinds.get(rule.name, ()):
                for miss, places in [(m, 1) for m in kind.watched] or [(kind.first, kind.places)]:
                    if self._says_something(rule, miss, bool(kind.watched)):
                        self.concerned |= kind.nodes
                        yield self._rejection(rule, miss, places)

    def not_regions(self) -> Iterator[Rejection]:
        """Every set of nodes that a rule matched wholly and that is no region."""
        for rule, nodes, reason in self.graph.not_regions:
            self.concerned |= nodes
            words = why_no_region(reason, self.index)
            names = self._names(nodes)
            yield Rejection(
                rule.name,
                names[-1],
                "match",
                reason.code,
                words.expected,
                words.found,
                words.hint,
                progress=1.0,
                source=f"{rule.source}:{rule.patterns[0].line}",
                nodes=names,
                matched=len(names),
            )

    def _names(self, nodes: Iterable[ir.Node]) -> tuple[str, ...]:
        return tuple(label(n) for n in sorted(nodes, key=self.index.position.__getitem__))

    def _says_something(self, rule: Rule, miss: Miss, watched: bool) -> bool:
        if rule.name in self.near.asked:
            return True
        call = miss.stop.call
        if miss.stop.code == MISSING and call is not None and call.is_pattern and not call.is_growing:
            return self._inner(miss) is not None
        if rule.kind == "fusion" or rule.counted:
            return True
        if len(miss.nodes) < LEAST_NODES + (not watched) or all(n.op_type in ARRANGING for n in miss.nodes):
            return False
        # What is written with this part is named instead where this would have been all there.
        return watched or miss.stop.pattern.rule == rule.name

    def _rejection(self, rule: Rule, miss: Miss, places: int) -> Rejection:
        words = self._because(miss, in_words(miss.stop, self.index))
        nodes, wider = covered_by(miss, self.index), self.users.get(rule.name, ())
        meaning = self.meanings.of(nodes, rule.name) or self.meanings.part_of(miss.nodes, wider)
        return Rejection(
            rule.name,
            label(place_of(miss, self.index)),
            "match",
            miss.stop.code,
            words.expected,
            words.found,
            words.hint,
            progress=round(self.near.progress(miss), 3),
            held=len(miss.calls) + miss.held,
            lines=0 if rule.by_value else len(miss.pattern.calls) + len(miss.pattern.where),
            source=f"{self.sources[miss.stop.pattern.rule]}:{miss.stop.line}",
            nodes=self._names(nodes),
            matched=len(miss.nodes),
            places=places,
            part_of=() if rule.counted else wider,
            covered_by="" if rule.kind == "fusion" else meaning,
        )

    def _because(self, miss: Miss, words: Words) -> Words:
        """Where an idiom was missing: what stopped the idiom there, as the hint."""
        inner = self._inner(miss)
        if words.hint or inner is None:
            return words
        cause = in_words(inner.stop, self.index)
        place = label(place_of(inner, self.index))
        hint = f"{inner.pattern.rule} stops at {place}: expected {cause.expected}, found {cause.found}"
        return replace(words, hint=f"{hint}; {cause.hint}" if cause.hint else hint)

    def _inner(self, miss: Miss) -> Miss | None:
        """The near miss of the idiom that the rule lacks, at the place where it lacks it."""
        call = miss.stop.call
        if miss.stop.code != MISSING or call is None or not call.is_pattern:
            return None
        place = {
            place_of(miss, self.index),
            *(self.index.readers(miss.stop.value) if miss.stop.value is not None else ()),
        }
        for kind in self.near.kinds.get(call.op, ()):
            for inner in (kind.first, *kind.watched):
                if place & inner.nodes or place_of(inner, self.index) in place:
                    return inner
        return None


class _Meanings:
    """Which counted idioms took which nodes."""

    def __init__(self, rules: RuleSet, idioms: Idioms) -> None:
        self.by_node: dict[ir.Node, list[Match]] = defaultdict(list)
        for match in (m for r in rules.idioms if r.counted for m in idioms.by_name.get(r.name, ())):
            for node in match.nodes:
                self.by_node[node].append(match)

    def of(self, nodes: frozenset[ir.Node], rule: str) -> str:
        """An idiom other than `rule` that takes all these nodes for itself; "" if there is none."""
        readings = self.by_node.get(next(iter(nodes)), ()) if nodes else ()
        return next((m.pattern.rule for m in readings if m.pattern.rule != rule and nodes <= m.nodes), "")

    def part_of(self, nodes: Iterable[ir.Node], users: Collection[str]) -> str:
        """The one of `users` that took one of the nodes all the same."""
        readings = (m.pattern.rule for n in nodes for m in self.by_node.get(n, ()))
        return next((rule for rule in readings if rule in users), "")
