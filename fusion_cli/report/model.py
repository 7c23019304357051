"""The report of one run: frozen values, and their form as report.json (schema in docs/report.md)."""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from fusion_cli.kernels import Schedule, family_of, kind_of
from fusion_cli.types import Candidate, FusedOp, Library, OpCheck, Rejection, Score, Source, Verification
from fusion_cli.version import __version__

SCHEMA_VERSION = 1
Schedules = Mapping[str, tuple[tuple[Schedule, ...], ...]]
"""By target, for each stage of an operator: the variants of its kernel that are compiled in."""


@dataclass(frozen=True)
class Summary:
    """The counts of a run. Savings are predictions, of each fusion for the first of the targets it is made for."""

    nodes_before: int
    nodes_after: int
    candidates: int
    fusions: int
    """Places in the model that are fused."""
    kernels: int
    """Distinct operators they call."""
    nodes_fused: int
    """Original nodes inside the fusions."""
    bytes_saved: int
    launches_saved: int
    us_saved: float


@dataclass(frozen=True)
class Fusion:
    """One fused place: operator `name`, called by node `call`, in place of `nodes` (original node names)."""

    name: str
    rule: str
    kernel: str
    call: str
    targets: tuple[str, ...]
    nodes: tuple[str, ...]
    stages: tuple[str, ...]
    predicted: Mapping[str, Score]
    measured: tuple[OpCheck, ...] = ()
    schedules: Schedules = field(default_factory=dict)


@dataclass(frozen=True)
class Report:
    """Everything a run can tell. `output` is None for a dry run; `notes` are things the user should know or do."""

    model: str
    output: str | None
    targets: tuple[str, ...]
    summary: Summary
    idioms: Mapping[str, int]
    fusions: tuple[Fusion, ...]
    rejected: tuple[Rejection, ...]
    timings: Mapping[str, float]
    versions: Mapping[str, str]
    sources: tuple[Source, ...] = ()
    libraries: tuple[Library, ...] = ()
    verification: Verification | None = None
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The report as plain JSON values. A number that is not finite (an error of incomparable values) is null."""
        fields = {
            "schema": SCHEMA_VERSION,
            "model": self.model,
            "output": self.output,
            "targets": list(self.targets),
            "summary": asdict(self.summary),
            "idioms": dict(sorted(self.idioms.items())),
            "fusions": [_fusion_dict(f) for f in self.fusions],
            "rejected": [asdict(r) for r in self.rejected],
            "verification": None if self.verification is None else _verification_dict(self.verification),
            "timings": dict(self.timings),
            "sources": [{"target": s.target, "op": s.op, "filename": s.filename} for s in self.sources],
            "libraries": [{**asdict(lib), "path": lib.path.name} for lib in self.libraries],
            "notes": list(self.notes),
            "versions": dict(self.versions),
        }
        return {key: _plain(value) for key, value in fields.items()}


def make_report(
    *,
    model: str,
    output: str | None,
    targets: Sequence[str],
    nodes_before: int,
    nodes_after: int,
    candidates: int,
    idioms: Mapping[str, int],
    ops: Sequence[FusedOp] = (),
    selected: Sequence[Candidate] = (),
    rejected: Iterable[Rejection] = (),
    timings: Mapping[str, float],
    sources: Sequence[Source] = (),
    libraries: Sequence[Library] = (),
    verification: Verification | None = None,
    notes: Sequence[str] = (),
) -> Report:
    """Put a report together from the values of the stages.

    `ops` are the operators of the written model; a dry run has none and gives `selected` instead.
    """
    checks = () if verification is None else verification.ops
    if ops:
        fusions = tuple(
            _fusion(op, call, c, checks, schedules)
            for op in ops
            for schedules in [_schedules(op)]
            for call, c in zip(op.call_names, op.calls, strict=True)
        )
    else:
        fusions = tuple(_planned(c) for c in selected)
    return Report(
        model=model,
        output=output,
        targets=tuple(targets),
        summary=_summarise(fusions, targets, nodes_before, nodes_after, candidates),
        idioms=dict(idioms),
        fusions=fusions,
        rejected=tuple(rejected),
        timings=dict(timings),
        versions=versions(),
        sources=tuple(sources),
        libraries=tuple(libraries),
        verification=verification,
        notes=tuple(notes),
    )


def write_report(report: Report, path: Path) -> None:
    """Write report.json; the file appears whole or not at all."""
    text = json.dumps(report.to_dict(), indent=2, allow_nan=False)
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(text + "\n", encoding="utf-8")
    temporary.replace(path)


def versions() -> dict[str, str]:
    """Versions of what takes part in the result; a package that is not installed is left out."""
    found = {"fusion-cli": __version__, "python": platform.python_version()}
    for package in ("onnx", "onnx-ir", "onnxscript", "onnxruntime", "onnxruntime-gpu", "numpy"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def _fusion(op: FusedOp, call: str, candidate: Candidate, checks: Sequence[OpCheck], schedules: Schedules) -> Fusion:
    return Fusion(
        name=op.name,
        rule=op.rule,
        kernel=op.kernel,
        call=call,
        targets=op.targets,
        nodes=candidate.region.node_names,
        stages=_stages(candidate),
        predicted=dict(candidate.scores),
        measured=tuple(c for c in checks if c.op == op.name),
        schedules=schedules,
    )


def _schedules(op: FusedOp) -> Schedules:
    kinds = {target: kind for target in op.targets if (kind := kind_of(target)) is not None}
    plan = op.plan
    if plan is None:
        return {}
    return {t: tuple(family_of(plan, s, k).schedules(plan, s, k) for s in plan.stages) for t, k in kinds.items()}


def _planned(candidate: Candidate) -> Fusion:
    region = candidate.region
    return Fusion(
        name=region.rule,
        rule=region.rule,
        kernel=region.kernel,
        call="",
        targets=candidate.targets,
        nodes=region.node_names,
        stages=_stages(candidate),
        predicted=dict(candidate.scores),
    )


def _stages(candidate: Candidate) -> tuple[str, ...]:
    plan = candidate.plan
    return (candidate.region.kernel,) if plan is None else tuple(type(s).__name__.lower() for s in plan.stages)


def _summarise(
    fusions: Sequence[Fusion], targets: Sequence[str], nodes_before: int, nodes_after: int, candidates: int
) -> Summary:
    scores = [score for f in fusions if (score := _main_score(f, targets)) is not None]
    return Summary(
        nodes_before=nodes_before,
        nodes_after=nodes_after,
        candidates=candidates,
        fusions=len(fusions),
        kernels=len({f.name for f in fusions}),
        nodes_fused=sum(len(f.nodes) for f in fusions),
        bytes_saved=sum(s.bytes_before - s.bytes_after for s in scores),
        launches_saved=sum(s.launches_before - s.launches_after for s in scores),
        us_saved=sum(s.gain_us for s in scores),
    )


def _main_score(fusion: Fusion, targets: Sequence[str]) -> Score | None:
    """The prediction for the first asked target that the fusion is for."""
    return next((fusion.predicted[t] for t in targets if t in fusion.targets and t in fusion.predicted), None)


def _fusion_dict(fusion: Fusion) -> dict[str, Any]:
    keys = ("before_us", "after_us", "bytes_before", "bytes_after", "launches_before", "launches_after")
    return {
        "name": fusion.name,
        "rule": fusion.rule,
        "kernel": fusion.kernel,
        "call": fusion.call,
        "targets": list(fusion.targets),
        "nodes": list(fusion.nodes),
        "stages": list(fusion.stages),
        "predicted": {t: {k: getattr(s, k) for k in keys} for t, s in fusion.predicted.items()},
        "measured": [{k: v for k, v in asdict(c).items() if k != "op"} for c in fusion.measured],
        "schedules": {
            target: [[{**asdict(s), "settings": dict(s.settings)} for s in stage] for stage in stages]
            for target, stages in fusion.schedules.items()
        },
    }


def _verification_dict(verification: Verification) -> dict[str, Any]:
    return {
        "ok": verification.ok,
        "outputs": [{**asdict(o), "ok": o.ok} for o in verification.outputs],
        "before_us": verification.before_us,
        "after_us": verification.after_us,
        "skipped": verification.skipped,
    }


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return value
