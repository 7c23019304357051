"""Build the libraries of families of GPU tests, or run a family's cases; what runs under compute-sanitizer.

    python -m tests.sanitize.cases FOLDER build FAMILY ...
    python -m tests.sanitize.cases FOLDER run FAMILY SECONDS SHARE SHARES

Products are ours, not the vendor's, whose kernels nobody here could mend. `run` takes every SHARES-th size from number
SHARE on, prints a line per size, and at its end how many it left out because SECONDS were over.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from math import prod
from pathlib import Path

import numpy as np

from tests.helpers.cuda_case import Case, fused_op
from tests.helpers.plan_interpreter import interpret
from tests.sanitize.families import FAMILIES

Run = Callable[[Case, Mapping[str, int]], None]


def by_size(cases: Sequence[Case]) -> list[tuple[Case, Mapping[str, int]]]:
    """Every case at every size that has any work, the small ones first: they are the odd ones."""
    runs = [(case, sizes) for case in cases for sizes in case.sizes if all(sizes.values())]
    return sorted(runs, key=lambda run: prod(run[1].values()))


def run_all(cases: Sequence[Case], seconds: float, run: Run, share: int = 0, shares: int = 1) -> int:
    """Run a share of them until the time is over; returns how many of it are left."""
    end = time.monotonic() + seconds
    runs = by_size(cases)[share::shares]
    for number, (case, sizes) in enumerate(runs):
        if time.monotonic() > end:
            return len(runs) - number
        run(case, sizes)
        print("ran", case.name, dict(sizes), flush=True)
    return 0


# torch, which only machines with a GPU need to have, is imported where something is run.


def build(folder: Path, families: Sequence[str]) -> None:
    from tests.helpers import gpu_runner

    for family in families:
        made = folder / family
        for old in made.glob("*.so"):
            old.unlink()
        gpu_runner.build_library([fused_op(c) for c in FAMILIES[family]], made, vendor=False)


def on_gpu(library: Path) -> Run:
    """Runs a case once at given sizes, on random numbers."""
    from tests.helpers import gpu_runner

    def run(case: Case, sizes: Mapping[str, int]) -> None:
        inputs = case.inputs(sizes, np.random.default_rng(0))
        with np.errstate(all="ignore"):
            shapes = [result.shape for result in interpret(case.plan, inputs)]
        gpu_runner.Runner(fused_op(case), library, inputs, shapes).run()

    return run


if __name__ == "__main__":
    place, what, *names = sys.argv[1:]
    if what == "build":
        build(Path(place), names)
    else:
        family, seconds, share, shares = names
        (built,) = Path(place, family).glob("*.so")
        print("left", run_all(FAMILIES[family], float(seconds), on_gpu(built), int(share), int(shares)))
