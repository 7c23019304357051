"""Optimize models of growing size, each in a process of its own on one core: nodes per second, growth, and memory.

    python -m benchmarks.scale [--kind NAME ...] [--nodes N ...] [--target portable] [--json FILE] [--markdown FILE]

Times are CPU seconds (what one core that does nothing else would take), and the growth of a stage is the exponent b of
t = a n^b through all sizes: 1 is linear, 2 quadratic. Memory is the largest resident set of the process, interpreter,
libraries and ONNX Runtime's own included.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import onnx

from benchmarks.scale_models import KINDS, build

ROOT = Path(__file__).resolve().parent.parent
STAGES = ("load", "simplify", "match", "score", "plan", "select", "outline", "save", "verify", "choose")
Result = dict[str, Any]


@click.command(help=(__doc__ or "").split("\n\n")[0])
@click.option("--kind", "kinds", multiple=True, type=click.Choice(list(KINDS)), help="Only this kind (repeatable).")
@click.option("--nodes", "sizes", multiple=True, type=click.IntRange(min=1), default=(1_000, 5_000, 10_000, 50_000))
@click.option("--target", default="portable", show_default=True)
@click.option("--timeout", type=int, default=900, show_default=True, help="Seconds for one model.")
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write all results as one JSON list.")
@click.option("--markdown", "markdown_path", type=click.Path(path_type=Path), help="Write the tables.")
def main(
    kinds: tuple[str, ...],
    sizes: tuple[int, ...],
    target: str,
    timeout: int,
    json_path: Path | None,
    markdown_path: Path | None,
) -> None:
    results = []
    for kind in kinds or tuple(KINDS):
        for size in sorted(sizes):
            results.append(run_case(kind, size, target, timeout))
            click.echo(line(results[-1]))
    page = markdown(results)
    click.echo(page)
    if json_path:
        json_path.write_text(json.dumps(results, indent=1) + "\n")
    if markdown_path:
        markdown_path.write_text(page)
    sys.exit(1 if any("failure" in r for r in results) else 0)


def run_case(kind: str, nodes: int, target: str, timeout: int) -> Result:
    """Build a model and optimize it in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.onnx")
        onnx.save(build(kind, nodes), path)
        result: Result = {"kind": kind, "asked": nodes, "model_bytes": path.stat().st_size}
        command = [sys.executable, "-m", "benchmarks.scale_case", str(path), target]
        try:
            done = subprocess.run(command, cwd=ROOT, timeout=timeout, check=False, capture_output=True, text=True)
        except subprocess.TimeoutExpired:
            return {**result, "failure": f"not done within {timeout} s"}
        if done.returncode:
            return {**result, "failure": (done.stderr.strip().splitlines() or ["no output"])[-1]}
        return {**result, **json.loads(done.stdout)}


def total(result: Result) -> float:
    """CPU seconds of the whole run."""
    return float(sum(result["seconds"].values()))


def growth(points: Sequence[tuple[float, float]]) -> float | None:
    """The slope of log t over log n (least squares); None for less than two points, or times too short to tell."""
    logs = [(math.log(n), math.log(t)) for n, t in points if n > 0 and t >= 0.02]
    if len(logs) < 2:
        return None
    x, y = (sum(column) / len(logs) for column in zip(*logs, strict=True))
    spread = sum((a - x) ** 2 for a, _ in logs)
    return sum((a - x) * (b - y) for a, b in logs) / spread if spread else None


def line(result: Result) -> str:
    """One result, as it comes."""
    name = f"{result['kind']}, {result['asked']} nodes"
    if "failure" in result:
        return f"{name}: {result['failure']}"
    match = result["seconds"].get("match", 0.0)
    rate = f"{result['nodes'] / match:,.0f} nodes/s" if match else "no time"
    peak, other = result["peak_bytes"] / 1e6, result["runtime_peak_bytes"] / 1e6
    return (
        f"{name}: match {match:.2f} s ({rate}), all {total(result):.1f} s, {peak:.0f} MB, {other:.0f} in ONNX Runtime"
    )


def markdown(results: Sequence[Result]) -> str:
    """Seconds by stage and kind at each size, and how they grow."""
    done = [r for r in results if "failure" not in r]
    head = ["kind", "nodes", *STAGES, "whole run", "matched nodes/s", "peak MB", "ONNX Runtime's MB", "model MB"]
    rows = [_row(r) for r in done]
    sections = ["# How time and memory grow", _ABOUT, _table(head, rows)]
    kinds = list(dict.fromkeys(r["kind"] for r in done))
    growths = [_growths(kind, [r for r in done if r["kind"] == kind]) for kind in kinds]
    sections += ["Growth, the exponent b of t = a n^b:", _table(["kind", *STAGES, "whole run"], growths)]
    failures = [f"- {line(r)}" for r in results if "failure" in r]
    return "\n\n".join(sections + (["Not done:", "\n".join(failures)] if failures else [])) + "\n"


_ABOUT = """\
`python -m benchmarks.scale` wrote this page: `optimize --target portable` of models made of stacked layers and of
graphs made to be awkward (`benchmarks/scale_models.py`), each in a process of its own. Times are CPU seconds on one
core; the whole run includes starting Python, and ONNX Runtime's process. Memory is the largest resident set of the
process, libraries and mapped files included, and beside it that of the process in which ONNX Runtime runs the models.

`verify` opens the original as it is written, and the fused model as ONNX Runtime optimizes it; without optimizations
where more than a thousand nodes read one value (siblings, fan-out), for these take it time quadratic in the readers.
What the process of ONNX Runtime takes for this and for timing whole models is counted where it ends: under `choose`, or
under `save` where the original itself is written."""


def _row(result: Result) -> list[str]:
    seconds = result["seconds"]
    match = seconds.get("match", 0.0)
    return [
        result["kind"],
        f"{result['nodes']:,}",
        *(f"{seconds.get(stage, 0.0):.2f}" for stage in STAGES),
        f"{total(result):.1f}",
        f"{result['nodes'] / match:,.0f}" if match else "",
        f"{result['peak_bytes'] / 1e6:.0f}",
        f"{result['runtime_peak_bytes'] / 1e6:.0f}",
        f"{result['model_bytes'] / 1e6:.1f}",
    ]


def _growths(kind: str, results: Sequence[Result]) -> list[str]:
    stages = [[(r["nodes"], r["seconds"].get(stage, 0.0)) for r in results] for stage in STAGES]
    slopes = [growth(points) for points in (*stages, [(r["nodes"], total(r)) for r in results])]
    return [kind, *("" if b is None else f"{b:.2f}" for b in slopes)]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


if __name__ == "__main__":
    main()
