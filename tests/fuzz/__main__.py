"""Draw graphs and damaged models, optimize each, and compare with ONNX Runtime.

    python -m tests.fuzz [--graphs N] [--mutants N] [--seed N] [--target portable|cpu] [--together N] [--keep DIR]

A valid graph has to compute the same at three sizes, with every fusion that the rules find, in stock ONNX Runtime and
with its library; a damaged one has to be refused in words, or to compute the same too. Prints what came of them, with
the seed of each that is not as it should be, and keeps its model in DIR, of a graph the least part of it that shows the
same; exit code 1 if there is one.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random

from fusion_cli.sessions.process import Process
from tests.fuzz.together import outcomes, rules_read_once
from tests.fuzz.trial import GOOD, Trials, budget, smallest
from tests.fuzz.variety import draw_graph

_SHOWN = 500
"""Graphs or mutants from one line of counts to the next."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--graphs", type=int, default=1000)
    parser.add_argument("--mutants", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="of the first; the others follow")
    parser.add_argument("--target", choices=("portable", "cpu"), default="portable")
    parser.add_argument("--together", type=int, default=50, help="graphs whose kernels are compiled at once")
    parser.add_argument("--keep", type=Path, default=Path("fuzz-out"))
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    start, bad = time.monotonic(), 0
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder, Process(budget()) as process, rules_read_once():
        alone, groups = Path(folder, "alone"), Path(folder, "together")
        alone.mkdir()
        trials = Trials(alone, asked.target, process)
        graphs = range(asked.seed, asked.seed + asked.graphs)
        if asked.target == "cpu" and asked.together > 1:
            found = _together(graphs, asked.together, groups, process)
        else:
            found = ((seed, trials.graph(seed)) for seed in graphs)
        bad += _all("graphs", found, trials, asked.keep)
        mutants = range(asked.seed, asked.seed + asked.mutants)
        bad += _all("mutants", ((seed, trials.mutant(seed)) for seed in mutants), trials, asked.keep)
    peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    print(f"{time.monotonic() - start:.0f} s; at most {peak / 2**20:.1f} GiB in one process")
    return min(bad, 1)


def _together(seeds: range, many: int, folder: Path, process: Process) -> Iterator[tuple[int, str]]:
    for first in range(seeds.start, seeds.stop, many):
        folder.mkdir()
        yield from outcomes(seeds[first - seeds.start :][:many], folder, process)
        shutil.rmtree(folder)


def _all(name: str, found: Iterable[tuple[int, str]], trials: Trials, keep: Path) -> int:
    """How many are not as they should be."""
    tally: Counter[str] = Counter()
    seed, slowest, since = 0, 0.0, time.monotonic()
    for seed, said in found:
        slowest, since = max(slowest, time.monotonic() - since), time.monotonic()
        kind = said.partition(":")[0]
        tally[kind] += 1
        if kind not in GOOD:
            print(f"{name} {seed}: {said}", flush=True)
            keep.mkdir(parents=True, exist_ok=True)
            (keep / f"{name}-{seed}.onnx").write_bytes(_model(name, seed, kind, trials))
            since = time.monotonic()
        if not tally.total() % _SHOWN:
            print(f"{tally.total()} {name} up to seed {seed}: {_counts(tally)}", flush=True)
    if tally:
        print(
            f"{tally.total()} {name} up to seed {seed}: {_counts(tally)}; {slowest:.1f} s for one at most", flush=True
        )
    return sum(count for kind, count in tally.items() if kind not in GOOD)


def _counts(tally: Counter[str]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in tally.most_common())


def _model(name: str, seed: int, kind: str, trials: Trials) -> bytes:
    """The model of a seed; of a graph the least part of it that has the same outcome."""
    if name == "mutants":
        return trials.source.read_bytes()
    proto, feeds = draw_graph(Random(seed))
    return smallest(trials, proto.SerializeToString(), feeds, kind)


if __name__ == "__main__":
    sys.exit(main())
