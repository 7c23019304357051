"""The GPU benchmark's results as a Markdown page and JSON, and what counts as a failed check."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.tally import table

Result = Mapping[str, Any]
COLUMNS = (
    "fused", "fused, graph", "ORT", "ORT, graph", "ORT transformers", "torch", "torch.compile", "torch, graph",
)  # fmt: skip
CUDA = "CUDAExecutionProvider"
ERROR_FACTOR = 1.5
"""A fused model may be this much further from the exact result than ONNX Runtime's own."""
NEGLIGIBLE = 1e-6
"""Errors below this are float32 rounding of the output, and not compared."""


def problems(result: Result) -> list[str]:
    """What a case got wrong; empty if it passed."""
    failures = result.get("failures", {})
    found = [
        f"{name} failed: {why}" for name, why in failures.items() if name.startswith(("fused", "placement", "case"))
    ]
    if "case" in failures:
        return found
    errors = result["errors"]
    for name in ("fused", "fused, graph"):
        allowed = max(ERROR_FACTOR * errors.get("ORT", 0.0), NEGLIGIBLE)
        # Inverted, so that a NaN error is a problem.
        if name in errors and not errors[name] <= allowed:
            found.append(f"{name}: error {errors[name]:.2e}, at most {allowed:.2e} allowed")
    for op, calls in result["calls"].items():
        ran = result.get("placement", {}).get(op, {})
        if "placement" not in failures and ran != {CUDA: calls}:
            found.append(f"{op}: {calls} on {CUDA} expected, ran {ran or 'nowhere: inlined'}")
    return found


def write_page(results: Sequence[Result], folder: Path) -> Path:
    """Write `gpu-DEVICE.md` and `.json` into `folder`; returns the path of the page."""
    device = next((r["device"] for r in results if "device" in r), "unknown")
    path = folder / f"gpu-{re.sub('[^a-z0-9]+', '-', device.lower()).strip('-')}.md"
    folder.mkdir(parents=True, exist_ok=True)
    path.with_suffix(".json").write_text(json.dumps(list(results), indent=1) + "\n")
    path.write_text(page(results, device))
    return path


def page(results: Sequence[Result], device: str) -> str:
    """The Markdown page."""
    failures = [[r["example"], name, why] for r in results for name, why in r.get("failures", {}).items()]
    parts = [
        f"# {device}",
        "Made by `python -m benchmarks.gpu`. Milliseconds per run: medians of blocks of runs enqueued back to back,"
        " contenders taking turns. *graph* is a CUDA graph; *ORT* has all its optimizations on, *ORT transformers* adds"
        " its offline optimizer; *floor* is arithmetic at the peak rate or every byte moved once, whichever takes"
        " longer. float32 matrices may be multiplied as TF32 by all contenders.",
        table(["example", "input", *COLUMNS, "floor"], [_times(r) for r in results if "ms" in r]),
        "## How much faster",
        table(
            ["example", "over ORT", "over ORT, both with graph", "over torch", "over torch.compile"],
            [_ratios(r) for r in results if "ms" in r],
        ),
        "## Numbers and placement",
        "Largest error over the largest output, against the model computed in double precision. A fused model passes"
        f" with at most {ERROR_FACTOR} times ONNX Runtime's own error and every fused node on the CUDA provider."
        " *Forced*: the cost model expected no gain.",
        table(
            ["example", "regions", "fused", "fused, graph", "ORT", "fused nodes", "other nodes off the GPU", "passed"],
            [_checks(r) for r in results if "errors" in r],
        ),
    ]
    if failures:
        parts += ["## Failed", table(["example", "what", "why"], failures)]
    return "\n\n".join(parts) + "\n"


def _times(result: Result) -> list[str]:
    shape = "x".join(map(str, result["shape"])) + " " + result["dtype"]
    cells = [f"{result['ms'][c]:.4f}" if c in result["ms"] else "-" for c in COLUMNS]
    return [result["example"], shape, *cells, f"{result['floor_ms']:.4f}"]


def _ratios(result: Result) -> list[str]:
    pairs = (("ORT", "fused"), ("ORT, graph", "fused, graph"), ("torch", "fused"), ("torch.compile", "fused"))
    ms = result["ms"]
    return [result["example"], *(f"{ms[a] / ms[b]:.2f}x" if a in ms and b in ms else "-" for a, b in pairs)]


def _checks(result: Result) -> list[str]:
    errors = result["errors"]
    cells = [f"{errors[n]:.2e}" if n in errors else "-" for n in ("fused", "fused, graph", "ORT")]
    calls = sum(result["calls"].values())
    on = sum(c.get(CUDA, 0) for c in result.get("placement", {}).values())
    elsewhere = ", ".join(f"{n} {op}" for op, n in sorted(result.get("elsewhere", {}).items()))
    rules = ", ".join(f"{n} {rule}" for rule, n in result["rules"].items()) + " (forced)" * result["forced"]
    passed = "no" if problems(result) else "yes"
    return [result["example"], rules or "none", *cells, f"{on} of {calls}", elsewhere or "none", passed]
