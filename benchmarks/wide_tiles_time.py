"""Time the tiles of cases that benchmarks.wide_tiles has built; a line of a table for each.

Run by it in a process of its own, in the copy of the project that obeys the environment.

    python -m benchmarks.wide_tiles_time FOLDER ROUNDS CASE [CASE ...]
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from benchmarks import gpu_clock
from benchmarks.contenders import Contender, Setting, flat, has_gpu, of_session
from benchmarks.gpu_write import made_path
from benchmarks.kernel_cases import KernelCase, case_of
from benchmarks.kernel_time import error_of, inputs_of
from benchmarks.kernel_yardsticks import exact, yardsticks
from benchmarks.runs import TOLERANCE
from benchmarks.wide_tiles import TILE

_MOST_TILES = 48


def main(folder: Path, rounds: int, cases: list[str]) -> None:
    if has_gpu():
        torch.backends.cuda.preferred_blas_library("cublaslt")
    print("| case | tile | us |\n|---|---|---:|")
    with torch.no_grad():
        for id in cases:
            print("\n".join(rows_of(case_of(id), folder, rounds)), flush=True)


def rows_of(case: KernelCase, folder: Path, rounds: int) -> Iterator[str]:
    """A line for each tile that a case can be computed by, the quickest first, and for what it is held against."""
    inputs = inputs_of(case)
    want = exact(case, inputs)
    made = made_path(folder / f"{case.id}.onnx", "kernels")
    ours = of_session(made, Setting("kernels"), inputs, [t.half() for t in want])
    calls = {tile: (ours, number) for tile, number in tiles_of(ours).items()}
    wrong = [tile for tile, (_, number) in calls.items() if not is_right(ours, number, want)]
    for name, call in yardsticks(case, inputs).items():
        calls[name] = (Contender(lambda call=call: flat(call()), torch.cuda.Stream() if has_gpu() else None), 0)
    us: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, (contender, number) in calls.items():
            os.environ[TILE] = str(number)
            us[name].append(gpu_clock.kernel_us(contender)[0])
    for name, found in sorted(us.items(), key=lambda x: min(x[1])):
        times = " ".join(f"{x:.2f}" for x in found)
        yield f"| {case.id} | {name} | {times}{' WRONG' if name in wrong else ''} |"


def is_right(ours: Contender, number: int, want: Sequence[Tensor]) -> bool:
    """Whether a tile's results are what they are to be."""
    os.environ[TILE] = str(number)
    return error_of(ours, want) <= TOLERANCE["f16"]


def tiles_of(ours: Contender) -> dict[str, int]:
    """The numbers of the tiles that run, by their parameters."""
    found: dict[str, int] = {}
    for number in range(_MOST_TILES):
        os.environ[TILE] = str(number)
        found.setdefault(tile_that_ran(ours), number)
    return found


def tile_that_ran(ours: Contender) -> str:
    """The parameters in the name of the kernel that a run launches; "none" where it launches no other."""
    if ours.stream is None:
        return "none"
    with profile(activities=[ProfilerActivity.CUDA]) as profiled, torch.cuda.stream(ours.stream):
        ours.call()
        torch.cuda.synchronize()
    names = [f"{m[1]} {m[2]}" for e in profiled.events() if (m := re.search(r"(Wide|Swapped)Tile<(.*?)>", e.name))]
    return re.sub(r"\((int|bool)\)", "", names[0]) if names else "none"


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
