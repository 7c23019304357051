"""Optimize one model in the given modes and compare what it computes; one JSON line per mode on standard output.

Run by `benchmarks.corpus` in a process of its own, so that a crash takes nothing else along.

    python -m benchmarks.corpus_model MODEL.onnx TOLERANCE MODE [MODE ...]
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort

import fusion_cli
from benchmarks.in_file import in_file
from fusion_cli.errors import FusionError
from fusion_cli.load import load_model
from fusion_cli.report import Report
from fusion_cli.sessions import open_model
from fusion_cli.types import Options
from fusion_cli.verify import largest_error
from fusion_cli.verify.choice import Setting, measure
from fusion_cli.verify.feeds import make_feeds
from fusion_cli.verify.signature import signature_of

Array = npt.NDArray[np.generic]
MODES: dict[str, dict[str, Any]] = {
    "portable": {"targets": ["portable"], "verify": False},  # what is outlined, whether it is faster or not
    "cpu": {"targets": ["cpu"]},  # as on the command line without options
    "cpu --force": {"targets": ["cpu"], "force": True},
}
_CPU = ["CPUExecutionProvider"]


def main(model: Path, tolerance: float, modes: list[str]) -> None:
    inputs, reference = arrays(model)
    for mode in modes:
        start = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            result = run_mode(model, mode, Path(folder) / "fused.onnx", inputs, reference, tolerance)
        result |= {"mode": mode, "seconds": round(time.perf_counter() - start, 2)}
        print(json.dumps(result), flush=True)


def arrays(model: Path) -> tuple[dict[str, Array], dict[str, Array]]:
    """The inputs and the reference outputs that lie beside a model."""
    stored = dict(np.load(model.with_suffix(".npz")))
    inputs = {k.removeprefix("in__"): v for k, v in stored.items() if k.startswith("in__")}
    return inputs, {k.removeprefix("out__"): v for k, v in stored.items() if k.startswith("out__")}


def run_mode(
    model: Path, mode: str, fused: Path, inputs: dict[str, Array], reference: dict[str, Array], tolerance: float
) -> dict[str, Any]:
    """One mode's outcome: `status` ok, wrong, error or skipped, why, and what the report said."""
    try:
        report = fusion_cli.optimize(model, fused, remeasure=True, **MODES[mode])
    except FusionError as error:
        return {"status": "error", "detail": str(error)}
    except Exception as error:  # a defect: told apart from what a user can mend, and the tally goes on
        return {"status": "error", "detail": f"{type(error).__name__}: {error}"}
    sessions = {"library": runnable(fused, fusion_cli.session), "no library": runnable(fused)}
    failed = {name: reason for name, reason in sessions.items() if isinstance(reason, str)}
    detail = "; ".join(f"{name}: {reason}" for name, reason in failed.items())
    # Only a limit of ONNX Runtime itself excuses a file that does not load: the original must not load either.
    if failed and not isinstance(runnable(model), str):
        return {"status": "error", "detail": detail} | facts(report)
    if len(failed) == len(sessions):
        return {"status": "skipped", "detail": detail} | facts(report)
    try:
        errors = {name: compare(s, inputs, reference) for name, s in sessions.items() if not isinstance(s, str)}
    except Exception as error:  # a kernel that fails
        return {"status": "error", "detail": str(error).splitlines()[0]} | facts(report)
    worst = max(max(e.values()) for e in errors.values())
    # Inverted, so that a NaN error counts as wrong.
    status = "ok" if worst <= tolerance else "wrong"
    return {"status": status, "detail": detail, "errors": errors, "worst": worst} | facts(report) | speed(report)


def speed(report: Report) -> dict[str, Any]:
    """How fast what was written is, timed once more at the likeliest sizes: what it was chosen by would flatter it."""
    if report.choice is None or not report.choice.measured or report.output is None:
        return {}
    found = {"chosen": report.choice.chosen, "sizes": {n: list(s) for n, s in report.choice.measured[0].sizes.items()}}
    if report.choice.chosen == "original":
        return found
    signature = signature_of(load_model(Path(report.model)))
    shapes = report.choice.measured[0].sizes
    feeds = make_feeds(signature, Options(shapes=shapes), lambda _: "")
    libraries = [library.path for library in report.libraries]
    models = [partial(open_model, Path(report.model)), partial(open_model, Path(report.output), libraries=libraries)]
    ratio = measure(models, Setting(feeds)).speed(1)
    return found | {"speed": [ratio.ratio, ratio.low, ratio.high]}


def stock_session(path: Path, providers: Sequence[str]) -> ort.InferenceSession:
    """A session without any library."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    return ort.InferenceSession(path, options, providers=providers)


def runnable(path: Path, make: Callable[..., ort.InferenceSession] = stock_session) -> ort.InferenceSession | str:
    """A session of the model on the CPU, or why there is none."""
    try:
        with warnings.catch_warnings():
            # A library that does not fit is only warned of, and the model would run without it.
            warnings.simplefilter("error", UserWarning)
            return make(path, providers=_CPU)
    except Exception as error:  # ONNX Runtime's errors have no base class of their own
        return str(error).splitlines()[0]


def compare(session: ort.InferenceSession, inputs: dict[str, Array], reference: dict[str, Array]) -> dict[str, float]:
    """Relative error of every output."""
    outputs = session.run(list(reference), inputs)
    return {
        name: largest_error(expected, np.asarray(found))
        for (name, expected), found in zip(reference.items(), outputs, strict=True)
    }


def facts(report: Report) -> dict[str, Any]:
    """What the tally needs of a report."""
    return {
        "nodes_before": report.summary.nodes_before,
        "nodes_after": report.summary.nodes_after,
        "fusions": dict(Counter(f.rule for f in report.fusions)),
        "idioms": dict(report.idioms),
        "in_file": in_file(onnx.load(report.model, load_external_data=False)),
        "rolled_back": sorted({r.rule for r in report.rejected if r.stage == "verify"}),
        "build_failures": sorted({r.rule for r in report.rejected if r.stage in ("emit", "build")}),
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3:])
