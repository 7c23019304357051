"""Which misses are worth telling: kept few while rules are matched, and turned into rejections at the end."""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from fusion_cli.match.engine import Matcher
from fusion_cli.match.found import Idioms, Match, Miss
from fusion_cli.match.operators import ARRANGING
from fusion_cli.match.pattern import Call, Rule, RuleSet
from fusion_cli.match.reasons import DIFFERENT, MISSING, Words, explain, is_meant_otherwise, is_of_other_sizes, line_of
from fusion_cli.types import Rejection, label

KINDS_PER_RULE = 20
"""Misses of a rule that differ in more than their place; the nearest are kept."""
LEAST_PROGRESS = 0.5
"""Attempts that ended earlier than this are not near misses: every Add starts a dozen rules."""
FAINT_PROGRESS = 0.3
"""The same where a rule or a node is asked about."""
_LEAST_NODES = 2
"""Nodes that any two operators side by side make; a part of rules that matched no more says nothing."""
_SMALL_MODEL = 64
"""In models of fewer nodes everything is rare."""


@dataclass
class _Kind:
    """Misses of one rule that differ in their place only: the first, how many, all their nodes, and those at watched
    nodes."""

    first: Miss
    places: int = 0
    nodes: set[ir.Node] = field(default_factory=set)
    watched: list[Miss] = field(default_factory=list)


class Misses:
    """The nearest misses of all rules; those that touch a `watch` node are all kept, and of rules `asked` about fainter
    ones too."""

    def __init__(self, matcher: Matcher, watch: Collection[ir.Node] = (), asked: Collection[str] = ()) -> None:
        self.index = matcher.index
        self.matcher = matcher
        self.sources: dict[str, str] = {}
        self.watch = frozenset(watch)
        self.asked = frozenset(asked)
        self._kinds: dict[str, list[_Kind]] = {}
        self.told: set[ir.Node] = set()
        """The nodes of all misses that `rejections` gave, at each of their places."""

    def add(self, rule: Rule, misses: Iterable[Miss], matches: Sequence[Match]) -> list[Miss]:
        """Keep the furthest attempt per place that the rule did not match after all, a place of each kind. Returns all
        those places."""
        matched = frozenset().union(*(m.nodes for m in matches)) if matches else frozenset()
        furthest: dict[ir.Node, Miss] = {}
        for miss in misses:
            if miss.anchor in matched or miss.nodes <= matched or not self._is_near(rule, miss):
                continue
            known = furthest.get(miss.anchor)
            if known is None or self._rank(miss) > self._rank(known):
                furthest[miss.anchor] = miss
        whole = frozenset().union(*(m.nodes for m in furthest.values() if m.match is not None))
        # Where one overload lacks one thing, how far the others come is beside the point.
        furthest = {n: m for n, m in furthest.items() if m.match is not None or m.nodes.isdisjoint(whole)}
        kinds: dict[object, _Kind] = {}
        places: set[tuple[object, frozenset[ir.Node]]] = set()
        for miss in furthest.values():
            key = _kind(miss)
            kind = kinds.setdefault(key, _Kind(miss))
            if (key, miss.nodes) in places:
                continue
            places.add((key, miss.nodes))
            kind.places += 1
            covered = self._covered(miss)
            kind.nodes |= covered
            if not self.watch.isdisjoint(covered):
                kind.watched.append(miss)
        ranked = sorted(kinds.values(), key=lambda k: self._rank(k.first), reverse=True)
        self._kinds[rule.name] = ranked[:KINDS_PER_RULE] + [k for k in ranked[KINDS_PER_RULE:] if k.watched]
        return list(furthest.values())

    def progress(self, miss: Miss) -> float:
        """How much of the rule held: lines and conditions, lines by how much they say. An Add is everywhere, and what
        is nowhere in the model says most; growing regions match nearly anything."""
        if miss.nearness:
            return miss.nearness
        weights = {c.index: self._weight(c) for c in miss.pattern.calls}
        total = sum(weights.values()) + len(miss.pattern.where)
        return (sum(weights[i] for i in miss.calls) + miss.held) / total if total else 0.0

    def _weight(self, call: Call) -> float:
        nodes = max(len(self.index.nodes), _SMALL_MODEL)
        return 0.0 if call.is_growing else math.log2(1 + nodes / (1 + self.matcher.count(call)))

    def _is_near(self, rule: Rule, miss: Miss) -> bool:
        """Whether the rule can be said to have been meant. Where nothing but whole idioms matched, each is understood
        for itself; where an idiom is missing, that idiom's own miss says so."""
        if miss.pattern.rule in self.asked:
            return miss.match is not None or (bool(miss.nodes) and self.progress(miss) > FAINT_PROGRESS)
        stop, watched = miss.stop, not self.watch.isdisjoint(miss.nodes)
        if is_meant_otherwise(stop, self.index):
            return False
        if rule.kind == "idiom" and is_of_other_sizes(stop, self.index):
            return False
        if miss.match is not None:
            return True
        is_faint = watched and stop.code != MISSING
        if not miss.nodes or self.progress(miss) <= (FAINT_PROGRESS if is_faint else LEAST_PROGRESS):
            return False
        if stop.is_about_growth:
            return watched
        if stop.code == MISSING or (stop.code == DIFFERENT and stop.call is not None and not stop.call.is_pattern):
            own = any(not miss.pattern.calls[i].is_pattern for i in miss.calls)
            return own and (not watched or len(miss.nodes) >= _LEAST_NODES)
        return True

    def _rank(self, miss: Miss) -> tuple[float, int, int]:
        return self.progress(miss), miss.stop.closeness, len(miss.nodes)

    def rejections(self, rules: RuleSet, idioms: Idioms) -> list[Rejection]:
        """Every miss that is kept, in words. A miss of a mere part of others is theirs, and one that is understood as
        another idiom is none."""
        self.sources = {r.name: r.source for r in (*rules.idioms, *rules.fusions)}
        users, meanings = _users(rules), _Meanings(rules, idioms)
        found: list[Rejection] = []
        for rule in (*rules.idioms, *rules.fusions):
            for kind in self._kinds.get(rule.name, ()):
                for miss, places in [(m, 1) for m in kind.watched] or [(kind.first, kind.places)]:
                    if self._is_told(rule, miss, bool(kind.watched)):
                        self.told |= kind.nodes
                        found.append(self._rejection(rule, miss, places, meanings, users))
        return found

    def _is_told(self, rule: Rule, miss: Miss, watched: bool) -> bool:
        if rule.name in self.asked:
            return True
        call = miss.stop.call
        if miss.stop.code == MISSING and call is not None and call.is_pattern and not call.is_growing:
            return self._inner(miss) is not None
        if rule.kind == "fusion" or rule.counted:
            return True
        # What is written with this part is told of instead where this would have been all there.
        least = _LEAST_NODES if watched else _LEAST_NODES + 1
        says_something = len(miss.nodes) >= least and any(n.op_type not in ARRANGING for n in miss.nodes)
        return says_something and (watched or miss.stop.pattern.rule == rule.name)

    def _rejection(
        self, rule: Rule, miss: Miss, places: int, meanings: _Meanings, users: dict[str, list[str]]
    ) -> Rejection:
        words = self._because(miss, explain(miss.stop, self.index))
        nodes, wider = self._covered(miss), tuple(users.get(rule.name, ()))
        return Rejection(
            rule.name,
            label(self._place(miss)),
            "match",
            miss.stop.code,
            words.expected,
            words.found,
            words.hint,
            progress=round(self.progress(miss), 3),
            held=len(miss.calls) + miss.held,
            lines=0 if rule.by_value else len(miss.pattern.calls) + len(miss.pattern.where),
            source=f"{self.sources[miss.stop.pattern.rule]}:{line_of(miss.stop)}",
            nodes=tuple(label(n) for n in sorted(nodes, key=self.index.position.__getitem__)),
            matched=len(miss.nodes),
            places=places,
            part_of=() if rule.counted else wider,
            covered_by=""
            if rule.kind == "fusion"
            else meanings.of(nodes, rule.name) or meanings.part_of(miss.nodes, wider),
        )

    def _because(self, miss: Miss, words: Words) -> Words:
        """Where an idiom was missing: what stopped the idiom there, as the hint."""
        inner = self._inner(miss)
        if words.hint or inner is None:
            return words
        told = explain(inner.stop, self.index)
        hint = (
            f"{inner.pattern.rule} stops at {label(self._place(inner))}: expected {told.expected}, found {told.found}"
        )
        return dataclasses.replace(words, hint=f"{hint}; {told.hint}" if told.hint else hint)

    def _inner(self, miss: Miss) -> Miss | None:
        """The near miss of the idiom that the rule lacks, at the place where it lacks it."""
        call = miss.stop.call
        if miss.stop.code != MISSING or call is None or not call.is_pattern:
            return None
        place = {self._place(miss), *(self.index.readers(miss.stop.value) if miss.stop.value is not None else ())}
        for kind in self._kinds.get(call.op, ()):
            for inner in (kind.first, *kind.watched):
                if place & inner.nodes or self._place(inner) in place:
                    return inner
        return None

    def _place(self, miss: Miss) -> ir.Node:
        """The node that is not what the rule expects, or the last one before it."""
        stop = miss.stop
        if stop.node is not None and stop.node in self.index.position:
            return stop.node
        producer = self.index.producer(stop.value)
        return producer if producer is not None else miss.anchor

    def _covered(self, miss: Miss) -> frozenset[ir.Node]:
        """What the rule would have taken, as far as that can be told: what had matched, and the node that did not."""
        found = miss.nodes | {self._place(miss)}
        stop = miss.stop
        if (
            miss.match is None
            and stop.code == MISSING
            and stop.call is not None
            and stop.value is not None
            and stop.name in stop.call.inputs
        ):
            found |= frozenset(self.index.readers(stop.value)[:1])
        return found


def _kind(miss: Miss) -> object:
    """What misses have in common that differ only in their place."""
    stop = miss.stop
    operators = tuple(sorted(n.op_type for n in miss.nodes))
    node = stop.node.op_type if stop.node is not None else ""
    return stop.pattern.rule, line_of(stop), stop.code, stop.name, stop.found, stop.condition, node, operators


def _users(rules: RuleSet) -> dict[str, list[str]]:
    """By rule: the idioms and fusions that are written with it, through mere parts too, nearest first."""
    direct: dict[str, list[Rule]] = defaultdict(list)
    for rule in (*rules.idioms, *rules.fusions):
        for name in sorted(set().union(*(p.references() for p in rule.patterns))):
            direct[name].append(rule)

    def named(name: str, seen: frozenset[str]) -> list[str]:
        found: list[str] = []
        for user in direct.get(name, ()):
            if user.counted:
                found.append(user.name)
            elif user.name not in seen:
                found += named(user.name, seen | {user.name})
        return list(dict.fromkeys(found))

    return {rule.name: named(rule.name, frozenset({rule.name})) for rule in rules.idioms}


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
