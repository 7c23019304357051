"""Run every model of a corpus folder in processes of their own, a result at a time, going on where a run stopped.

The folder holds MODEL.onnx, MODEL.npz (inputs `in__X`, reference outputs `out__Y`) and index.json, a list of
{id, exporter, opset, dtype, truth: {idiom: count}}. A worker is a module that is run as

    python -m WORKER MODEL.onnx TOLERANCE MODE [MODE ...]

and prints a line of JSON per mode, {"status": ..., "mode": ..., ...}, in the order of the modes; of a mode that it
tells anew, the last holds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import click
from rich.progress import Progress

TOLERANCE = {"f32": 1e-3, "f16": 2e-2, "bf16": 8e-2}
"""Largest error allowed, relative to the largest magnitude of the reference, by a model's element type."""
GOOD = ("ok", "skipped")
ROOT = Path(__file__).resolve().parent.parent
Entry = dict[str, Any]
Result = dict[str, Any]


def default_folder() -> Path:
    """The corpus folder: environment variable FUSION_CORPUS, else `../shared/corpus` beside the checkout."""
    return Path(os.environ.get("FUSION_CORPUS", ROOT.parent / "shared" / "corpus"))


def load_entries(folder: Path, only: str = "*") -> list[Entry]:
    """The models of the folder's index whose id matches the glob `only`."""
    return [e for e in json.loads((folder / "index.json").read_text()) if fnmatch(e["id"], only)]


def load_results(path: Path) -> dict[tuple[str, str], Result]:
    """Earlier results by model and mode; a line cut short by an interruption is done again."""
    found = {}
    for line in path.read_text().splitlines() if path.is_file() else []:
        try:
            result = json.loads(line)
        except json.JSONDecodeError:
            continue
        found[result["id"], result["mode"]] = result
    return found


def is_there(folder: Path) -> bool:
    """Whether the folder holds a corpus; says so on standard output if not."""
    if (folder / "index.json").is_file():
        return True
    click.echo(f"no corpus at {folder}: nothing to do (name a folder, or set FUSION_CORPUS)")
    return False


def write(page: str, path: Path | None) -> None:
    """Show a page, and keep it at `path` if there is one."""
    click.echo(page)
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page)


@dataclass(frozen=True)
class Run:
    """How to run the models of `folder`: `worker` is the module, `timeout` seconds for one model in all its modes."""

    folder: Path
    worker: str
    jobs: int
    timeout: int

    def wanted(self, entries: Sequence[Entry], modes: Sequence[str], results: Path, retry: bool) -> list[Result]:
        """Run what the file `results` lacks (and, to `retry`, what did not end well) and give all results in order."""
        done = {k: r for k, r in load_results(results).items() if not retry or r["status"] in GOOD}
        self.all(entries, modes, done, results)
        return [done[e["id"], mode] for mode in modes for e in entries if (e["id"], mode) in done]

    def all(
        self, entries: Sequence[Entry], modes: Sequence[str], done: dict[tuple[str, str], Result], results: Path
    ) -> None:
        """Run what `done` lacks, adding to it and to the file `results`."""
        missing = [(e, [m for m in modes if (e["id"], m) not in done]) for e in entries]
        results.parent.mkdir(parents=True, exist_ok=True)
        with (
            results.open("a") as file,
            Progress(disable=not sys.stderr.isatty()) as bar,
            ThreadPoolExecutor(self.jobs) as pool,
        ):
            task = bar.add_task("models", total=len(entries))
            futures = [pool.submit(self.model, entry, todo) for entry, todo in missing]
            for future in as_completed(futures):
                for result in future.result():
                    done[result["id"], result["mode"]] = result
                    file.write(json.dumps(result) + "\n")
                file.flush()
                bar.advance(task)

    def model(self, entry: Entry, modes: Sequence[str]) -> list[Result]:
        """All modes of one model, each result complete even if the process that makes it dies."""
        results: dict[str, Result] = {}
        while remaining := [m for m in modes if m not in results]:
            found, failure = self.process(entry, remaining)
            if failure:
                # The process ended within the first mode it had not reported.
                found.append({"mode": next(m for m in remaining if m not in {r["mode"] for r in found}), **failure})
            results |= {result["mode"]: {"id": entry["id"], **result} for result in found}
        return list(results.values())

    def process(self, entry: Entry, modes: Sequence[str]) -> tuple[list[Result], dict[str, str]]:
        """One process over the modes: the results it printed, and how it died if it did."""
        model = self.folder / f"{entry['id']}.onnx"
        command = [sys.executable, "-m", self.worker, str(model), str(TOLERANCE[entry["dtype"]]), *modes]
        try:
            run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=self.timeout, check=False)
            output, log, code = run.stdout, run.stderr, run.returncode
        except subprocess.TimeoutExpired as expired:
            output, log, code = (expired.stdout or b"").decode(), "", None
        told = (json.loads(line) for line in output.splitlines() if line.startswith('{"status"'))
        found = list({result["mode"]: result for result in told}.values())
        if len(found) == len(modes):
            return found, {}
        last = (log.strip().splitlines() or [""])[-1]
        if code is None:
            return found, {"status": "timeout", "detail": f"not done within {self.timeout} s"}
        return found, {"status": "crash", "detail": f"exit code {code}: {last}"}
