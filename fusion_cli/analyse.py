"""The first half of the pipeline: from a file to the candidates worth taking. Nothing is changed or written."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import onnx_ir as ir

from fusion_cli.errors import NothingToDo, Unsupported
from fusion_cli.load import is_fused, load_model
from fusion_cli.match import find_regions, load_rules
from fusion_cli.plan import Plan, plan_region
from fusion_cli.score import Baseline, default_sizes, load_profile, score_region
from fusion_cli.select import select
from fusion_cli.simplify import simplify
from fusion_cli.targets import resolve_targets
from fusion_cli.types import Candidate, Options, Region, Rejection, Score, Target


@dataclass
class Clock:
    """Seconds spent in each stage, and who to tell when one starts."""

    say: Callable[[str], None] = lambda _: None
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        self.say(name)
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start


@dataclass(frozen=True, eq=False)
class Analysis:
    """A model, what was found in it, and what of it is to be fused."""

    model: ir.Model
    nodes_before: int
    targets: tuple[Target, ...]
    candidates: tuple[Candidate, ...]
    chosen: tuple[Candidate, ...]
    idioms: Mapping[str, int]
    rejections: tuple[Rejection, ...]


def analyse(path: Path, options: Options, clock: Clock) -> Analysis:
    """Run the stages load, simplify, match, plan, score and select. Raises FusionError for what the user can mend."""
    targets = resolve_targets(options.targets)
    rules = load_rules(options.rules, options.rule_paths, options.opt_level)
    with clock.stage("load"):
        model = load_model(path)
        if is_fused(model):
            raise NothingToDo("already optimized by fusion-cli; left as it is", where=str(path))
        nodes_before = len(list(model.graph))
    with clock.stage("simplify"):
        model = simplify(model)
    with clock.stage("match"):
        found = find_regions(model, rules)
    candidates, rejections = score_regions(model, found.regions, targets, options, clock)
    with clock.stage("select"):
        chosen, lost = select(candidates, model.graph, [t.name for t in targets])
    return Analysis(
        model, nodes_before, targets, candidates, chosen, found.idioms, (*found.rejections, *rejections, *lost)
    )


def score_regions(
    model: ir.Model,
    regions: Sequence[Region],
    targets: Sequence[Target],
    options: Options,
    clock: Clock,
) -> tuple[tuple[Candidate, ...], list[Rejection]]:
    """Plan each region and score it on each target. Regions that cannot be planned or do not pay become rejections."""
    with clock.stage("score"):
        sizes = default_sizes(model, options)
        baselines = {t.name: Baseline(model.graph, load_profile(t)) for t in targets}
    candidates: list[Candidate] = []
    rejections: list[Rejection] = []
    for region in regions:
        try:
            with clock.stage("plan"):
                plan = plan_region(region)
        except Unsupported as e:
            rejections.append(_rejection(region, "plan", e))
            continue
        with clock.stage("score"):
            candidate, reasons = _score(region, plan, baselines, sizes, options)
        rejections += reasons
        if candidate.targets:
            candidates.append(candidate)
    return tuple(candidates), rejections


def _score(
    region: Region,
    plan: Plan,
    baselines: Mapping[str, Baseline],
    sizes: Sequence[Mapping[str, int]],
    options: Options,
) -> tuple[Candidate, list[Rejection]]:
    scores: dict[str, Score] = {}
    reasons: list[Rejection] = []
    for name, baseline in baselines.items():
        try:
            scores[name] = score_region(region, plan, baseline, sizes, force=options.force)
        except Unsupported as e:
            reasons.append(_rejection(region, "score", e, name))
    return Candidate(region, plan, scores, tuple(scores), forced=options.force), reasons


def _rejection(region: Region, stage: Literal["plan", "score"], reason: Unsupported, target: str = "") -> Rejection:
    expected = f"{reason.expected} on {target}" if target else reason.expected
    return Rejection(
        region.rule,
        region.node_names[-1],
        stage,
        reason.code,
        expected,
        reason.found,
        progress=1.0,
    )
