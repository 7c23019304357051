"""Time every tile of Hopper's kernel for products of many rows by itself: wide_tile.cuh is fitted to that.

    python -m benchmarks.wide_tiles [--work FOLDER] [--rounds N] CASE [CASE ...]

A case is one of kernel_cases.py (bias_gelu, bias_residual, bias_silu, qkv, gated) at any size, such as
bias_gelu_512x3072x768 (rows, columns, depth). Kernels are built in a copy of the project in which the environment names
the tile. Needs a Hopper GPU, nvcc, torch and onnxruntime-gpu.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click

from benchmarks.runs import ROOT

WORK = Path(".gpu-work/wide-tiles")
TILE = "FUSION_TILE"
"""The environment's variable: a tile's number among those of a kernel."""
_CHOICE = "templates/include/wide_choice.cuh"
_FASTER = "if (cycles < fastest.cycles) fastest = {number, cycles, Tile::kSwaps};"
_NAMED = f"""{_FASTER}
    const char* const named = std::getenv("{TILE}");
    if (named != nullptr && std::atoi(named) == number && cycles < inf<double>()) fastest = {{number, 0, false}};"""
_INCLUDED = "#include <algorithm>\n"
_COMPILED = "if constexpr (has<Tiles, Tile>(kAll) || has<UnsharedTiles<Tiles>, Tile>(kUnshared)) f(tile);"
"""Where sizes are known, tiles that nobody would choose are not; here all are."""


@click.command(help=(__doc__ or "").split("\n\n")[0])
@click.argument("cases", nargs=-1, required=True)
@click.option("--work", type=click.Path(path_type=Path), default=WORK, show_default=True, help="Folder for the copy.")
@click.option("--rounds", type=int, default=1, show_default=True, help="How often each tile is timed, in turn.")
@click.option("--jobs", type=int, default=12, show_default=True, help="Cases that are built at a time.")
def main(cases: Sequence[str], work: Path, rounds: int, jobs: int) -> None:
    work = work.resolve()
    tree = copy_that_obeys(ROOT, work / "tree")

    def build(case: str) -> str:
        return _run(tree, subprocess.PIPE, "benchmarks.kernel_write", str(work / f"{case}.onnx"), "0", "kernels")

    with ThreadPoolExecutor(jobs) as pool:
        for case, said in zip(cases, pool.map(build, cases), strict=True):
            if (result := json.loads(said.splitlines()[-1]))["status"] != "ok":
                raise click.ClickException(f"{case}: {result['detail']}")
    _run(tree, None, "benchmarks.wide_tiles_time", str(work), str(rounds), *cases)


def copy_that_obeys(root: Path, to: Path) -> Path:
    """A copy of what the project at `root` runs by, whose kernels take the tile that the environment names, where it
    can be used."""
    for folder in ("fusion_cli", "rules", "templates", "benchmarks"):
        shutil.rmtree(to / folder, ignore_errors=True)
        shutil.copytree(root / folder, to / folder, ignore=shutil.ignore_patterns("results", "__pycache__"))
    choice = to / _CHOICE
    text = choice.read_text()
    changes = {_FASTER: _NAMED, _COMPILED: "f(tile);", _INCLUDED: f"{_INCLUDED}#include <cstdlib>\n"}
    for before, after in changes.items():
        if text.count(before) != 1:
            raise click.ClickException(f"{_CHOICE} does not choose a tile as this program expects, by: {before}")
        text = text.replace(before, after)
    choice.write_text(text)
    return to


def _run(tree: Path, stdout: int | None, module: str, *arguments: str) -> str:
    command = [sys.executable, "-m", module, *arguments]
    path = os.pathsep.join(filter(None, (str(tree), os.environ.get("PYTHONPATH"))))
    environment = os.environ | {"PYTHONPATH": path}
    done = subprocess.run(command, cwd=tree, check=True, env=environment, stdout=stdout, text=True)
    return done.stdout or ""


if __name__ == "__main__":
    main()
