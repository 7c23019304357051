"""Optimize one model in the given modes and time what comes out against the original; one JSON line per mode.

Run by `benchmarks.cpu_models` in a process of its own, so that a crash takes nothing else along.

    python -m benchmarks.cpu_models_model MODEL.onnx TOLERANCE MODE [MODE ...]
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import fusion_cli
from fusion_cli.errors import FusionError
from fusion_cli.measured import OutputCheck
from fusion_cli.report import Report
from fusion_cli.sessions import Array, CannotRun, LocalRunner, open_model
from fusion_cli.sessions.timing import Timing, interleave
from fusion_cli.verify import compare, limit
from fusion_cli.verify.choice import Setting, measure

SECONDS = 4.0
"""How long the two models are timed, for each number of threads."""
THREADS = (1, 2)
_OPENINGS = 5


@dataclass(frozen=True)
class Mode:
    """What is made of a model: by which options, with the realistic inputs to choose by or without, and whether it is
    opened with its library."""

    options: Mapping[str, Any]
    given_inputs: bool = False
    library: bool = True


MODES: Mapping[str, Mode] = {
    "written": Mode({"targets": ["cpu"]}),  # what the default command line writes
    "written, --inputs": Mode({"targets": ["cpu"]}, given_inputs=True),
    "simplified": Mode({"targets": ["portable"], "opt_level": 0, "verify": False}),
    "functions": Mode({"targets": ["cpu"], "verify": False}, library=False),  # which ONNX Runtime inlines
    "kernels": Mode({"targets": ["cpu"], "verify": False}),  # all that are predicted to pay, none taken back
}


def main(model: Path, modes: Sequence[str]) -> None:
    stored = np.load(model.with_suffix(".npz"))
    feeds = {name.removeprefix("in__"): stored[name] for name in stored.files}
    for name in modes:
        start = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            result = run_mode(model, MODES[name], Path(folder) / "made.onnx", feeds)
        print(json.dumps(result | {"mode": name, "seconds": round(time.perf_counter() - start, 2)}), flush=True)


def run_mode(model: Path, mode: Mode, made: Path, feeds: dict[str, Array]) -> dict[str, Any]:
    """One mode's outcome: `status` ok, wrong or error, why, the times, and what the report said."""
    options = {**mode.options, "inputs": model.with_suffix(".npz")} if mode.given_inputs else mode.options
    try:
        report = fusion_cli.optimize(model, made, remeasure=True, **options)
        libraries = [lib.path for lib in report.libraries if lib.target == "cpu"] if mode.library else []
        checks = compare_outputs(model, open_model(made, libraries=libraries), feeds)
        openers = [partial(open_model, model), partial(open_model, made, libraries=libraries)]
        times = time_both(openers, feeds)
    except (FusionError, CannotRun) as problem:
        return {"status": "error", "detail": str(problem)}
    worst = max((c.error for c in checks), default=0.0)
    status = "ok" if all(c.error <= c.tolerance for c in checks) else "wrong"
    return {"status": status, "detail": "", "worst": worst, **times, **facts(report)}


def compare_outputs(model: Path, made: LocalRunner, feeds: dict[str, Array]) -> tuple[OutputCheck, ...]:
    """As `optimize` does, on the inputs given here."""
    reference = open_model(model, use="reference").run(feeds)
    return compare(reference, [made.run(feeds)], limit(["float32"]), partial(open_model, model), feeds)


def time_both(openers: Sequence[Callable[..., LocalRunner]], feeds: dict[str, Array]) -> dict[str, Any]:
    """Two models in turn: runs by number of threads, and how long they take to open."""
    runs = {
        str(threads): measure([partial(o, threads=threads) for o in openers], Setting(feeds, seconds=SECONDS))
        for threads in THREADS
    }
    opening = interleave([partial(o, threads=1, use="timing") for o in openers], seconds=1, least=_OPENINGS)
    return {"threads": {n: compared(t) for n, t in runs.items()}, "load": compared(opening)}


def compared(timing: Timing) -> dict[str, Any]:
    """Of two models: microseconds of the first, and the other's speed against it."""
    return {"us": timing.first_us, "rounds": timing.rounds, "speed": asdict(timing.speed(1))}


def facts(report: Report) -> dict[str, Any]:
    """What the page needs of a report."""
    choice = report.choice
    return {
        "nodes": [report.summary.nodes_before, report.summary.nodes_after],
        "algebra": {r.rule: r.places for r in report.algebra},
        "fusions": dict(Counter(f.rule for f in report.fusions)),
        "chosen": None if choice is None else choice.chosen,
        "why": None if choice is None else choice.why,
        "measured": [] if choice is None else [asdict(measurement) for measurement in choice.measured],
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[3:])  # how far outputs may be off is what `optimize` allows
