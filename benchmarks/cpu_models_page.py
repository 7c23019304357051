"""What `benchmarks.cpu_models` found, as a Markdown page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnxruntime

from benchmarks.cpu_models_model import MODES, SECONDS, THREADS
from benchmarks.runs import Result
from benchmarks.tally import table
from benchmarks.wheel_models import WheelModel
from fusion_cli.sessions.timing import Speed

_WRITTEN = "written"


def page(models: Sequence[WheelModel], results: Sequence[Result], skipped: Mapping[str, str], machine: str) -> str:
    """The page; `skipped` says why a model is not there."""
    good = {(r["id"], r["mode"]): r for r in results if r["status"] in ("ok", "wrong")}
    parts = [
        "# Models from wheels, on a CPU",
        f"{len(models)} models that come in wheels of PyPI (`benchmarks/cpu_models.toml`), at the sizes that those who"
        " use them give them. What `fusion-cli optimize MODEL -o OUT --target cpu` writes is run in turn with the"
        f" original in ONNX Runtime {onnxruntime.__version__}, {SECONDS:g} s for each number of threads, in three pairs"
        " of sessions. A ratio is the median, over rounds, of the original's time over that of what was written, with"
        " the interval that holds the true median with a confidence of 95%. Loading is with one thread."
        f" Machine: {machine}. Made by `python -m benchmarks.cpu_models --markdown`.",
        "## Written by default",
        _written(models, good),
    ]
    others = [mode for mode in MODES if mode != _WRITTEN and any(m == mode for _, m in good)]
    if others:
        parts += ["## One by one", _READING, _candidates(models, good, others)]
    parts += ["## Exact algebra", _algebra(models, good), "## Not measured", _missing(models, results, skipped)]
    return "\n\n".join(parts) + "\n"


_READING = (
    "Ratios against the original at one thread and at two: `written, --inputs` chooses by the inputs measured with"
    " here, `simplified` is exact algebra alone, `functions` what kernels stand for, without the library, and `kernels`"
    " all that were predicted to pay, none taken back."
)


def _written(models: Sequence[WheelModel], good: Mapping[tuple[str, str], Result]) -> str:
    header = ["model", "inputs", "nodes", "written", *_columns(), "load, ms"]
    rows = [_row(m, good[m.id, _WRITTEN]) for m in models if (m.id, _WRITTEN) in good]
    return table(header, rows)


def _columns() -> list[str]:
    return [column for n in THREADS for column in (f"{n} thread{'s' * (n > 1)}, ms", "ratio")]


def _row(model: WheelModel, result: Result) -> list[object]:
    sizes = ", ".join("x".join(map(str, i.shape)) or "scalar" for i in model.inputs.values())
    times = [cell for n in THREADS for cell in _times(result["threads"][str(n)])]
    load, speed = result["load"], _speed(result["load"])
    opened = f"{load['us'] / 1e3:.1f} -> {load['us'] / speed.ratio / 1e3:.1f}"
    before, after = result["nodes"]
    wrong = f" (wrong: {result['worst']:.1g})" if result["status"] == "wrong" else ""
    return [model.id, sizes, f"{before} -> {after}", f"{result['chosen']}{wrong}", *times, opened]


def _times(compared: Mapping[str, Any]) -> tuple[str, str]:
    return f"{compared['us'] / 1e3:.3f}", str(_speed(compared))


def _speed(compared: Mapping[str, Any]) -> Speed:
    return Speed(**compared["speed"])


def _candidates(models: Sequence[WheelModel], good: Mapping[tuple[str, str], Result], modes: Sequence[str]) -> str:
    rows = [[m.id, *(_ratios(good.get((m.id, mode))) for mode in (_WRITTEN, *modes))] for m in models]
    return table(["model", _WRITTEN, *modes], rows)


def _ratios(result: Result | None) -> str:
    if result is None:
        return "-"
    return ", ".join(f"{_speed(result['threads'][str(n)]).ratio:.2f}x" for n in THREADS)


def _algebra(models: Sequence[WheelModel], good: Mapping[tuple[str, str], Result]) -> str:
    rows = []
    for model in models:
        result = next((good[model.id, mode] for mode in MODES if (model.id, mode) in good), None)
        if result is not None:
            rows.append([model.id, ", ".join(f"{n} {rule}" for rule, n in result["algebra"].items()) or "none"])
    return table(["model", "rules applied, and at how many places"], rows)


def _missing(models: Sequence[WheelModel], results: Sequence[Result], skipped: Mapping[str, str]) -> str:
    tried = {r["id"] for r in results}
    rows = [[m.id, "skipped", skipped.get(m.id, "not downloaded")] for m in models if m.id not in tried]
    rows += [
        [r["id"], f"{r['mode']}: {r['status']}", r["detail"]] for r in results if r["status"] not in ("ok", "wrong")
    ]
    return table(["model", "outcome", "why"], rows) if rows else "None: all were."
