"""Both ways in one model: the sizes of an open dimension at which a fusion runs, and beyond which its nodes do."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import onnx_ir as ir

from fusion_cli.costs import Guard, Score, Terms
from fusion_cli.score.baseline import Baseline
from fusion_cli.score.crossing import doubled, edge, halved
from fusion_cli.score.prediction import MARGIN, score_region
from fusion_cli.sizes.algebra import names_in
from fusion_cli.sizes.dims import declared, number
from fusion_cli.sizes.parsing import parse, written
from fusion_cli.types import Candidate, Region

_LARGEST = 512
"""Sizes beyond this are not looked at: more tokens are rarely likely. Where a larger one is assumed, up to that."""
_Limit = tuple[int, bool]
"""A size, and whether a fusion pays from it on, or up to it."""


class Guards:
    """For the fusions of one graph on one target, at sizes at which they pay; those of the dimensions `open_dims` are
    assumed, all others are told."""

    def __init__(
        self, graph: ir.Graph, sizes: Mapping[str, int], open_dims: Collection[str], baseline: Baseline
    ) -> None:
        inputs = [v for v in graph.inputs if v.name not in graph.initializers]
        self._axes = {v.name or "": list(declared(v) or ()) for v in inputs}
        known = {name for dims in self._axes.values() for d in dims for name in names_in(parse(d))} & sizes.keys()
        self._sizes = {name: size for name, size in sizes.items() if name in known}
        self._open = [name for name in self._sizes if name in open_dims]
        self._baseline = baseline
        self._at: dict[tuple[str, int], Mapping[str, int]] = {}
        self._known: dict[object, Guard | None] = {}
        """What was found for regions that are alike."""

    def guarded(self, candidate: Candidate) -> Candidate:
        """The candidate under a guard, if beyond some size its nodes are predicted to be faster, by more than an If
        costs and predictions are off, and at the sizes at hand it still is with the If."""
        target, region = self._baseline.profile.target, candidate.region
        score, names = candidate.scores[target], self._names(region)
        guarded = replace(score, after=score.after + Terms(dispatch=self._baseline.profile.if_us))
        if not names or not _pays(guarded) or not guarded.is_certain:
            return candidate
        shapes = tuple(str(v.shape) for v in (*region.inputs, *region.outputs))
        key = (region.rule, id(candidate.plan), shapes, score.before, score.after)
        if key not in self._known:
            self._known[key] = self._guard(candidate, score, names)
        if (guard := self._known[key]) is None:
            return candidate
        return replace(candidate, scores={**candidate.scores, target: replace(guarded, guard=guard)})

    def _names(self, region: Region) -> list[str]:
        """The open dimensions that all sizes of the region follow from; none where some do not."""
        dims = {d for v in (*region.inputs, *(v for n in region.nodes for v in n.outputs)) for d in v.shape or ()}
        texts = [d.value for d in dims if not isinstance(d, int)]
        if any(text is None or number(text, self._sizes) is None for text in texts):
            return []
        used = {name for text in texts if text for name in names_in(parse(text))}
        return [name for name in self._open if name in used]

    def _guard(self, candidate: Candidate, score: Score, names: Sequence[str]) -> Guard | None:
        """One that compares one size: the product of all that matter, if the cost goes by that, or else the only one
        at which it crosses."""
        twice = {name: self._score(candidate, name, 2 * self._sizes[name]) for name in names}
        names = [name for name in names if _time(twice[name]) != _time(score)]
        if len({_time(twice[name]) for name in names}) == 1:
            finest = max(names, key=self._sizes.__getitem__)
            others = math.prod(self._sizes[name] for name in names if name != finest)
            limit = self._limit(candidate, finest)
            return limit and self._on(names, limit[0] * others, limit[1])
        limits = {name: limit for name in names if (limit := self._limit(candidate, name)) is not None}
        return self._on([*limits], *next(iter(limits.values()))) if len(limits) == 1 else None

    def _on(self, names: Sequence[str], limit: int, is_from: bool) -> Guard | None:
        """The guard, where one graph input has all of these dimensions."""
        for value, dims in self._axes.items():
            if set(names) <= set(dims):
                return Guard(tuple(map(written, names)), value, tuple(map(dims.index, names)), limit, is_from)
        return None

    def _limit(self, candidate: Candidate, name: str) -> _Limit | None:
        """Where the fusion stops to pay, if it does on one side alone, and loses there what an If is worth."""

        def pays(size: int) -> bool:
            return _pays(self._score(candidate, name, size))

        now, found = self._sizes[name], []
        for is_from, tried in ((False, doubled(now, max(now, _LARGEST))), (True, halved(now))):
            sizes = [now, *tried]
            first = next((i for i, size in enumerate(sizes) if not pays(size)), 0)
            if first:
                found.append((is_from, sizes[first - 1], sizes[first:]))
        if len(found) != 1:
            return None
        is_from, last, beyond = found[0]
        scores = [self._score(candidate, name, size) for size in beyond]
        return (edge(beyond[0], last, pays), is_from) if self._is_worth(scores) else None

    def _is_worth(self, beyond: Sequence[Score]) -> bool:
        """Whether so much is lost at a size beyond the limit, and more than is won at others; and whether an If is so
        little of the nodes' time at all of them that nobody notices it."""
        lost = [s.after_us / s.before_us - 1 for s in beyond if s.before_us]
        least = self._baseline.profile.if_us
        if any(s.before_us * MARGIN < least for s in beyond):
            return False
        return sum(lost) > 0 and any(-s.gain_us > least + s.uncertainty_us for s in beyond)

    def _score(self, candidate: Candidate, name: str, size: int) -> Score:
        """The same object for the same sizes: work that was counted for them is known by it."""
        sizes = self._at.setdefault((name, size), {**self._sizes, name: size})
        return score_region(candidate.region, candidate.plan, self._baseline, [sizes], force=True)


def _pays(score: Score) -> bool:
    return score.after_us < score.before_us * (1 - MARGIN)


def _time(score: Score) -> tuple[float, float]:
    return round(score.before_us, 6), round(score.after_us, 6)
