"""Runs under Nsight Compute, and what it says of their kernels."""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from benchmarks.gpu_write import require_made
from benchmarks.runs import ROOT

MOVED = ("dram__bytes_read.sum", "dram__bytes_write.sum")
"""The metrics of what a launch reads from memory and writes there."""
_NAME = 100
"""Characters of a kernel's name that are shown: of libraries' kernels they are endless."""
_MIB = 2**20


def require(path: Path, made: str, maker: str) -> None:
    """Raises ClickException where there is no ncu, or nothing that the module `maker` made of what lies at `path`."""
    if shutil.which("ncu") is None:
        raise click.ClickException("there is no ncu on PATH: it comes with Nsight Compute")
    require_made(path, made, maker)


def profiled(path: Path, way: str, asked: Sequence[str]) -> str:
    """What ncu says of one run of `benchmarks.gpu_once`, as CSV; `asked` are its options that choose metrics. Raises
    ClickException with its words where it fails."""
    # Caches stay as the run leaves them: what one kernel finds there of another's results is not moved.
    ncu = ["ncu", "--profile-from-start", "off", "--cache-control", "none", "--clock-control", "none", "--csv"]
    ncu += ["--page", "raw", "--print-units", "base", *asked]
    command = [*ncu, sys.executable, "-m", "benchmarks.gpu_once", str(path), way]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if run.returncode:
        raise click.ClickException(f"ncu: {(run.stdout + run.stderr).strip()[-1000:]}")
    return run.stdout


def launches(said: str) -> list[dict[str, str]]:
    """The metrics of each launch, by name, of ncu's raw page. Raises ClickException where it has none."""
    lines = said.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        raise click.ClickException(f"ncu said nothing of any kernel: {said.strip()[-1000:]}")
    return [row for row in csv.DictReader(lines[start:]) if row["ID"]]  # units stand in a row without an ID


def number(launch: Mapping[str, str], metric: str) -> float:
    """A metric's value, of which thousands may be apart."""
    return float(launch[metric].replace(",", ""))


def moved(launch: Mapping[str, str]) -> tuple[int, int]:
    """The bytes that a launch reads from memory and writes there."""
    read, written = (round(number(launch, metric)) for metric in MOVED)
    return read, written


def mib(count: int) -> str:
    return f"{count / _MIB:.1f}"


def short(kernel: str) -> str:
    """A kernel's name as it is shown."""
    return kernel[:_NAME]


def device(said: str) -> str:
    """The GPU, which `benchmarks.gpu_once` has told before."""
    told = next((line for line in said.splitlines() if line.startswith('{"device"')), '{"device": "unknown"}')
    return str(json.loads(told)["device"])
