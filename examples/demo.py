"""Optimize the bundled examples for this CPU and for an H200, run them before and after, and show what happened.

    python -m examples.demo [FOLDER]

Restores each example's weights into FOLDER (default: demo-out), writes the fused model and its bundle beside it, and
compares the two in ONNX Runtime on this machine. CUDA sources are compiled where nvcc is found; none is needed.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import fusion_cli
from examples import weights
from fusion_cli.report import Report
from fusion_cli.sessions import LocalRunner, open_model
from fusion_cli.sessions.timing import Timing
from fusion_cli.types import Rejection
from fusion_cli.verify import largest_error

CPU, CUDA = "cpu", "sm_90a"
SHOWN_REASONS = 3


@dataclass(frozen=True)
class Example:
    """A bundled model, and the sizes it is optimized and run for."""

    name: str
    title: str
    shape: tuple[int, ...]
    dims: tuple[str, ...]
    """Names of the input's dimensions; "" for a fixed one."""


EXAMPLES = (
    Example("transformer_ts17", "Transformer layer, TorchScript opset 17", (1, 256, 768), ("batch", "seq", "")),
    Example("transformer_dyn23", "Transformer layer, dynamo opset 23", (1, 256, 768), ("batch", "seq", "")),
    Example("conv_stack", "Conv + BatchNorm + ReLU stack", (1, 3, 224, 224), ("batch", "", "height", "width")),
)


@dataclass(frozen=True)
class Outcome:
    """What optimizing and running one example gave. Errors are relative to the largest value of an output."""

    report: Report
    errors: dict[str, float]
    timing: Timing
    noise: float
    """By what share the times of two sessions of the original differ."""


def main(folder: Path) -> None:
    console = Console(width=None if sys.stdout.isatty() else 140)
    outcomes = []
    for example in EXAMPLES:
        with console.status(f"{example.title}: optimizing"):
            outcomes.append(run(example, folder))
    console.print(table(outcomes))
    for note in dict.fromkeys(note for outcome in outcomes for note in outcome.report.notes):
        console.print(f"note: {note}", markup=False, highlight=False, soft_wrap=True)
    first = folder / EXAMPLES[0].name
    console.print(
        f"Next: {first}.fused.fusion/ holds report.html and .json, the generated sources (src/) and libraries (lib/);\n"
        f"      fusion-cli explain {first}.onnx   says of every region why it was fused or not;\n"
        f"      fusion-cli bench {first}.onnx {first}.fused.onnx   times the two again.",
        highlight=False,
        soft_wrap=True,
    )


def run(example: Example, folder: Path) -> Outcome:
    """Restore, optimize, then run both models on the same input."""
    original = weights.restore(example.name, folder / f"{example.name}.onnx")
    fused = folder / f"{example.name}.fused.onnx"
    dims = {name: (size, size) for name, size in zip(example.dims, example.shape, strict=True) if name}
    report = fusion_cli.optimize(original, fused, targets=[CPU, CUDA], dims=dims)
    before = open_model(original, use="timing")
    after = LocalRunner(fusion_cli.session(fused, providers=["CPUExecutionProvider"]))
    feeds = {"x": np.random.default_rng(0).standard_normal(example.shape, dtype=np.float32)}
    expected, found = before.run(feeds), after.run(feeds)
    errors = {name: largest_error(expected[name], found[name]) for name in expected}
    timing = before.time_against([after], feeds, seconds=4.0, most=1000)
    noise = before.time_against([open_model(original, use="timing")], feeds, seconds=4.0, most=1000)
    return Outcome(report, errors, timing, abs(noise.speed(1).ratio - 1))


def table(outcomes: Sequence[Outcome]) -> Table:
    """One column per example."""
    result = Table(title="Original and fused, in ONNX Runtime on this machine", show_lines=True)
    result.add_column("", style="bold")
    for example in EXAMPLES:
        result.add_column(escape(example.title), ratio=1, overflow="fold")
    rows = {
        "time on this CPU": [speed(o.timing, o.noise) for o in outcomes],
        "input": [f"x [{', '.join(map(str, e.shape))}] float32" for e in EXAMPLES],
        "recognised": [counts(o.report.idioms) for o in outcomes],
        "fused for this CPU": [fusions(o.report, CPU) for o in outcomes],
        f"fused for {CUDA}": [fusions(o.report, CUDA) for o in outcomes],
        "turned down": [reasons(o.report.rejected) for o in outcomes],
        "nodes": [f"{o.report.summary.nodes_before} -> {o.report.summary.nodes_after}" for o in outcomes],
        "largest error": ["\n".join(f"{name}: {error:.1e}" for name, error in o.errors.items()) for o in outcomes],
        f"sources for {CUDA}": [sources(o.report) for o in outcomes],
    }
    for label, cells in rows.items():
        result.add_row(label, *map(escape, cells))
    return result


def counts(items: Iterable[str]) -> str:
    """Names with how often they occur, the commonest first."""
    return "\n".join(f"{n} x {name}" for name, n in Counter(items).most_common()) or "none"


def fusions(report: Report, target: str) -> str:
    """The regions fused for a target, by rule."""
    return counts(f.rule for f in report.fusions if target in f.targets)


def reasons(rejected: Sequence[Rejection]) -> str:
    """What matched but was not taken, and why: the commonest reasons, then how many lost to a better region."""
    beaten = sum(r.stage == "select" for r in rejected)
    late = [r for r in rejected if r.stage not in ("match", "select")]
    examples = {(r.rule, r.code): r for r in late}
    found = Counter((r.rule, r.code) for r in late).most_common()
    lines = [
        f"{n} x {rule}: {examples[rule, code].found}; expected {examples[rule, code].expected} ({code})"
        for (rule, code), n in found[:SHOWN_REASONS]
    ]
    if len(found) > SHOWN_REASONS:
        lines.append(f"{len(found) - SHOWN_REASONS} reasons more, in report.json")
    if beaten:
        lines.append(f"{beaten} regions gave way to better ones that share their nodes")
    return "\n".join(lines) or "nothing"


def speed(timing: Timing, noise: float) -> str:
    """Median times, and what the ratio of two sessions of one and the same model says of such ratios here."""
    ratio = timing.speed(1).ratio
    change = "no difference" if abs(ratio - 1) <= max(noise, 0.02) else f"{ratio:.2f} times as fast"
    times = f"{timing.us(0) / 1e3:.2f} -> {timing.us(1) / 1e3:.2f} ms"
    return f"{times}: {change} (two sessions of the original differ by {noise:.0%}; {timing.rounds} rounds)"


def sources(report: Report) -> str:
    """The CUDA sources written, and whether they were compiled."""
    written = [s.filename for s in report.sources if s.target == CUDA and s.op]
    libraries = [lib.path.name for lib in report.libraries if lib.target == CUDA]
    if not written:
        return "none"
    state = f"compiled: {', '.join(libraries)}" if libraries else "not compiled: no nvcc"
    return "\n".join([*written, state])


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo-out"))
