"""Find the patterns of rules in a graph: a search from each place that has a pattern's rarest operator.

A pattern names operators and idioms. Idioms found earlier take part as if they were operators: their inputs are the
values their parameters bound. Several readings of the same nodes coexist; nothing is rewritten while matching.
"""

from __future__ import annotations

import onnx_ir as ir

from fusion_cli.codes.match import MISSING
from fusion_cli.language.pattern import Call, Pattern
from fusion_cli.match.choices import Choices
from fusion_cli.match.found import Match, Miss
from fusion_cli.match.search import Search
from fusion_cli.match.stops import PASSABLE, Stop

PROBES = 64
"""Places where a pattern is tried only to say how near it came, because its rarest operator is not there or wrong."""


def find(choices: Choices, pattern: Pattern) -> tuple[list[Match], list[Miss]]:
    """All matches of a pattern, one per set of nodes, and the nearest misses."""
    if not _may_find(choices, pattern):
        return [], []
    fixed = [c for c in pattern.calls if not c.is_growing]
    # Of equally rare ones the first in the text: every reading of the anchor is tried, of other calls the first.
    anchor, *others = sorted(fixed, key=choices.count)
    found, misses, silent = _from(choices, pattern, anchor)
    if anchor.is_pattern:
        near = choices.idioms.nearly.get(anchor.op, [])[:PROBES]
        tried = (Search(choices, pattern, lenient=True).around(anchor, m) for m in near)
        misses += [m for m in tried if m is not None]
    if others and (silent or not choices.count(anchor)) and choices.count(others[0]):
        # The anchor itself was wrong, so nothing says how close the rest came: ask the next rarest operator.
        misses += _from(choices, pattern, others[0], probing=True)[1]
    return found, misses


def _may_find(choices: Choices, pattern: Pattern) -> bool:
    """Whether the graph has anything of the pattern. Most of the bodies of control flow have nothing of most."""
    return not (
        pattern.operators.isdisjoint(choices.index.by_op)
        and pattern.references.isdisjoint(choices.idioms.places)
        and pattern.references.isdisjoint(choices.idioms.nearly)
    )


def _from(
    choices: Choices, pattern: Pattern, anchor: Call, probing: bool = False
) -> tuple[list[Match], list[Miss], bool]:
    """Matches and misses from one anchor, and whether some candidate failed before anything was matched."""
    found: dict[frozenset[ir.Node], Match] = {}
    misses: list[Miss] = []
    silent = False
    probes = PROBES
    for candidate in choices.all_of(anchor)[: PROBES if probing else None]:
        search = Search(choices, pattern, probing=probing)
        matches = list(search.matches(anchor, candidate))
        found.update((m.nodes, m) for m in matches if m.nodes not in found)
        miss = search.progress.miss
        if matches or miss is None:
            silent = silent or not matches
            continue
        if probes and _may_be_all(choices, miss.stop):
            probes -= 1
            miss = Search(choices, pattern, lenient=True).all_but_one(anchor, candidate) or miss
        misses.append(miss)
        silent = silent or not miss.calls or miss.stop.is_about_growth
    return list(found.values()), misses, silent


def _may_be_all(choices: Choices, stop: Stop) -> bool:
    """Whether a pattern could go on past the stop, as if it were met."""
    if stop.code == MISSING and stop.call is not None:
        return stop.call.is_pattern and stop.call.op in choices.idioms.nearly
    return stop.code in PASSABLE
