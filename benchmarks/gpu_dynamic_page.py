"""What `benchmarks.gpu_dynamic` found, as a Markdown page and JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from benchmarks.kept_page import slug
from benchmarks.runs import GOOD, Result
from benchmarks.tally import table

_NOISE = 1.02
"""Times that differ by less are called equal."""


def write_page(written: Sequence[Result], timed: Sequence[Result], folder: Path) -> Path:
    """Write `gpu-dynamic-DEVICE.md` and `.json` into `folder`; returns the path of the page."""
    device = next((r["machine"]["device"] for r in timed if "machine" in r), "unknown")
    path = folder / f"gpu-dynamic-{slug(device)}.md"
    folder.mkdir(parents=True, exist_ok=True)
    path.with_suffix(".json").write_text(json.dumps({"written": written, "timed": timed}, indent=1) + "\n")
    path.write_text(page(written, timed, device))
    return path


def problems(results: Sequence[Result]) -> list[list[str]]:
    """What did not end well, was slower than ONNX Runtime, or made a library more; and why."""
    found = [[r["id"], r["mode"], r.get("detail") or r["status"]] for r in results if r["status"] not in GOOD]
    timed = [r for r in results if "fused_ms" in r]
    found += [
        [r["id"], r["mode"], f"slower than ONNX Runtime: {r['fused_ms']:.4f} ms, not {r['ort_ms']:.4f}"]
        for r in timed
        if r["fused_ms"] > _NOISE * r["ort_ms"]
    ]
    for id in dict.fromkeys(r["id"] for r in timed):
        seen = {json.dumps(r["libraries"]) for r in timed if r["id"] == id}
        if len(seen) > 1:
            found.append([id, "all sizes", f"one library expected, found {', '.join(sorted(seen))}"])
    return found


def page(written: Sequence[Result], timed: Sequence[Result], device: str) -> str:
    """The Markdown page."""
    rows = [
        [
            r["id"],
            r["mode"].partition(" ")[2],
            f"{r['ort_ms']:.4f}",
            f"{r['fused_ms']:.4f}",
            f"{r['ort_ms'] / r['fused_ms']:.2f}x",
            f"{r['ort_error']:.1e}",
            f"{r['error']:.1e}",
            ", ".join(r["libraries"]) or "none",
        ]
        for r in timed
        if "fused_ms" in r
    ]
    failed = problems((*written, *timed))
    parts = [
        f"# Open sizes on {device}",
        "Made by `python -m benchmarks.gpu_dynamic`: exports with open batch and sequence, each opened once and run at"
        " all sizes, without CUDA graphs. Milliseconds are medians, the two models in turn; errors are the largest"
        " difference over the largest magnitude, against PyTorch in double precision. Nothing is compiled after a model"
        " is written.",
        table(["model", "batch x seq", "ORT", "fused", "over ORT", "error of ORT", "error", "library"], rows),
    ]
    if failed:
        parts += ["## Failed", table(["model", "size", "why"], failed)]
    return "\n\n".join(parts) + "\n"
