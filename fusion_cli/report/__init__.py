"""What a run did, as a frozen value and as report.json (schema: docs/report.md); `render` makes text of it."""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, is_dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from fusion_cli.costs import Forecast, Score
from fusion_cli.kernels import Schedule, family_of, kind_of
from fusion_cli.measured import Choice, OpCheck, Verification
from fusion_cli.report.asked import Asked
from fusion_cli.targets import machine
from fusion_cli.types import Candidate, FusedOp, GraphNode, Library, Rejection, Rewrite, Source
from fusion_cli.version import __version__

SCHEMA_VERSION = 4
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


def versions() -> dict[str, str]:
    """Versions of what takes part in the result; a package that is not installed is left out."""
    found = {"fusion-cli": __version__, "python": platform.python_version()}
    for package in ("onnx", "onnx-ir", "onnxscript", "onnxruntime", "onnxruntime-gpu", "numpy"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


@dataclass(frozen=True, kw_only=True)
class Report:
    """Everything a run can tell. `output` is None for a dry run; `notes` are things the user should know or do."""

    model: str
    model_sha256: str
    output: str | None = None
    options: Asked = field(default_factory=Asked)
    targets: tuple[str, ...]
    summary: Summary
    idioms: Mapping[str, int]
    algebra: tuple[Rewrite, ...] = ()
    assumed: Mapping[str, int] = field(default_factory=dict)
    fusions: tuple[Fusion, ...]
    predicted: tuple[Forecast, ...] = ()
    rejected: tuple[Rejection, ...] = ()
    verification: Verification | None = None
    choice: Choice | None = None
    timings: Mapping[str, float]
    sources: tuple[Source, ...] = ()
    libraries: tuple[Library, ...] = ()
    notes: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=versions)
    machine: str = field(default_factory=machine)
    profiles: Mapping[str, str] = field(default_factory=dict)
    """By target: the profile that predictions were made with, "" for that of the program."""
    tried: tuple[str, ...] = ()
    """The targets for which fusions were tried that are not predicted to pay, but may."""
    operators: Mapping[str, int] = field(default_factory=dict)
    graph: tuple[GraphNode, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The report as plain JSON values. A number that is not finite (an error of incomparable values) is null."""
        fields = {
            "schema": SCHEMA_VERSION,
            **vars(self),
            "idioms": dict(sorted(self.idioms.items())),
            "fusions": [_fusion_dict(f) for f in self.fusions],
            "verification": None if self.verification is None else _verification_dict(self.verification),
            "sources": [{"target": s.target, "op": s.op, "filename": s.filename} for s in self.sources],
            "libraries": [{**asdict(lib), "path": lib.path.name} for lib in self.libraries],
        }
        return {key: plain(value) for key, value in fields.items()}


def planned_fusions(chosen: Sequence[Candidate]) -> tuple[Fusion, ...]:
    """The places that chosen candidates are about to fuse."""
    return tuple(
        Fusion(
            name=c.region.rule,
            rule=c.region.rule,
            kernel=c.region.kernel,
            call="",
            targets=c.targets,
            nodes=c.region.node_names,
            stages=(c.region.kernel,) if c.plan is None else tuple(type(s).__name__.lower() for s in c.plan.stages),
            predicted=dict(c.scores),
        )
        for c in chosen
    )


def written_fusions(ops: Sequence[FusedOp], checks: Sequence[OpCheck]) -> tuple[Fusion, ...]:
    """The places that call the operators of the written model."""
    found: list[Fusion] = []
    for op in ops:
        measured, schedules = tuple(c for c in checks if c.op == op.name), _schedules(op)
        for call, fusion in zip(op.call_names, planned_fusions(op.calls), strict=True):
            made = replace(fusion, name=op.name, call=call, targets=op.targets)
            found.append(replace(made, measured=measured, schedules=schedules))
    return tuple(found)


def write_report(report: Report, path: Path) -> None:
    """Write report.json."""
    path.write_text(json.dumps(report.to_dict(), indent=2, allow_nan=False) + "\n", encoding="utf-8")


def _schedules(op: FusedOp) -> Schedules:
    kinds = {target: kind for target in op.targets if (kind := kind_of(target)) is not None}
    plan = op.plan
    if plan is None:
        return {}
    return {t: tuple(family_of(plan, s, k).schedules(plan, s, k) for s in plan.stages) for t, k in kinds.items()}


def summarise(
    fusions: Sequence[Fusion], targets: Sequence[str], nodes_before: int, nodes_after: int, candidates: int
) -> Summary:
    """Count what was fused, and add up what it saves."""
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
    fields = asdict(fusion)
    for score in fields["predicted"].values():
        del score["target"]  # its key
    for target, score in fusion.predicted.items():
        fields["predicted"][target] |= {"before_us": score.before_us, "after_us": score.after_us}
    for check in fields["measured"]:
        del check["op"]  # the fusion's name
    for schedule in (s for stages in fields["schedules"].values() for variants in stages for s in variants):
        schedule["settings"] = dict(schedule["settings"])
    return fields


def _verification_dict(verification: Verification) -> dict[str, Any]:
    return {
        "ok": verification.ok,
        "outputs": [{**asdict(o), "ok": o.ok} for o in verification.outputs],
        "skipped": verification.skipped,
        "sizes": verification.sizes,
    }


def plain(value: Any) -> Any:
    """A value as JSON has it, where a number that is not finite is null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, Mapping):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return value
