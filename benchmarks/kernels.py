"""Time the CUDA kernels of each family at sizes that models have, beside cuBLASLt, cuDNN, flash attention and a copy.

    python -m benchmarks.kernels [--only NAMES] [--results FOLDER]

Builds the cases of kernel_cases.py, several at a time, and then times the kernels of each beside what it is held
against, in the same process. Needs a GPU, nvcc, torch and onnxruntime-gpu. What is done lies in the folder --work: the
same command goes on where the last was stopped.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path

import click

from benchmarks.gpu_options import kept_options, pages_folder
from benchmarks.gpu_specs import TINY
from benchmarks.kernel_cases import CASES, KernelCase, small
from benchmarks.kernel_write import MODES
from benchmarks.kernels_page import write_page
from benchmarks.runs import GOOD, Result, Run

WORK = Path(".gpu-work/kernels")


@click.command(help=(__doc__ or "").split("\n\n")[0])
@click.option("--only", default="*", metavar="NAMES", help="Only these cases or families: globs, separated by commas.")
@kept_options(WORK, "kernels", "a case's kernels, or a family", "The same graphs at small sizes")
@click.option("--jobs", type=int, default=12, show_default=True, help="Cases that are built at a time.")
@click.option("--seconds", type=int, default=540, show_default=True, help="Start no family after this time.")
@click.option("--again", is_flag=True, help="Build and time everything again.")
def main(
    only: str,
    results: Path | None,
    work: Path,
    jobs: int,
    seconds: int,
    timeout: int,
    retry: bool,
    again: bool,
    tiny: bool,
) -> None:
    globs = [g.strip() for g in only.split(",")]
    cases = [c for c in CASES if any(fnmatch(c.id, g) or fnmatch(c.family, g) for g in globs)]
    if not cases:
        raise click.UsageError(f"no case or family is called {only}")
    if again:
        shutil.rmtree(work, ignore_errors=True)
    cases = [small(c) for c in cases] if tiny else cases
    folder = pages_folder(results, work, tiny)
    end = time.monotonic() + seconds
    built = build(cases, Run(work.resolve(), "benchmarks.kernel_write", jobs, timeout), retry)
    timed: list[Result] = []
    for family in dict.fromkeys(c.family for c in cases):
        if time.monotonic() > end:
            click.echo("time is up: run the same command again for the other families")
            sys.exit(3)
        own = [c for c in cases if c.family == family]
        timed += measure(own, Run(work.resolve(), "benchmarks.kernel_time", 1, timeout), retry)
        click.echo(f"{family}: {write_page(cases, built, timed, folder)}")
    sys.exit(1 if any(r["status"] not in GOOD for r in (*built, *timed)) else 0)


def build(cases: Sequence[KernelCase], run: Run, retry: bool) -> list[Result]:
    """The kernels of all cases, several at a time; nothing is timed meanwhile."""
    entries = [{"id": c.id, "dtype": "f16"} for c in cases]
    return run.wanted(entries, MODES, run.folder / "built.jsonl", retry)


def measure(cases: Sequence[KernelCase], run: Run, retry: bool) -> list[Result]:
    """The cases of a family in one process, as long as none brings it down."""
    tiny = TINY if cases[0].id.startswith(TINY) else ""
    entry = {"id": tiny + cases[0].family, "dtype": "f16"}
    return run.wanted([entry], [c.id for c in cases], run.folder / "timed.jsonl", retry)


if __name__ == "__main__":
    main()
