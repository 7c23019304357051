"""The summary of a run, as text for a terminal."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console

from fusion_cli.report import Report
from fusion_cli.report.lines import print_line, print_wrapped
from fusion_cli.report.outcome import outcome
from fusion_cli.report.readable import counted, show_saved, show_us
from fusion_cli.report.render_explain import render_fusions
from fusion_cli.report.verdict import verdict
from fusion_cli.types import Rejection, Rewrite

_SHOWN_REASONS = 5
_LABELS = 21
"""Columns that the labels of the summary take."""
_STREAM = "-"
"""The model that came from stdin, which no command reads again."""


def render_summary(report: Report, console: Console) -> None:
    """The end of a run: what was found, taken, saved, written and checked, and where to look next."""
    s = report.summary
    lines = [
        ("operators found", f"{s.nodes_before}{_list_counts(report.idioms)}"),
        ("algebra", _algebra(report.algebra)),
        ("candidates", f"{counted(s.candidates, 'place')} where a rule matched, {s.fusions} taken"),
        *_fused(report),
        ("nodes", f"{s.nodes_before} -> {s.nodes_after}"),
        ("sources generated", _sources(report)),
        *outcome(report),
    ]
    print_wrapped(console, verdict(report), style="bold")
    print_line(console, f"{report.model} -> {report.output or '(dry run: nothing written)'}")
    for label, text in lines:
        print_wrapped(console, f"  {label:<18} {text}", _LABELS)
    render_fusions(report.fusions, console)
    # A candidate whose nodes another has is no loss.
    late = [r for r in report.rejected if r.stage != "match" and not r.covered_by]
    _reasons("measured and taken back", [r for r in late if r.stage == "verify"], console)
    _reasons("turned down by what is predicted", [r for r in late if r.stage != "verify"], console)
    for note in report.notes:
        print_wrapped(console, f"note: {note}", 6)
    for line in _next(report):
        print_line(console, line)


def _fused(report: Report) -> list[tuple[str, str]]:
    s = report.summary
    if not s.fusions:
        return [("fused", "none")]
    saved = f"{show_us(abs(s.us_saved))} {'saved' if s.us_saved >= 0 else 'lost'}"
    launches = f"{counted(abs(s.launches_saved), 'launch', 'launches')} {'less' if s.launches_saved >= 0 else 'more'}"
    return [
        ("predicted", f"{saved}, {show_saved(s.bytes_saved)}, {launches}"),
        ("fused", f"{counted(s.nodes_fused, 'operator')} into {s.fusions} ({counted(s.kernels, 'kernel')})"),
    ]


def _reasons(what: str, rejected: Sequence[Rejection], console: Console) -> None:
    """The commonest reasons, one line each."""
    counts: Counter[tuple[str, str]] = Counter()
    for r in rejected:
        counts[r.code, r.rule] += r.places
    if counts:
        print_line(console, f"{what}:")
    for (code, rule), count in counts.most_common(_SHOWN_REASONS):
        one = next(r for r in rejected if (r.code, r.rule) == (code, rule))
        target = f" on {one.target}" if one.target else ""
        print_wrapped(console, f"  {count} x {rule}{target}: {code} expected {one.expected}, found {one.found}", 6)
    if len(counts) > _SHOWN_REASONS:
        print_line(console, f"  and {counted(len(counts) - _SHOWN_REASONS, 'reason')} more, in report.json")


def _list_counts(counts: Mapping[str, int]) -> str:
    text = ", ".join(f"{n} {name}" for name, n in sorted(counts.items(), key=lambda i: -i[1]))
    return f" (recognised: {text})" if text else ""


def _algebra(rewrites: Sequence[Rewrite]) -> str:
    return ", ".join(f"{r.places} {r.rule}" for r in rewrites) or "none"


def _sources(report: Report) -> str:
    if not report.sources:
        return "none"
    counts = Counter(s.target for s in report.sources)
    text = f"{len(report.sources)} ({', '.join(f'{t} {n}' for t, n in counts.items())})"
    for lib in report.libraries:
        text += f"; {lib.target} library: {counted(lib.compiled, 'file')} compiled in {lib.seconds:.1f} s"
    return text


def _next(report: Report) -> list[str]:
    """Commands to go on with, each to be pasted as it is."""
    if report.output is None:
        return [_command("explain", report.model)] if report.model != _STREAM else []
    bundle = Path(report.output).with_suffix(".fusion")
    lines = [f"bundle: {bundle}{os.sep} (report.html, report.json; src: generated sources; lib: libraries)"]
    if report.choice is not None and report.choice.chosen == "original":
        return [*lines, _command("explain", report.output)]
    timed = [m for m in dict.fromkeys((report.model, report.output)) if m != _STREAM]
    return [*lines, _command("explain", report.output), _command("bench", *timed)]


def _command(*words: str) -> str:
    return f"next: {shlex.join(['fusion-cli', *words])}"
