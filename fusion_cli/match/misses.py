"""Which misses are kept while rules are matched: the furthest per place, of each kind a place, few per rule."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from fusion_cli.codes.match import DIFFERENT, MISSING, SIZES
from fusion_cli.graph.index import GraphIndex
from fusion_cli.language.pattern import Call, Pattern, Rule
from fusion_cli.match.choices import Choices
from fusion_cli.match.found import Match, Miss
from fusion_cli.match.stops import closeness, short

KINDS_PER_RULE = 20
"""Misses of a rule that differ in more than their place; the nearest are kept."""
LEAST_PROGRESS = 0.5
"""Attempts that ended earlier than this are not near misses: every Add starts a dozen rules."""
FAINT_PROGRESS = 0.3
"""The same where a rule or a node is asked about."""
LEAST_NODES = 2
"""Nodes that any two operators side by side make; a part of rules that matched no more says nothing."""
_SMALL_MODEL = 64
"""In models of fewer nodes everything is rare."""


@dataclass
class Kind:
    """Misses of one rule that differ in their place only: the first, how many, all their nodes, and those at watched
    nodes."""

    first: Miss
    places: int = 0
    nodes: set[ir.Node] = field(default_factory=set)
    watched: list[Miss] = field(default_factory=list)


class Misses:
    """The nearest misses of all rules; those that touch a `watch` node are all kept, and of rules `asked` about fainter
    ones too."""

    def __init__(self, choices: Choices, watch: Collection[ir.Node] = (), asked: Collection[str] = ()) -> None:
        self.index = choices.index
        self.choices = choices
        self.watch = frozenset(watch)
        self.asked = frozenset(asked)
        self.kinds: dict[str, list[Kind]] = {}
        """By rule, the nearest first."""
        self._weights: dict[Pattern, Mapping[int, float]] = {}

    def add(self, rule: Rule, misses: Sequence[Miss], matches: Sequence[Match]) -> list[Miss]:
        """Keep the furthest attempt per place that the rule did not match after all, a place of each kind. Returns all
        those places."""
        if not misses:
            return []
        furthest = self._furthest(rule, misses, matches)
        kinds: dict[object, Kind] = {}
        places: set[tuple[object, frozenset[ir.Node]]] = set()
        for miss in furthest:
            key = _kind(miss)
            kind = kinds.setdefault(key, Kind(miss))
            if (key, miss.nodes) not in places:
                places.add((key, miss.nodes))
                kind.places += 1
                covered = covered_by(miss, self.index)
                kind.nodes |= covered
                if not self.watch.isdisjoint(covered):
                    kind.watched.append(miss)
        ranked = sorted(kinds.values(), key=lambda k: self._rank(k.first), reverse=True)
        self.kinds[rule.name] = ranked[:KINDS_PER_RULE] + [k for k in ranked[KINDS_PER_RULE:] if k.watched]
        return furthest

    def _furthest(self, rule: Rule, misses: Iterable[Miss], matches: Sequence[Match]) -> list[Miss]:
        matched = frozenset().union(*(m.nodes for m in matches))
        furthest: dict[ir.Node, Miss] = {}
        for miss in misses:
            if miss.anchor in matched or miss.nodes <= matched or not self._is_near(rule, miss):
                continue
            known = furthest.get(miss.anchor)
            if known is None or self._rank(miss) > self._rank(known):
                furthest[miss.anchor] = miss
        # Where one overload lacks one thing, how far the others come is beside the point.
        whole = frozenset().union(*(m.nodes for m in furthest.values() if m.match is not None))
        return [m for m in furthest.values() if m.match is not None or m.nodes.isdisjoint(whole)]

    def progress(self, miss: Miss) -> float:
        """How much of the rule held: lines and conditions, lines by how much they say. An Add is everywhere, and what
        is nowhere in the model says most; growing regions match nearly anything."""
        if miss.nearness:
            return miss.nearness
        if miss.pattern not in self._weights:
            self._weights[miss.pattern] = {c.index: self._weight(c) for c in miss.pattern.calls}
        weights = self._weights[miss.pattern]
        total = sum(weights.values()) + len(miss.pattern.where)
        return (sum(weights[i] for i in miss.calls) + miss.held) / total if total else 0.0

    def _weight(self, call: Call) -> float:
        nodes = max(len(self.index.nodes), _SMALL_MODEL)
        return 0.0 if call.is_growing else math.log2(1 + nodes / (1 + self.choices.count(call)))

    def _is_near(self, rule: Rule, miss: Miss) -> bool:
        """Whether the rule can be said to have been meant. Where nothing but whole idioms matched, each is understood
        for itself; where an idiom is missing, that idiom's own miss says so."""
        if miss.pattern.rule in self.asked:
            return miss.match is not None or (_is_of_numbers(miss) and self.progress(miss) > FAINT_PROGRESS)
        stop, watched = miss.stop, not self.watch.isdisjoint(miss.nodes)
        if stop.is_meant_otherwise(self.index):
            return False
        if rule.kind == "idiom" and stop.is_of_other_sizes(self.index):
            return False
        if miss.match is not None:
            return True
        # What sizes stop could be all there: the search went no further.
        is_faint = (watched and stop.code != MISSING) or stop.code == SIZES
        if not miss.nodes or self.progress(miss) <= (FAINT_PROGRESS if is_faint else LEAST_PROGRESS):
            return False
        if stop.is_about_growth:
            return watched
        if stop.code == MISSING or (stop.code == DIFFERENT and stop.call is not None and not stop.call.is_pattern):
            own = any(not miss.pattern.calls[i].is_pattern for i in miss.calls)
            return own and (not watched or len(miss.nodes) >= LEAST_NODES)
        return True

    def _rank(self, miss: Miss) -> tuple[bool, float, int, int]:
        """What lacks one thing that is known is nearer than what may lack more."""
        is_whole = miss.match is not None
        return is_whole, self.progress(miss), closeness(miss.stop.code, miss.stop.value), len(miss.nodes)


def _is_of_numbers(miss: Miss) -> bool:
    """Whether what matched computes with numbers, not with indices and sizes alone."""
    return any(v.dtype is None or v.dtype.is_floating_point() for n in miss.nodes for v in n.outputs)


def _kind(miss: Miss) -> object:
    """What misses have in common that differ only in their place."""
    stop = miss.stop
    operators = tuple(sorted(n.op_type for n in miss.nodes))
    node = stop.node.op_type if stop.node is not None else ""
    return stop.pattern.rule, stop.line, stop.code, stop.name, short(stop.found), stop.condition, node, operators


def covered_by(miss: Miss, index: GraphIndex) -> frozenset[ir.Node]:
    """What the rule would have taken, as far as that can be known: what had matched, and the node that did not."""
    stop = miss.stop
    found = miss.nodes | {place_of(miss, index)}
    lacks_consumer = stop.code == MISSING and stop.call is not None and stop.name in stop.call.inputs
    if miss.match is None and lacks_consumer and stop.value is not None:
        found |= frozenset(index.readers(stop.value)[:1])
    return found


def place_of(miss: Miss, index: GraphIndex) -> ir.Node:
    """The node that is not what the rule expects, or the last one before it."""
    if miss.stop.node is not None and miss.stop.node in index.position:
        return miss.stop.node
    return index.producer(miss.stop.value) or miss.anchor
