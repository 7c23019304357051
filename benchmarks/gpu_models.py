"""Time whole models on a GPU: what fusion-cli writes of them against ONNX Runtime and PyTorch.

    python -m benchmarks.gpu_models [--only NAMES] [--quick] [--compile] [--results FOLDER]

Exports the models of gpu_models.toml with random weights, several at a time, optimizes them and then times each in
every way, beside which nothing else runs. Needs a GPU, nvcc, torch, transformers, torchvision and onnxruntime-gpu. What
is done lies in the folder --work: the same command goes on where the last was stopped, and the page, which is written
after every model, keeps the models of earlier runs that this one does not measure.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import click

from benchmarks.gpu_models_page import ORT, TORCH, failures, fused_ways, write_page
from benchmarks.gpu_options import kept_options, pages_folder
from benchmarks.gpu_specs import Spec, chosen, load_specs
from benchmarks.runs import Result, Run, load_results

WORK = Path(".gpu-work/models")


@click.command(help=(__doc__ or "").split("\n\n")[0])
@click.option("--only", default="*", metavar="NAMES", help="Only these models: globs, separated by commas.")
@click.option("--quick", is_flag=True, help="Optimize without comparing and timing (--no-verify).")
@click.option("--compile", "compiled", is_flag=True, help="Also torch.compile with max-autotune, which takes minutes.")
@kept_options(WORK, "exports", "one step of a model", "Small sizes of the same models")
@click.option("--jobs", type=int, default=6, show_default=True, help="Models that are exported at a time.")
@click.option("--seconds", type=int, default=540, show_default=True, help="Start no model after this time.")
@click.option("--again", is_flag=True, help="Optimize and time again what has been; exports are kept.")
def main(
    only: str,
    quick: bool,
    compiled: bool,
    results: Path | None,
    work: Path,
    jobs: int,
    seconds: int,
    timeout: int,
    retry: bool,
    again: bool,
    tiny: bool,
) -> None:
    specs = chosen(load_specs("model", tiny=tiny), only)
    if not specs:
        raise click.UsageError(f"no model of gpu_models.toml is called {only}")
    folder = pages_folder(results, work, tiny)
    bench = Bench(work, jobs, timeout, retry, "quick" if quick else "fused", compiled)
    if again:
        bench.forget(specs)
    end = time.monotonic() + seconds
    bench.prepare(specs)
    rows = []
    for number, spec in enumerate(specs):
        if time.monotonic() > end:
            click.echo(f"time is up: run the same command again for the other {len(specs) - number} models")
            sys.exit(3)
        rows.append(bench.measure(spec))
        click.echo(f"{spec.id}: {row_line(rows[-1])}\n  {write_page(rows, folder)}")
    sys.exit(1 if any(failures(rows)) else 0)


@dataclass(frozen=True)
class Bench:
    """How the models are made and timed; `made` is what is written of them, `quick` or `fused`."""

    work: Path
    jobs: int
    timeout: int
    retry: bool
    made: str
    compiled: bool

    @property
    def ways(self) -> tuple[str, ...]:
        """In which models are timed."""
        torch = TORCH if self.compiled else TORCH[:2]
        return (*fused_ways(self.made), *ORT, *torch)

    def write(self, specs: Sequence[Spec], modes: Sequence[str], jobs: int = 1) -> list[Result]:
        return self._run("gpu_write", jobs, specs, modes)

    def time(self, specs: Sequence[Spec]) -> list[Result]:
        return self._run("gpu_case", 1, specs, self.ways)

    def _run(self, worker: str, jobs: int, specs: Sequence[Spec], modes: Sequence[str]) -> list[Result]:
        """What of it has not been done, kept in a file of the worker's; the results of all."""
        run = Run(self.work.resolve(), f"benchmarks.{worker}", jobs, self.timeout)
        return run.wanted([s.entry for s in specs], modes, run.folder / f"{worker}.jsonl", self.retry)

    def prepare(self, specs: Sequence[Spec]) -> None:
        """Export the models and compile their kernels, several at a time; nothing is timed meanwhile."""
        self.write(specs, ("export", "quick"), self.jobs)

    def measure(self, spec: Spec) -> dict[str, Any]:
        """Everything of one model, now or from an earlier run, as a row of the page."""
        written, times = self.write([spec], ("export", self.made)), self.time([spec])
        return {
            "id": spec.id,
            "made": self.made,
            "date": date.today().isoformat(),
            "core": "quietest",
            "written": {r["mode"]: r for r in written},
            "times": {r["mode"]: r for r in times},
        }

    def forget(self, specs: Sequence[Spec]) -> None:
        """Take from the files of what was done all but the exports."""
        gone = {s.id for s in specs}
        for log in self.work.glob("*.jsonl"):
            kept = [r for (id, mode), r in load_results(log).items() if id not in gone or mode == "export"]
            log.write_text("".join(json.dumps(r) + "\n" for r in kept))


def row_line(row: dict[str, Any]) -> str:
    """A model's times in short."""
    return ", ".join(f"{way} {r['ms']:.4f}" if "ms" in r else f"{way} {r['status']}" for way, r in row["times"].items())


if __name__ == "__main__":
    main()
