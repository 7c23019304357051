"""What was decided by measuring on this machine: the same command then does the same again, and times nothing.

Reports of runs that timed whole models lie in the cache, by all that what they decided depends on.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path

from fusion_cli.build.cache import DECISIONS, claim, default_cache_dir, digest, find, put
from fusion_cli.devices.known import profile_id
from fusion_cli.errors import FusionError
from fusion_cli.files import file_sha256
from fusion_cli.report import Report, plain, versions, write_report
from fusion_cli.report.asked import asked
from fusion_cli.report.decisions import Decisions, recalled
from fusion_cli.report.read import read_report
from fusion_cli.resources import resource_dir
from fusion_cli.targets import CPU, device_of, resolve_targets, runs_here
from fusion_cli.types import Options, Target

_PACKAGE = Path(__file__).resolve().parent


def is_recalled(options: Options) -> bool:
    """Whether a run with these options decides by times, and may take those of an earlier one."""
    return options.verify and not (options.force or options.tune or options.dry_run)


def recall(model: Path, options: Options) -> Decisions | None:
    """What was decided here for the model at `model`; None where nothing was, or `options` ask to measure anew."""
    if options.remeasure:
        return None
    with suppress(OSError, FusionError):  # of a cache that is damaged, or another user's: then it is measured
        claim(default_cache_dir())
        if (path := find(_place(model, options))) is not None:
            return recalled(read_report(path), path)
    return None


def remember(model: Path, options: Options, report: Report) -> None:
    """Keep what a run decided that timed whole models, in place of what was decided before; nothing where the cache
    cannot be written to."""
    if report.choice is None or not report.choice.measured:
        return
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M")
    dated = replace(report, choice=replace(report.choice, measured_at=now))
    with suppress(OSError, FusionError):
        claim(default_cache_dir())
        place = _place(model, options)
        place.mkdir(parents=True, exist_ok=True)
        earlier = list(place.iterdir())
        descriptor, fresh = tempfile.mkstemp(dir=place, prefix=".", suffix=".json")
        os.close(descriptor)
        write_report(dated, Path(fresh))
        kept = put(Path(fresh), place)
        for path in earlier:
            if path != kept:
                path.unlink(missing_ok=True)


def _place(model: Path, options: Options) -> Path:
    """The folder in the cache for all that a decision depends on. Raises OSError or FusionError."""
    targets = resolve_targets(list(options.targets))
    parts = [
        file_sha256(model),
        json.dumps(plain(asdict(asked(options))), sort_keys=True),
        json.dumps(versions(), sort_keys=True),
        json.dumps({t.name: profile_id(t) for t in targets}, sort_keys=True),
        *_machine(targets),
        *_stamps([_PACKAGE, resource_dir("rules"), resource_dir("templates"), *options.rule_paths]),
        "" if options.inputs is None else file_sha256(options.inputs),
    ]
    return default_cache_dir() / DECISIONS / digest(parts)


def _machine(targets: Sequence[Target]) -> tuple[str, ...]:
    """The device that models are timed on, its driver, and how many cores this process may use."""
    measured = next((t for t in targets if t.kind != "portable" and runs_here(t.name)), CPU)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return (*device_of(measured), str(cores))


def _stamps(folders: Sequence[Path]) -> Iterator[str]:
    """The names, sizes and times of source files: a kernel that was changed is to be timed."""
    for folder in folders:
        for path in sorted(p for p in folder.rglob("*") if p.is_file() and p.suffix != ".pyc"):
            state = path.stat()
            yield f"{path.relative_to(folder)} {state.st_size} {state.st_mtime_ns}"
