"""One model as a task: what is to be done with it, what became of it, and the file that says so of a whole folder."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import time
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from fusion_cli import pipeline
from fusion_cli.errors import FusionError
from fusion_cli.files import file_sha256
from fusion_cli.types import Options
from fusion_cli.version import __version__

RESULTS = "results.jsonl"
"""The file of a folder that has a line for each model that was done."""


@dataclass(frozen=True)
class Task:
    """A model that is to be optimized; the paths are the same on all machines."""

    model: Path
    output: Path
    options: Options
    version: str = __version__

    @property
    def key(self) -> str:
        """What is asked for, and of what: equal keys need no second run. Raises OSError without the model."""
        said = (self.version, file_sha256(self.model), replace(self.options, jobs=0))
        return hashlib.sha256(repr(said).encode()).hexdigest()


@dataclass(frozen=True)
class Outcome:
    """What became of a model: what was written and how fast it is, or what is wrong."""

    model: str
    output: str = ""
    key: str = ""
    output_sha256: str = ""
    chosen: str = ""
    speed: float | None = None
    """Of what was written against the original."""
    fusions: int = 0
    nodes: tuple[int, int] = (0, 0)
    seconds: float = 0.0
    worker: str = ""
    """The machine and process that did it."""
    error: str = ""
    exit_code: int = 0

    def is_of(self, task: Task) -> bool:
        """Whether this was done, and nothing that it is of or that it wrote has changed since."""
        try:
            same = not self.error and self.key == task.key and self.output_sha256 == file_sha256(task.output)
        except OSError:
            return False
        return same and self.output == str(task.output)


def optimize_one(task: Task) -> Outcome:
    """Optimize one model, on the machine that this is called on. Harmless twice: an output is there whole or not."""
    start, worker = time.monotonic(), f"{platform.node()}:{os.getpid()}"
    blank = Outcome(str(task.model), str(task.output), worker=worker)
    try:
        if task.version != __version__:
            message = f"fusion-cli {__version__} is installed, and {task.version} asks"
            raise FusionError(message, where=worker, hint="install the same version on all machines")
        key = task.key
        task.output.parent.mkdir(parents=True, exist_ok=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they are in report.json
            report = pipeline.optimize(task.model, task.output, task.options)
    except FusionError as e:
        return replace(blank, error=str(e), exit_code=e.exit_code)
    except OSError as e:
        return replace(blank, error=f"{e.filename or task.model}: {e.strerror or e}", exit_code=FusionError.exit_code)
    choice, summary = report.choice, report.summary
    speed = choice.speed_of(choice.chosen) if choice is not None else None
    return replace(
        blank,
        key=key,
        output_sha256=file_sha256(task.output),
        chosen=choice.chosen if choice is not None else "untried",
        speed=None if speed is None else speed.ratio,
        fusions=summary.fusions,
        nodes=(summary.nodes_before, summary.nodes_after),
        seconds=time.monotonic() - start,
    )


def read_results(folder: Path) -> dict[str, Outcome]:
    """What earlier runs into a folder have done, by model. A line that a run was killed in is no line."""
    found = {}
    try:
        lines = (folder / RESULTS).read_text("utf-8").splitlines()
    except FileNotFoundError:
        return {}
    for line in lines:
        try:
            outcome = _outcome(json.loads(line))
        except (ValueError, TypeError, KeyError):
            continue
        found[outcome.model] = outcome
    return found


def add_result(folder: Path, outcome: Outcome) -> None:
    """Note what was done, on a line of its own also where a run was killed in the one before. Raises OSError."""
    path = folder / RESULTS
    cut_short = path.exists() and not path.read_bytes().endswith(b"\n")
    with path.open("a", encoding="utf-8") as file:
        file.write(("\n" if cut_short else "") + json.dumps(asdict(outcome)) + "\n")


def _outcome(content: Mapping[str, Any]) -> Outcome:
    return Outcome(**{**content, "nodes": tuple(content["nodes"])})
