"""Decisions that were measured, of several models and devices, in one file: to be done again, on any machine."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fusion_cli.costs import Device
from fusion_cli.errors import FusionError, NotTuned, first_line
from fusion_cli.files import appearing
from fusion_cli.measured import Choice, ModelName
from fusion_cli.report import Report, plain
from fusion_cli.report.asked import Asked
from fusion_cli.report.decisions import Decisions, check_profiles, decisions_of
from fusion_cli.structuring import structured
from fusion_cli.version import __version__

_SCHEMA = 1
_HINT = "give a file that optimize --tune wrote, or a new name"
Sizes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Tuned:
    """What was measured of one model with these options on one device, with its driver, in one version of ONNX
    Runtime: the targets that each kernel (named by what it computes) was kept for, at which sizes of the inputs, and
    the whole model that was written."""

    fusion_cli: str
    device: str
    driver: str
    onnxruntime: str
    model: str
    model_sha256: str
    options: Asked
    targets: tuple[str, ...]
    blocks: bool
    kernels: Mapping[str, tuple[str, ...]]
    chosen: ModelName
    timed_on: Device
    sizes: Sizes
    profiles: Mapping[str, str]
    tried: tuple[str, ...] = ()
    """The targets for which fusions were tried that are not predicted to pay."""

    @property
    def key(self) -> tuple[str, ...]:
        """What stands in a file once."""
        options = json.dumps(plain(asdict(self.options)), sort_keys=True)
        return (self.model_sha256, options, self.device, self.driver, self.onnxruntime, self.fusion_cli)


def read_tuning(path: Path, *, missing_ok: bool = False) -> tuple[Tuned, ...]:
    """The entries of a file. Raises FusionError where it is none."""
    if missing_ok and not path.exists():
        return ()
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["schema"] != _SCHEMA:
            raise ValueError(f"schema {content['schema']}")
        return tuple(structured(Tuned, entry) for entry in content["entries"])
    except (OSError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise FusionError(
            f"cannot be read as a tuning file: {first_line(error)}", where=str(path), hint=_HINT
        ) from error


def find_tuned(path: Path, sha256: str, options: Asked, *, required: bool) -> Decisions | None:
    """The decisions of a file for the model of this checksum with these options; None where it has none.

    Raises NotTuned instead if they are `required`, and FusionError where devices differ in what they decide, or the
    file cannot be read.
    """
    entries = read_tuning(path)
    fitting = [e for e in entries if (e.model_sha256, e.options, e.fusion_cli) == (sha256, options, __version__)]
    if not fitting:
        if required:
            raise NotTuned(f"nothing was tuned {_nearest(entries, sha256)}", where=str(path), hint="add it with --tune")
        return None
    decided = {json.dumps([e.targets, e.blocks, dict(e.kernels), e.chosen], sort_keys=True) for e in fitting}
    if len(decided) > 1:
        told = ", ".join(f"{e.device} (driver {e.driver or 'none'}, ONNX Runtime {e.onnxruntime})" for e in fitting)
        raise FusionError(f"it decides otherwise for each of {told}", where=str(path), hint="keep a file for each")
    first = fitting[0]
    check_profiles(first.profiles, path)
    choice = Choice(first.chosen, f"as {path} decided")
    return Decisions(path, first.targets, first.blocks, first.kernels, choice, tried=first.tried)


def _nearest(entries: Sequence[Tuned], sha256: str) -> str:
    same = [e for e in entries if e.model_sha256 == sha256]
    if not same:
        return "for this model"
    old = [e.fusion_cli for e in same if e.fusion_cli != __version__]
    return f"for it by this version, but by {old[0]}" if len(old) == len(same) else "for this model with these options"


def add_tuned(path: Path, report: Report, device: str, driver: str) -> bool:
    """Add what a run measured to a file, in place of what it had of the same; it appears whole or not at all. False,
    and nothing is written, where nothing was measured. Raises FusionError or OSError."""
    if report.choice is None or not report.choice.measured:
        return False
    first, decided = report.choice.measured[0], decisions_of(report, path)
    new = Tuned(
        __version__,
        device,
        driver,
        next((v for k, v in report.versions.items() if k.startswith("onnxruntime")), ""),
        Path(report.model).name,
        report.model_sha256,
        report.options,
        decided.targets,
        decided.blocks,
        dict(sorted(decided.kept.items())),
        decided.choice.chosen,
        first.device,
        dict(first.sizes),
        dict(report.profiles),
        report.tried,
    )
    entries = {e.key: e for e in read_tuning(path, missing_ok=True)} | {new.key: new}
    content: dict[str, Any] = {"schema": _SCHEMA, "entries": [plain(entries[key]) for key in sorted(entries)]}
    with appearing(path) as fresh:
        fresh.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return True
