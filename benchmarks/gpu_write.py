"""Export a model of gpu_models.toml and optimize it; one JSON line per mode.

Run by the GPU benchmarks in a process of its own, of which several run at a time.

    python -m benchmarks.gpu_write FOLDER/ID.onnx TOLERANCE export|quick|fused ...
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import onnx

import fusion_cli
from benchmarks.gpu_specs import spec_of
from fusion_cli.errors import FusionError
from fusion_cli.report import Report

MODES = ("export", "quick", "fused")
_COMPILERS = 3
"""At once, where other models are compiled beside this one."""


def main(path: Path, modes: Sequence[str]) -> None:
    for mode in modes:
        start = time.perf_counter()
        result = run_mode(path, mode)
        print(json.dumps(result | {"mode": mode, "seconds": round(time.perf_counter() - start, 1)}), flush=True)


def run_mode(path: Path, mode: str) -> dict[str, Any]:
    """One mode's outcome: `status` ok or error, why, and what was made."""
    if mode == "export":
        from benchmarks.gpu_zoo import export  # optimizing needs no torch

        export(spec_of(path.stem), path)
        return {"status": "ok", "nodes": len(onnx.load(path, load_external_data=False).graph.node)}
    if not path.is_file():
        return {"status": "error", "detail": "there is no export of it"}
    try:
        # All else as on the default command line.
        options: dict[str, Any] = {"verify": False, "jobs": _COMPILERS} if mode == "quick" else {}
        return {"status": "ok", **facts(fusion_cli.optimize(path, made_path(path, mode), remeasure=True, **options))}
    except FusionError as problem:
        return {"status": "error", "detail": str(problem)}


def made_path(path: Path, mode: str) -> Path:
    """Where the optimized model of an export lies."""
    return path.with_suffix(f".{mode}.onnx")


def require_made(path: Path, mode: str, maker: str) -> None:
    """Raises ClickException where there is nothing that the module `maker` made of what lies at `path`."""
    if not made_path(path, mode).is_file():
        raise click.ClickException(f"no {made_path(path, mode)}: run `python -m {maker} --only {path.stem}`")


def facts(report: Report) -> dict[str, Any]:
    """What the page needs of a report."""
    return {
        "nodes": [report.summary.nodes_before, report.summary.nodes_after],
        "fusions": dict(Counter(f.rule for f in report.fusions)),
        "chosen": "kernels" if report.choice is None else report.choice.chosen,
        "why": "" if report.choice is None else report.choice.why,
        "libraries": [lib.path.name for lib in report.libraries],
        "notes": list(report.notes),
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[3:])
