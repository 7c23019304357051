"""What an earlier run decided, read from its report.json, to be done again without measuring."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fusion_cli.devices.known import profile_id
from fusion_cli.errors import FusionError, ModelError
from fusion_cli.measured import Choice, Verification
from fusion_cli.report import Report
from fusion_cli.report.read import read_report
from fusion_cli.simplify.algebra import BLOCK_RULES
from fusion_cli.targets import resolve_targets
from fusion_cli.types import FusedOp
from fusion_cli.version import __version__


@dataclass(frozen=True)
class Decisions:
    """The targets, whether it was for convolutions that take channels in blocks, the targets of each operator by its
    name, and the whole model that was written."""

    path: Path
    targets: tuple[str, ...]
    blocks: bool
    kept: Mapping[str, tuple[str, ...]]
    choice: Choice
    places: Mapping[tuple[str, tuple[str, ...]], tuple[str, ...]] | None = None
    """The targets of each place, by its rule and nodes, where it is to be seen what of the decisions still holds: then
    operators may be missing or be others, and the result is timed. None where the very same is to be written."""
    tried: tuple[str, ...] = ()
    """The targets for which fusions are tried that are not predicted to pay, but may."""
    recalled: Report | None = None
    """What the run tells that measured this on this machine, where that one's times stand for those of this one."""

    @property
    def is_check(self) -> bool:
        """Whether it is to be seen what of the decisions still holds."""
        return self.places is not None

    def apply(self, ops: Sequence[FusedOp]) -> list[FusedOp]:
        """The operators with the targets that were decided on. Raises ModelError where one of those is not among
        them and must be."""
        if self.places is not None:
            return [replace(o, targets=tuple(t for t in o.targets if t in self._targets_of(o))) for o in ops]
        if missing := sorted(self.kept.keys() - {o.name for o in ops}):
            raise ModelError(
                f"operator {missing[0]} is not found in this model",
                where=str(self.path),
                hint="decisions are for the same model, options and version of fusion-cli",
            )
        return [replace(o, targets=tuple(t for t in o.targets if t in self.kept.get(o.name, ()))) for o in ops]

    def with_times(self, verification: Verification) -> Verification:
        """What was found of this run's kernels, with the times of them that are told again."""
        if self.recalled is None or self.recalled.verification is None:
            return verification
        before = {(c.op, c.target): c for c in self.recalled.verification.ops}
        ops = (replace(before.get((c.op, c.target), c), error=c.error, note=c.note) for c in verification.ops)
        return replace(verification, ops=tuple(ops))

    def _targets_of(self, op: FusedOp) -> set[str]:
        """Those of the operator, or of its places where it is another one now."""
        assert self.places is not None
        at = (self.places.get((op.rule, call.region.node_names), ()) for call in op.calls)
        return set(self.kept.get(op.name, ())).union(*at)


def read_decisions(path: Path, sha256: str) -> Decisions:
    """Those of a report.json that `optimize` wrote for the model of this checksum. Raises FusionError."""
    report = read_report(path)
    if report.output is None:
        hint = "give the report.json of a bundle that this version wrote"
        raise FusionError("no report of a model that was written", where=str(path), hint=hint)
    if (version := report.versions["fusion-cli"]) != __version__:
        hint = "the same version makes the same file"
        raise FusionError(f"made by fusion-cli {version}, this is {__version__}", where=str(path), hint=hint)
    if report.model_sha256 != sha256:
        raise FusionError("the report is of another model", where=str(path), hint=f"it is of {report.model}")
    check_profiles(report.profiles, path)
    return decisions_of(report, path)


def decisions_of(report: Report, path: Path) -> Decisions:
    """What a run decided; `path` is where it is told."""
    kept = {fusion.name: fusion.targets for fusion in report.fusions}
    # Without a choice all that was made was written.
    chosen = "kernels" if report.choice is None else report.choice.chosen
    blocks = any(applied.rule in BLOCK_RULES for applied in report.algebra)
    return Decisions(path, report.targets, blocks, kept, Choice(chosen, f"as {path} decided"), tried=report.tried)


def recalled(report: Report, path: Path) -> Decisions:
    """What a run on this machine decided by its times, which are told again."""
    assert report.choice is not None
    return replace(decisions_of(report, path), choice=report.choice, recalled=report)


def check_profiles(profiles: Mapping[str, str], path: Path) -> None:
    """Raises FusionError where predictions here are made with other profiles than those by target: then other
    candidates might be found."""
    for target in resolve_targets(list(profiles)):
        if (here := profile_id(target)) != profiles[target.name]:
            raise FusionError(
                f"decided with the profile '{profiles[target.name] or 'of fusion-cli'}' for {target.name}, here is "
                f"'{here or 'that of fusion-cli'}'",
                where=str(path),
                hint="fusion-cli devices add FILE, or remove NAME, changes which is taken",
            )
