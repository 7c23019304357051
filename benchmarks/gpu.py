"""Run the packed models on a GPU: placement, numbers and times of the fused model against other ways to run it.

    python -m benchmarks.gpu [--only GLOB] [--out FOLDER]

Reads `.gpu-work/work.tar.xz` (made by benchmarks.gpu_prepare); needs torch, onnxruntime-gpu and a GPU. Each case runs
in its own process; what has been measured is written after each one. Exits with 1 if a case fails its checks.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import tempfile
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import click

from benchmarks.gpu_cases import ARCHIVE, CASES, Case
from benchmarks.gpu_page import problems, write_page


@click.command(help=(__doc__ or "").split("\n\n")[0])
@click.option("--only", default="*", metavar="GLOB", help="Only the examples whose name matches.")
@click.option("--timeout", type=int, default=120, show_default=True, help="Seconds for one case.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("benchmarks/results"), show_default=True)
def main(only: str, timeout: int, out: Path) -> None:
    if not ARCHIVE.is_file():
        sys.exit(f"no {ARCHIVE}: run `python -m benchmarks.gpu_prepare` on a machine with nvcc first")
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as scratch:
        with tarfile.open(ARCHIVE) as archive:
            archive.extractall(scratch, filter="data")
        for case in CASES:
            folder = Path(scratch, case.example)
            if folder.is_dir() and fnmatch(case.example, only):
                results.append(run_case(case, folder, timeout))
                click.echo(json.dumps(results[-1]))
                click.echo(write_page(results, out))
    failed = [f"{r['example']}: {problem}" for r in results for problem in problems(r)]
    click.echo("\n".join(failed) or f"{len(results)} cases passed their checks")
    sys.exit(1 if failed else 0)


def run_case(case: Case, folder: Path, timeout: int) -> dict[str, Any]:
    """One case in its own process: a fault on the GPU ends that process and no other."""
    result = folder / "result.json"
    command = [sys.executable, "-m", "benchmarks.gpu_case", case.example, str(folder), str(result)]
    log = ""
    try:
        run = subprocess.run(command, timeout=timeout, check=False, stderr=subprocess.PIPE, text=True)
        log = run.stderr
    except subprocess.TimeoutExpired:
        log = f"not done within {timeout} s"
    if result.is_file():
        found: dict[str, Any] = json.loads(result.read_text())
        return found
    reason = (log.strip().splitlines() or ["no output"])[-1]
    return {"example": case.example, "shape": list(case.shape), "dtype": case.dtype, "failures": {"case": reason}}


if __name__ == "__main__":
    main()
