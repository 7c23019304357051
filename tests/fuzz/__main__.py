"""Draw graphs and damaged models, optimize each, and compare with ONNX Runtime.

    python -m tests.fuzz [--graphs N] [--mutants N] [--seed N] [--target portable|cpu|cuda] [--together N] [--jobs N]
                         [--seconds N] [--keep DIR]

A valid graph has to compute the same at three sizes, with every fusion that the rules find, in stock ONNX Runtime and
with its library, on this machine's GPU where the target is cuda; a damaged one has to be refused in words, or to
compute the same too. Prints what came of them, with the seed of each that is not as it should be, and keeps its model
in DIR, of a graph the least part of it that shows the same; exit code 1 if there is one.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from random import Random

from fusion_cli.sessions import CPU
from fusion_cli.sessions.process import Process
from fusion_cli.targets import resolve_targets
from tests.fuzz.groups import CRASH, Groups
from tests.fuzz.together import rules_read_once
from tests.fuzz.trial import GOOD, Trials, budget, smallest
from tests.fuzz.variety import draw_graph

_SHOWN = 500
"""Graphs or mutants from one line of counts to the next."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--graphs", type=int, default=1000)
    parser.add_argument("--mutants", type=int, help="default: 1000, and none for cuda")
    parser.add_argument("--seed", type=int, default=0, help="of the first; the others follow")
    parser.add_argument("--target", choices=("portable", "cpu", "cuda"), default="portable")
    parser.add_argument("--together", type=int, default=50, help="graphs whose kernels are compiled at once")
    parser.add_argument("--jobs", type=int, default=1, help="groups of graphs that are compiled and run at once")
    parser.add_argument("--seconds", type=float, default=86400.0, help="after which nothing is begun or waited for")
    parser.add_argument("--keep", type=Path, default=Path("fuzz-out"))
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    start, is_gpu = time.monotonic(), asked.target == "cuda"
    target = _of_gpu() if is_gpu else asked.target
    if target is None:
        parser.error("cuda needs a GPU here, nvcc that knows it, and onnxruntime-gpu: see `fusion-cli doctor`")
    end = start + asked.seconds
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder, Process(budget(target)) as process, rules_read_once():
        trials = Trials(Path(folder), target, process)
        seeds = range(asked.seed, asked.seed + asked.graphs)
        if target != "portable" and asked.together > 1:
            found = Groups(target, asked.together, asked.jobs, end).outcomes(seeds)
        else:
            found = ((seed, trials.graph(seed)) for seed in seeds if time.monotonic() < end)
        bad = _all("graphs", seeds, found, trials, asked.keep)
        mutants = (0 if is_gpu else 1000) if asked.mutants is None else asked.mutants
        seeds = range(asked.seed, asked.seed + mutants)
        found = ((seed, trials.mutant(seed)) for seed in seeds if time.monotonic() < end)
        bad += _all("mutants", seeds, found, trials, asked.keep)
    peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    print(f"{time.monotonic() - start:.0f} s; at most {peak / 2**20:.1f} GiB in one process")
    return min(bad, 1)


def _of_gpu() -> str | None:
    """The target of this machine's GPU, if ONNX Runtime has kernels for it too."""
    with Process() as process:
        if "CUDAExecutionProvider" not in process.available_providers():
            return None
    return next((target.name for target in resolve_targets(["auto"]) if target.kind == "cuda"), None)


def _all(name: str, seeds: range, found: Iterable[tuple[int, str]], trials: Trials, keep: Path) -> int:
    """How many are not as they should be."""
    tally: Counter[str] = Counter()
    left, slowest, since = set(seeds), 0.0, time.monotonic()
    for seed, said in found:
        slowest, since = max(slowest, time.monotonic() - since), time.monotonic()
        kind = said.partition(":")[0]
        tally[kind] += 1
        left.remove(seed)
        if said not in GOOD:
            print(f"{name} {seed}: {said}", flush=True)
        if kind not in GOOD and kind != CRASH:  # what ended another process is not drawn in this one
            keep.mkdir(parents=True, exist_ok=True)
            (keep / f"{name}-{seed}.onnx").write_bytes(_model(name, seed, kind, trials))
            since = time.monotonic()
        if not tally.total() % _SHOWN:
            print(f"{tally.total()} {name}: {_counts(tally)}", flush=True)
    if seeds:
        done = _spans(seed for seed in seeds if seed not in left)
        print(f"{tally.total()} {name}, seeds {done}: {_counts(tally)}; {slowest:.1f} s from one to the next at most")
    if left:
        print(f"{len(left)} {name} were not reached in time: seeds {_spans(sorted(left))}", flush=True)
    return sum(count for kind, count in tally.items() if kind not in GOOD)


def _spans(seeds: Iterable[int]) -> str:
    """Rising numbers as "3 to 7, 9"."""
    spans: list[list[int]] = []
    for seed in seeds:
        if spans and spans[-1][-1] == seed - 1:
            spans[-1][1:] = [seed]
        else:
            spans.append([seed])
    return ", ".join(" to ".join(map(str, span)) for span in spans) or "none"


def _counts(tally: Counter[str]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in tally.most_common())


def _model(name: str, seed: int, kind: str, trials: Trials) -> bytes:
    """The model of a seed; of a graph the least part of it that has the same outcome, but for a GPU, where each part
    would be half a minute of nvcc."""
    if name == "mutants":
        return trials.source.read_bytes()
    proto, feeds = draw_graph(Random(seed))
    whole: bytes = proto.SerializeToString()
    return whole if trials.providers is not CPU else smallest(trials, whole, feeds, kind)


if __name__ == "__main__":
    sys.exit(main())
