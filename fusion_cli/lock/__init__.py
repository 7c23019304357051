"""A lock: what was fused in a model and how well, as a file to be reviewed and checked against later."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from fusion_cli.build.cache import strip_comments
from fusion_cli.costs import Device
from fusion_cli.measured import Choice, ModelName
from fusion_cli.report import Fusion, Report
from fusion_cli.report.asked import Asked
from fusion_cli.report.decisions import Decisions
from fusion_cli.simplify.algebra import BLOCK_RULES

FORMAT = 1
"""Of the file; raised where its meaning changes."""


@dataclass(frozen=True)
class LockedKernel:
    """The kernel of an operator on one target: the SHA-256 of its source without comments, and its largest error, a
    share of the reference's largest magnitude, where it was run."""

    source: str = ""
    error: float | None = None


@dataclass(frozen=True)
class LockedFusion:
    """An operator, and the places it stands for: the names of the nodes of each."""

    rule: str
    operator: str
    stages: tuple[str, ...]
    kernels: Mapping[str, LockedKernel]
    places: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class LockedMiss:
    """A rule that came near at so many places, and would have saved something."""

    rule: str
    code: str
    node: str
    expected: str
    found: str
    places: int

    @property
    def kind(self) -> tuple[str, str]:
        """What makes two of them the same, however nodes are called."""
        return self.rule, self.code


@dataclass(frozen=True)
class LockedSpeed:
    """How many times as fast as the original what was written is, and the ends of the 95% interval."""

    device: Device
    ratio: float
    low: float
    high: float
    sizes: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, kw_only=True)
class Lock:
    """What a run decided and measured. `operators` counts those of the model as given."""

    lock: int = FORMAT
    model: str
    model_sha256: str
    written: ModelName
    blocks: bool
    options: Asked
    """So that the same is asked again."""
    operators: Mapping[str, int]
    fusions: tuple[LockedFusion, ...]
    near_misses: tuple[LockedMiss, ...]
    errors: Mapping[str, float] = field(default_factory=dict)
    """Of the outputs, as shares of their largest magnitudes."""
    speed: LockedSpeed | None = None
    versions: Mapping[str, str]
    machine: str

    @property
    def places(self) -> int:
        """At how many places something is fused."""
        return sum(len(f.places) for f in self.fusions)

    def decisions(self, path: Path) -> Decisions:
        """The same again, as far as it goes."""
        kept = {f.operator: tuple(f.kernels) for f in self.fusions}
        places = {(f.rule, nodes): tuple(f.kernels) for f in self.fusions for nodes in f.places}
        choice = Choice(self.written, f"as {path} says")
        tried = tuple(sorted({target for targets in kept.values() for target in targets}))
        return Decisions(path, self.options.targets, self.blocks, kept, choice, places, tried)


def lock_of(report: Report) -> Lock:
    """The lock of a model that was written."""
    sources = {(s.op, s.target): _sha256(strip_comments(s.text)) for s in report.sources}
    by_name: dict[str, list[Fusion]] = {}
    for fusion in report.fusions:
        by_name.setdefault(fusion.name, []).append(fusion)
    return Lock(
        model=Path(report.model).name,
        model_sha256=report.model_sha256,
        written="kernels" if report.choice is None else report.choice.chosen,
        blocks=any(applied.rule in BLOCK_RULES for applied in report.algebra),
        options=replace(report.options, targets=report.targets),
        operators=dict(sorted(report.operators.items())),
        fusions=tuple(_fusion(by_name[name], sources) for name in sorted(by_name)),
        near_misses=_misses(report),
        errors={o.output: _rounded(o.error) for o in report.verification.outputs} if report.verification else {},
        speed=_speed(report.choice),
        versions={**report.versions, **{f"compiler for {lib.target}": lib.compiler for lib in report.libraries}},
        machine=report.machine,
    )


def _fusion(alike: list[Fusion], sources: Mapping[tuple[str, str], str]) -> LockedFusion:
    first = alike[0]
    errors = {check.target: _rounded(check.error) for check in first.measured}
    kernels = {t: LockedKernel(sources.get((first.name, t), ""), errors.get(t)) for t in first.targets}
    return LockedFusion(first.rule, first.name, first.stages, kernels, tuple(sorted(f.nodes for f in alike)))


def _misses(report: Report) -> tuple[LockedMiss, ...]:
    """Those that would have saved something and that nothing else covers, one of each rule and code."""
    found: dict[tuple[str, str], LockedMiss] = {}
    for r in report.rejected:
        if r.rule and r.stage in ("match", "plan") and r.saving_us > 0 and not r.covered_by:
            known = found.get((r.rule, r.code))
            places = r.places + (known.places if known else 0)
            first = known or LockedMiss(r.rule, r.code, r.node, r.expected, r.found, 0)
            found[first.kind] = LockedMiss(first.rule, first.code, first.node, first.expected, first.found, places)
    return tuple(found[kind] for kind in sorted(found))


def _speed(choice: Choice | None) -> LockedSpeed | None:
    speed = None if choice is None else choice.speed_of(choice.chosen)
    if choice is None or speed is None:
        return None
    first = choice.measured[0]
    return LockedSpeed(first.device, round(speed.ratio, 2), round(speed.low, 2), round(speed.high, 2), first.sizes)


def _rounded(number: float) -> float:
    """With two digits: the others are noise in a review."""
    return float(f"{number:.1e}")


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
