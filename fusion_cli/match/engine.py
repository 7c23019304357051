"""Find the patterns of rules in a graph: a search from each place that has a pattern's rarest operator.

A pattern names operators and idioms. Idioms found earlier take part as if they were operators: their inputs are the
values their parameters bound. Several readings of the same nodes coexist; nothing is rewritten while matching.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from fusion_cli.codes.match import MISSING
from fusion_cli.graph.index import GraphIndex
from fusion_cli.language.pattern import Call, Pattern
from fusion_cli.match.choices import Choices
from fusion_cli.match.found import Idioms, Match, Miss
from fusion_cli.match.search import Search
from fusion_cli.match.stops import PASSABLE, Stop

PROBES = 64
"""Places where a pattern is tried only to say how near it came, because its rarest operator is not there or wrong."""


class Matcher:
    """Finds patterns in one graph."""

    def __init__(self, index: GraphIndex, idioms: Idioms) -> None:
        self.index = index
        self.idioms = idioms
        self.choices = Choices(index, idioms)
        self.grower = self.choices.grower

    def find(self, pattern: Pattern) -> tuple[list[Match], list[Miss]]:
        """All matches of a pattern, one per set of nodes, and the nearest misses."""
        if not self._may_find(pattern):
            return [], []
        fixed = [c for c in pattern.calls if not c.is_growing]
        # Of equally rare ones the first in the text: every reading of the anchor is tried, of other calls the first.
        anchor, *others = sorted(fixed, key=self.count)
        found, misses, silent = self._from(pattern, anchor)
        if anchor.is_pattern:
            near = self.idioms.nearly.get(anchor.op, [])[:PROBES]
            tried = (Search(self.choices, pattern, lenient=True).around(anchor, m) for m in near)
            misses += [m for m in tried if m is not None]
        if others and (silent or not self.count(anchor)) and self.count(others[0]):
            # The anchor itself was wrong, so nothing says how close the rest came: ask the next rarest operator.
            misses += self._from(pattern, others[0], probing=True)[1]
        return found, misses

    def _may_find(self, pattern: Pattern) -> bool:
        """Whether the graph has anything of the pattern. Most of the bodies of control flow have nothing of most."""
        return not (
            pattern.operators.isdisjoint(self.index.by_op)
            and pattern.references.isdisjoint(self.idioms.places)
            and pattern.references.isdisjoint(self.idioms.nearly)
        )

    def _from(self, pattern: Pattern, anchor: Call, probing: bool = False) -> tuple[list[Match], list[Miss], bool]:
        """Matches and misses from one anchor, and whether some candidate failed before anything was matched."""
        found: dict[frozenset[ir.Node], Match] = {}
        misses: list[Miss] = []
        silent = False
        probes = PROBES
        for candidate in self.candidates(anchor)[: PROBES if probing else None]:
            search = Search(self.choices, pattern, probing=probing)
            matches = list(search.matches(anchor, candidate))
            found.update((m.nodes, m) for m in matches if m.nodes not in found)
            miss = search.miss
            if matches or miss is None:
                silent = silent or not matches
                continue
            if probes and self._may_be_all(miss.stop):
                probes -= 1
                miss = Search(self.choices, pattern, lenient=True).all_but_one(anchor, candidate) or miss
            misses.append(miss)
            silent = silent or not miss.calls or miss.stop.is_about_growth
        return list(found.values()), misses, silent

    def _may_be_all(self, stop: Stop) -> bool:
        """Whether a pattern could go on past the stop, as if it were met."""
        if stop.code == MISSING and stop.call is not None:
            return stop.call.is_pattern and stop.call.op in self.idioms.nearly
        return stop.code in PASSABLE

    def count(self, call: Call) -> int:
        """How many places of the model a call can stand for."""
        return self.idioms.places.get(call.op, 0) if call.is_pattern else len(self.candidates(call))

    def candidates(self, call: Call) -> Sequence[ir.Node | Match]:
        """Every place that a call can stand for; of an idiom, every reading."""
        if call.is_pattern:
            return self.idioms.by_name.get(call.op, ())
        return self.index.by_op.get((call.domain, call.op), ())
