"""Draw graphs and damaged models, optimize each, and compare with ONNX Runtime.

    python -m tests.fuzz [--graphs N] [--mutants N] [--seed N] [--target portable|cpu] [--keep DIR]

A valid graph has to compute the same at three sizes, with every fusion that the rules find, in stock ONNX Runtime and
with its library; a damaged one has to be refused in words, or to compute the same too. Prints what came of them, with
the seed of each that is not as it should be, and keeps its model in DIR, of a graph the least part of it that shows the
same; exit code 1 if there is one.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

from fusion_cli.sessions.process import Process
from tests.fuzz.graphs import draw_graph
from tests.fuzz.trial import GOOD, Trials, budget, smallest


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--graphs", type=int, default=1000)
    parser.add_argument("--mutants", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="of the first; the others follow")
    parser.add_argument("--target", choices=("portable", "cpu"), default="portable")
    parser.add_argument("--keep", type=Path, default=Path("fuzz-out"))
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    start, bad = time.monotonic(), 0
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder, Process(budget()) as process:
        trials = Trials(Path(folder), asked.target, process)
        for name, count, trial in (("graphs", asked.graphs, trials.graph), ("mutants", asked.mutants, trials.mutant)):
            bad += _all(name, range(asked.seed, asked.seed + count), trial, trials, asked.keep)
    peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    print(f"{time.monotonic() - start:.0f} s; at most {peak / 2**20:.1f} GiB in one process")
    return min(bad, 1)


def _all(name: str, seeds: range, trial: Callable[[int], str], trials: Trials, keep: Path) -> int:
    """How many are not as they should be."""
    tally: Counter[str] = Counter()
    slowest = 0.0
    for seed in seeds:
        start = time.monotonic()
        said = trial(seed)
        slowest = max(slowest, time.monotonic() - start)
        kind = said.partition(":")[0]
        tally[kind] += 1
        if kind not in GOOD:
            print(f"{name} {seed}: {said}", flush=True)
            keep.mkdir(parents=True, exist_ok=True)
            data = trials.source.read_bytes()
            if name == "graphs":
                data = smallest(trials, data, draw_graph(Random(seed))[1], kind)
            (keep / f"{name}-{seed}.onnx").write_bytes(data)
    counts = ", ".join(f"{count} {kind}" for kind, count in tally.most_common())
    print(f"{len(seeds)} {name} from seed {seeds.start}: {counts}; the slowest took {slowest:.1f} s", flush=True)
    return sum(count for kind, count in tally.items() if kind not in GOOD)


if __name__ == "__main__":
    sys.exit(main())
