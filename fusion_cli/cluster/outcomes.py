"""One model of several as a task: what is to be done with it, and what became of it."""

from __future__ import annotations

import os
import platform
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from fusion_cli import pipeline
from fusion_cli.errors import FusionError, first_line
from fusion_cli.files import file_sha256
from fusion_cli.listener import NOBODY, Listener
from fusion_cli.load import data_locations
from fusion_cli.report import Report
from fusion_cli.report.asked import asked
from fusion_cli.report.failures import failure
from fusion_cli.report.located import find_report
from fusion_cli.report.read import read_report
from fusion_cli.report.verdict import untried
from fusion_cli.targets import machine
from fusion_cli.types import Options
from fusion_cli.version import __version__


@dataclass(frozen=True)
class Task:
    """A model that is to be optimized; the paths, absolute, are the same on all machines. Without an output nothing is
    written."""

    model: Path
    output: Path | None
    options: Options
    version: str = __version__


@dataclass(frozen=True)
class Outcome:
    """What became of a model: a report, or what is wrong; `is_old` where an earlier run did just that already."""

    task: Task
    report: Report | None = None
    error: str = ""
    exit_code: int = 0
    traceback: str = ""
    """Where the error was raised, if --debug asks."""
    is_old: bool = False
    seconds: float = 0.0
    worker: str = ""
    """The machine and process that did it."""


def optimize_one(task: Task, listener: Listener = NOBODY) -> Outcome:
    """Optimize one model, on the machine that this is called on, unless an earlier run has done it there. Harmless
    twice: an output is there whole or not."""
    start, debug = time.monotonic(), task.options.debug
    blank = Outcome(task, worker=f"{platform.node()}:{os.getpid()}")
    try:
        if task.version != __version__:
            message = f"fusion-cli {__version__} is installed, and {task.version} asks"
            raise FusionError(message, where=blank.worker, hint="install the same version on all machines")
        if (earlier := _earlier(task)) is not None:
            return replace(blank, report=earlier, is_old=True)
        if task.output is not None:
            task.output.parent.mkdir(parents=True, exist_ok=True)
        made = replace(blank, report=pipeline.optimize(task.model, task.output, task.options, listener))
    except Exception as error:
        message, code = failure(error, debug)
        trace = "".join(traceback.format_exception(error)) if debug else ""
        made = replace(blank, error=message, exit_code=code, traceback=trace)
    return replace(made, seconds=time.monotonic() - start)


def lost(task: Task, error: Exception) -> Outcome:
    """The outcome of a task that no worker has finished."""
    message = f"no worker has finished it: {type(error).__name__}: {first_line(error)}"
    return Outcome(
        task,
        error=str(FusionError(message, where=str(task.model), hint="the workers' logs say more")),
        exit_code=FusionError.exit_code,
    )


def _earlier(task: Task) -> Report | None:
    """The report of an earlier run that did the same, and from the same files."""
    located = None if task.output is None else find_report(task.output)
    if located is None or not task.model.is_file():
        return None
    try:
        report = read_report(located)
        written = located.stat().st_mtime_ns
        is_newer = any(path.stat().st_mtime_ns > written for path in _read_too(task))
    except (FusionError, OSError):
        return None
    then = report.model_sha256, report.versions["fusion-cli"], report.machine, report.options
    now = file_sha256(task.model), __version__, machine(), asked(task.options)
    is_enough = not task.options.require_verified or _is_verified(report)
    return report if then == now and is_enough and not is_newer else None


def _is_verified(report: Report) -> bool:
    if report.choice is not None and report.choice.chosen == "original":
        return True
    return report.verification is not None and not report.verification.skipped and not untried(report)


def _read_too(task: Task) -> Iterator[Path]:
    """The files that decide what is written, beside the model's own."""
    yield from (task.model.parent / location for location in data_locations(task.model))
    yield from (path for folder in task.options.rule_paths for path in folder.rglob("*"))
    if task.options.inputs is not None:
        yield task.options.inputs
