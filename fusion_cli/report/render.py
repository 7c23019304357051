"""The report as text for a terminal. Names that come from a model are neither markup nor control characters."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fusion_cli.report.model import Fusion, Report
from fusion_cli.report.text import counted, printable, show_bytes, show_speed, show_us
from fusion_cli.types import Rejection, Verification

_SHOWN_REASONS = 5
_SHOWN_NEAR_MISSES = 40


def render_summary(report: Report, console: Console) -> None:
    """The end of a run: what was found, taken, saved, written and checked, and where to look next."""
    s = report.summary
    lines = [
        ("operators found", f"{s.nodes_before}{_list_counts(report.idioms)}"),
        ("candidates", f"{s.candidates}, {s.fusions} taken"),
        (
            "estimated savings",
            f"{show_bytes(s.bytes_saved)} of memory traffic, {counted(s.launches_saved, 'launch', 'launches')}, "
            f"{show_us(s.us_saved)}",
        ),
        ("fused", f"{counted(s.nodes_fused, 'operator')} into {s.fusions} ({counted(s.kernels, 'kernel')})"),
        ("nodes", f"{s.nodes_before} -> {s.nodes_after}"),
        ("sources generated", _sources(report)),
        ("verification", _verification(report.verification)),
    ]
    _print(console, f"{report.model} -> {report.output or '(dry run: nothing written)'}")
    for label, text in lines:
        _print(console, f"  {label:<18} {text}")
    if report.fusions:
        console.print(_fusion_table(report.fusions))
    if report.rejected:
        _print(console, "turned down:")
        for line in top_reasons(report.rejected):
            _print(console, f"  {line}")
    for note in report.notes:
        _print(console, f"note: {note}")
    for line in _next(report):
        _print(console, line)


def render_explain(
    fusions: Sequence[Fusion], rejected: Sequence[Rejection], console: Console, *, everything: bool = False
) -> None:
    """Every candidate that is taken, then every near miss, furthest first, with what was expected and found.

    Without `everything` the list of near misses stops at 40 and says so.
    """
    _print(console, counted(len(fusions), "fusion"), style="bold")
    for fusion in fusions:
        _explain_fusion(fusion, console)
    ordered = sorted(rejected, key=lambda r: (-r.progress, -r.saving_us, r.rule, r.node))
    shown = ordered if everything else ordered[:_SHOWN_NEAR_MISSES]
    _print(console, f"{counted(len(ordered), 'rejection')}, the nearest miss first", style="bold")
    for rejection in shown:
        _explain_rejection(rejection, console)
    if len(shown) < len(ordered):
        _print(console, f"{len(ordered) - len(shown)} more: narrow them with --rule or --node, or ask for --json")


def _explain_fusion(fusion: Fusion, console: Console) -> None:
    _print(console, f"+ {fusion.rule} on {', '.join(fusion.targets) or 'no target'}", style="green")
    _print(console, f"    nodes     {', '.join(fusion.nodes)}")
    if fusion.stages:
        _print(console, f"    stages    {' -> '.join(fusion.stages)}")
    for target, score in fusion.predicted.items():
        saved = show_bytes(score.bytes_before - score.bytes_after)
        speed = show_speed(score.before_us, score.after_us)
        _print(console, f"    {target:<9} predicted {speed}, {saved} less traffic")


def _explain_rejection(r: Rejection, console: Console) -> None:
    place = f" at {r.node}" if r.node else ""
    saving = f", would save {show_us(r.saving_us)}" if r.saving_us > 0 else ""
    _print(console, f"- {r.code} {r.rule}{place} ({r.stage}, {r.progress:.0%} matched{saving})", style="yellow")
    _print(console, f"    expected  {r.expected}")
    _print(console, f"    found     {r.found}")
    if r.hint:
        _print(console, f"    hint      {r.hint}")


def _print(console: Console, text: str, style: str = "") -> None:
    console.print(printable(text), style=style, markup=False, highlight=False, soft_wrap=True)


def top_reasons(rejected: Iterable[Rejection], limit: int = _SHOWN_REASONS) -> list[str]:
    """The commonest reasons of the stages after matching (why candidates were not taken), one line each."""
    late = [r for r in rejected if r.stage != "match"]
    counts = Counter((r.code, r.rule, r.stage) for r in late)
    lines = []
    for (code, rule, stage), count in counts.most_common(limit):
        one = next(r for r in late if (r.code, r.rule, r.stage) == (code, rule, stage))
        lines.append(f"{count} x {rule}: {code} ({stage}), expected {one.expected}, found {one.found}")
    if len(counts) > limit:
        lines.append(f"and {counted(len(counts) - limit, 'reason')} more, in report.json")
    return lines


def _fusion_table(fusions: Sequence[Fusion]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 2), header_style="bold")
    for column in ("rule", "operator", "places", "nodes", "stages", "targets", "error", "measured"):
        table.add_column(column, overflow="fold", justify="right" if column in ("places", "nodes") else "left")
    for name in dict.fromkeys(f.name for f in fusions):
        same = [f for f in fusions if f.name == name]
        first = same[0]
        errors = [c.error for c in first.measured]
        speeds = [f"{c.target} {show_speed(c.before_us, c.after_us)}" for c in first.measured if c.before_us]
        cells = (
            first.rule,
            name,
            str(len(same)),
            str(len(first.nodes)),
            " ".join(f"{n}x{k}" if n > 1 else k for k, n in Counter(first.stages).items()),
            ", ".join(first.targets),
            f"{max(errors):.1e}" if errors else "-",
            ", ".join(speeds) or "-",
        )
        table.add_row(*(escape(printable(c)) for c in cells))
    return table


def _list_counts(counts: object) -> str:
    items = counts.items() if isinstance(counts, dict) else ()
    text = ", ".join(f"{n} {name}" for name, n in sorted(items, key=lambda i: -i[1]))
    return f" (recognised: {text})" if text else ""


def _sources(report: Report) -> str:
    if not report.sources:
        return "none"
    counts = Counter(s.target for s in report.sources)
    text = f"{len(report.sources)} ({', '.join(f'{t} {n}' for t, n in counts.items())})"
    for lib in report.libraries:
        text += f"; {lib.target} library: {counted(lib.compiled, 'file')} compiled in {lib.seconds:.1f} s"
    return text


def _verification(verification: Verification | None) -> str:
    if verification is None:
        return "not asked for"
    if verification.skipped:
        return f"skipped: {verification.skipped}"
    worst = max(verification.outputs, key=lambda o: o.error / o.tolerance, default=None)
    if worst is None:
        return "the model has no outputs"
    verdict = "passed" if verification.ok else f"FAILED at output {worst.output}"
    text = f"{verdict}: {counted(len(verification.outputs), 'output')}, largest error {worst.error:.1e}"
    text += f" (tolerance {worst.tolerance:g})"
    if verification.before_us is not None:
        text += f"; {show_speed(verification.before_us, verification.after_us)}"
    return text


def _next(report: Report) -> list[str]:
    if report.output is None:
        return [f"next: fusion-cli explain {report.model}"]
    output = Path(report.output)
    bundle = output.with_suffix(".fusion")
    lines = (
        [f"bundle: {bundle}{os.sep} (report.json; src: generated sources; lib: libraries)"] if report.fusions else []
    )
    return [*lines, f"next: fusion-cli explain {report.model} | fusion-cli bench {report.model} {report.output}"]
