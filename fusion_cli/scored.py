"""Regions that rules found as candidates: planned and scored on each target, or turned down with the reason."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from fusion_cli.clock import Clock
from fusion_cli.codes import emit as emit_codes
from fusion_cli.codes import plan as plan_codes
from fusion_cli.codes import score as score_codes
from fusion_cli.costs import Score
from fusion_cli.errors import Unsupported
from fusion_cli.kernels.user_template import find_template
from fusion_cli.plan import Plan, Planner
from fusion_cli.report.readable import counted, show_us
from fusion_cli.score import Baseline, score_region
from fusion_cli.select import select
from fusion_cli.types import Candidate, Options, Region, Rejection, Stage, Target

Sizes = Sequence[Mapping[str, int]]


@dataclass(frozen=True)
class Scored:
    """Candidates, and why each other region is none on a target. `uncertain` are those that would be candidates if
    predictions were off by as much as they are likely to be."""

    candidates: tuple[Candidate, ...]
    rejections: tuple[Rejection, ...]
    uncertain: tuple[Candidate, ...]

    def with_uncertain(
        self, chosen: tuple[Candidate, ...], graph: ir.Graph, targets: Sequence[str]
    ) -> tuple[tuple[Candidate, ...], tuple[Rejection, ...]]:
        """Those that were chosen and the best uncertain ones of what these leave, and what is still turned down."""
        taken = {node for c in chosen for node in c.region.nodes}
        free = [c for c in self.uncertain if taken.isdisjoint(c.region.nodes)]
        if not free:
            return chosen, self.rejections
        found, _ = select([*chosen, *free], graph, targets)
        tried = {(c.region.rule, c.region.node_names, t) for c in found if c.uncertain for t in c.targets}
        return found, tuple(r for r in self.rejections if (r.rule, r.nodes, r.target) not in tried)


def score_regions(
    regions: Sequence[Region],
    planner: Planner,
    baselines: Mapping[Target, Baseline],
    sizes: Sizes,
    options: Options,
    clock: Clock,
    uncertain: Collection[Target],
    rule_targets: Mapping[str, Collection[str]],
) -> Scored:
    """Plan each region that is not to have its rule's own kernel, and score it on each target, on those of
    `rule_targets` alone where its rule says some. Regions that cannot be planned, have no template for a target or do
    not pay become rejections; for the targets of `uncertain` those that do not by less than predictions are off are
    kept beside."""
    candidates: list[Candidate] = []
    rejections: list[Rejection] = []
    kept: list[Candidate] = []
    for region in regions:
        try:
            with clock.stage("plan"):
                plan = planner.plan(region)
        except Unsupported as e:
            rejections.append(_rejection(region, "plan", e))
            clock.listener.decided(f"{rejections[-1]}")
            continue
        with clock.stage("score"):
            candidate, reasons = _score(
                region, plan, _own(baselines, rule_targets.get(region.rule, ())), sizes, options
            )
            for told in (*reasons, *_worth(candidate)):
                clock.listener.decided(f"{told}")
            doubted = {r.target for r in reasons if r.code == score_codes.DOES_NOT_PAY}
            kept += _uncertain(region, plan, {t: baselines[t] for t in uncertain if t.name in doubted}, sizes)
        rejections += reasons
        if candidate.targets:
            candidates.append(candidate)
    return Scored(tuple(candidates), tuple(rejections), tuple(kept))


def _own(baselines: Mapping[Target, Baseline], names: Collection[str]) -> Mapping[Target, Baseline]:
    """Those of the targets that a rule is for, by their names, all if it says none."""
    return {t: b for t, b in baselines.items() if not names or t.kind == "portable" or t.name in names}


def _worth(candidate: Candidate) -> Iterator[str]:
    """What is predicted of a candidate on the targets that it is for."""
    region = candidate.region
    place = f"{region.rule} at {region.node_names[-1]} ({counted(len(region.nodes), 'node')})"
    for target, score in candidate.scores.items():
        yield f"{place} on {target}: would save {show_us(score.gain_us)} of {show_us(score.before_us)}"


def _score(
    region: Region, plan: Plan | None, baselines: Mapping[Target, Baseline], sizes: Sizes, options: Options
) -> tuple[Candidate, list[Rejection]]:
    scores: dict[str, Score] = {}
    reasons: list[Rejection] = []
    for target, baseline in baselines.items():
        stage: Stage = "emit"
        try:
            if plan is None and target.kind != "portable":
                find_template(region.kernel, target, options.rule_paths)
            stage = "score"
            scores[target.name] = score_region(region, plan, baseline, sizes, force=options.force)
        except Unsupported as e:
            reasons.append(_rejection(region, stage, e, target.name))
    return Candidate(region, plan, scores, tuple(scores), forced=options.force), reasons


def _uncertain(
    region: Region, plan: Plan | None, baselines: Mapping[Target, Baseline], sizes: Sizes
) -> Iterator[Candidate]:
    scores = {t.name: score_region(region, plan, baseline, sizes, force=True) for t, baseline in baselines.items()}
    scores = {target: score for target, score in scores.items() if not score.is_certain}
    if scores:
        yield Candidate(region, plan, scores, tuple(scores), uncertain=True)


def _rejection(region: Region, stage: Stage, reason: Unsupported, target: str = "") -> Rejection:
    expected = f"{reason.expected} on {target}" if target else reason.expected
    hint = reason.hint or {**plan_codes.HINTS, **score_codes.HINTS, **emit_codes.HINTS}.get(reason.code, "")
    return Rejection.of(region, stage, reason.code, expected, reason.found, hint, target)
