"""Count the bytes that a run of a model moves through a GPU's memory, fused and by ONNX Runtime unoptimized.

    python -m benchmarks.gpu_bytes [--model ID] [--work FOLDER]

Needs Nsight Compute (ncu) with access to its counters, and what `benchmarks.gpu_models` has made of the model in the
folder --work. What is left when weights are taken off, which every run reads once, are activations.
"""

from __future__ import annotations

import csv
import shutil
import subprocess
import sys
from pathlib import Path

import click
import onnx

from benchmarks.gpu_models import WORK
from benchmarks.gpu_write import made_path
from benchmarks.runs import ROOT

METRICS = ("dram__bytes_read.sum", "dram__bytes_write.sum")
TO_BE = 0.85
"""The share of the activations' bytes that is to be saved."""


@click.command(help=(__doc__ or "").split("\n\n")[0])
@click.option("--model", default="decomposed_b1_s2048_d4096", show_default=True, metavar="ID")
@click.option("--made", type=click.Choice(["fused", "quick"]), default="fused", show_default=True)
@click.option("--work", type=click.Path(path_type=Path), default=WORK, show_default=True)
def main(model: str, made: str, work: Path) -> None:
    path = work.resolve() / f"{model}.onnx"
    if shutil.which("ncu") is None:
        raise click.ClickException("there is no ncu on PATH: it comes with Nsight Compute")
    if not made_path(path, made).is_file():
        raise click.ClickException(f"no {made_path(path, made)}: run `python -m benchmarks.gpu_models --only {model}`")
    weights = weight_bytes(path)
    left = {}
    for way in ("unoptimized", made):
        moved, kernels = traffic(profiled(path, way))
        left[way] = moved - weights
        click.echo(f"{way}: {moved / 2**20:.0f} MiB by {kernels} kernels, without weights {left[way] / 2**20:.0f} MiB")
    saved = 1 - left[made] / left["unoptimized"]
    nodes = len(onnx.load(made_path(path, made), load_external_data=False).graph.node)
    click.echo(f"{saved:.1%} of the activations' bytes saved (to be {TO_BE:.0%}); {nodes} nodes")
    sys.exit(0 if saved >= TO_BE else 1)


def profiled(path: Path, way: str) -> str:
    """What ncu says of one run, as CSV. Raises ClickException with its words where it fails."""
    # Caches stay as the run leaves them: what one kernel finds there of another's results is not moved.
    ncu = ["ncu", "--profile-from-start", "off", "--cache-control", "none", "--clock-control", "none", "--csv"]
    ncu += ["--page", "raw", "--print-units", "base", "--metrics", ",".join(METRICS)]
    command = [*ncu, sys.executable, "-m", "benchmarks.gpu_once", str(path), way]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if run.returncode:
        raise click.ClickException(f"ncu: {(run.stdout + run.stderr).strip()[-1000:]}")
    return run.stdout


def traffic(said: str) -> tuple[float, int]:
    """Bytes read and written by all kernels, and how many kernels, of ncu's raw page."""
    lines = said.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        raise click.ClickException(f"ncu said nothing of any kernel: {said.strip()[-1000:]}")
    rows = [row for row in csv.DictReader(lines[start:]) if row["ID"]]  # units stand in a row without an ID
    return sum(float(row[m].replace(",", "")) for row in rows for m in METRICS), len(rows)


def weight_bytes(path: Path) -> int:
    """Of the original's initializers."""
    return sum(len(t.raw_data) for t in onnx.load(path).graph.initializer)


if __name__ == "__main__":
    main()
