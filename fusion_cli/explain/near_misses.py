"""The misses that are worth telling, as rejections: in words, and with what is understood otherwise."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import replace

import onnx_ir as ir

from fusion_cli.explain.words import MISSING, Words, explain, line_of
from fusion_cli.language.pattern import Rule, RuleSet
from fusion_cli.match.found import Idioms, Match, Miss
from fusion_cli.match.misses import LEAST_NODES, Misses, covered_by, place_of
from fusion_cli.operators.registry import ARRANGING
from fusion_cli.types import Rejection, label


class Teller:
    """Puts the misses of one graph in words, once all rules were matched. A miss of a mere part of others is theirs,
    and one that is understood as another idiom is none."""

    def __init__(self, misses: Misses, rules: RuleSet, idioms: Idioms) -> None:
        self.misses = misses
        self.index = misses.index
        self.rules = (*rules.idioms, *rules.fusions)
        self.sources = {r.name: r.source for r in self.rules}
        self.users = rules.users
        self.meanings = _Meanings(rules, idioms)

    def rejections(self) -> tuple[list[Rejection], set[ir.Node]]:
        """Every miss that is worth telling, and the nodes they concern, at each of their places."""
        found: list[Rejection] = []
        told: set[ir.Node] = set()
        for rule in self.rules:
            for kind in self.misses.kinds.get(rule.name, ()):
                for miss, places in [(m, 1) for m in kind.watched] or [(kind.first, kind.places)]:
                    if self._is_told(rule, miss, bool(kind.watched)):
                        told |= kind.nodes
                        found.append(self._rejection(rule, miss, places))
        return found, told

    def _is_told(self, rule: Rule, miss: Miss, watched: bool) -> bool:
        if rule.name in self.misses.asked:
            return True
        call = miss.stop.call
        if miss.stop.code == MISSING and call is not None and call.is_pattern and not call.is_growing:
            return self._inner(miss) is not None
        if rule.kind == "fusion" or rule.counted:
            return True
        # What is written with this part is told of instead where this would have been all there.
        least = LEAST_NODES if watched else LEAST_NODES + 1
        says_something = len(miss.nodes) >= least and any(n.op_type not in ARRANGING for n in miss.nodes)
        return says_something and (watched or miss.stop.pattern.rule == rule.name)

    def _rejection(self, rule: Rule, miss: Miss, places: int) -> Rejection:
        words = self._because(miss, explain(miss.stop, self.index))
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
            progress=round(self.misses.progress(miss), 3),
            held=len(miss.calls) + miss.held,
            lines=0 if rule.by_value else len(miss.pattern.calls) + len(miss.pattern.where),
            source=f"{self.sources[miss.stop.pattern.rule]}:{line_of(miss.stop)}",
            nodes=tuple(label(n) for n in sorted(nodes, key=self.index.position.__getitem__)),
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
        told = explain(inner.stop, self.index)
        place = label(place_of(inner, self.index))
        hint = f"{inner.pattern.rule} stops at {place}: expected {told.expected}, found {told.found}"
        return replace(words, hint=f"{hint}; {told.hint}" if told.hint else hint)

    def _inner(self, miss: Miss) -> Miss | None:
        """The near miss of the idiom that the rule lacks, at the place where it lacks it."""
        call = miss.stop.call
        if miss.stop.code != MISSING or call is None or not call.is_pattern:
            return None
        place = {
            place_of(miss, self.index),
            *(self.index.readers(miss.stop.value) if miss.stop.value is not None else ()),
        }
        for kind in self.misses.kinds.get(call.op, ()):
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
