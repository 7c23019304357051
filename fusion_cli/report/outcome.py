"""What running the models showed, in words."""

from __future__ import annotations

from collections.abc import Mapping

from fusion_cli.measured import WORDS, Choice, Verification
from fusion_cli.report import Report
from fusion_cli.report.accuracy import accuracy, timed_models, timed_operators
from fusion_cli.report.readable import counted, show_speed, show_us, spent
from fusion_cli.report.verdict import shapes


def outcome(report: Report) -> list[tuple[str, str]]:
    """Lines of the summary, each with its label: the sizes that are made up, the numbers, and the times."""
    return [*checked(report), *predicted(report), *_timed(report.choice)]


def checked(report: Report) -> list[tuple[str, str]]:
    """The same but for the times."""
    written = [("written", f"{WORDS[report.choice.chosen]}: {report.choice.why}")] if report.choice else []
    return [*_assumed(report.assumed), ("verification", _verification(report.verification)), *written]


def _verification(verification: Verification | None) -> str:
    if verification is None:
        return "not asked for"
    if verification.skipped:
        return f"skipped: {verification.skipped}"
    worst = max(verification.outputs, key=lambda o: o.share, default=None)
    if worst is None:
        return "the model has no outputs"
    verdict = "passed" if verification.ok else f"FAILED at output {worst.output}"
    text = f"{verdict}: {counted(len(verification.outputs), 'output')}, largest error {worst.error:.1e}"
    sizes = "; ".join(map(shapes, verification.sizes))
    return f"{text} (tolerance {worst.tolerance:g}){f' at {sizes}' if sizes else ''}"


def _assumed(sizes: Mapping[str, int]) -> list[tuple[str, str]]:
    if not sizes:
        return []
    told = ", ".join(f"{name}={size}" for name, size in sizes.items())
    return [("SIZES MADE UP", f"{told}: decisions rest on them; --dim NAME=N, --shape or --inputs give yours")]


def predicted(report: Report) -> list[tuple[str, str]]:
    """Whole models' predicted times, beside those that were measured, and how far the predictions of this run were
    off."""
    timed = timed_models(report.predicted, report.choice)
    lines = []
    for forecast in report.predicted:
        text = show_speed(forecast.before.total, forecast.after.total)
        if pair := timed.get(forecast.device):
            text += f"; measured {show_speed(pair.before[1], pair.after[1])}"
        lines.append((f"predicted on {forecast.device}", text))
        lines.append(("", f"{spent(forecast.before)} -> {spent(forecast.after)}"))
    if doubtful := _doubtful(report):
        text = (
            f"{counted(doubtful, 'fusion')} predicted to save no more than predictions are off, and not measured here"
        )
        lines.append(("not certain", f"{text}: kept, as predicted; optimize on the device itself measures them"))
    if own := accuracy(timed_operators(report.fusions)):
        text = f"median error {own.before:.0%} of the nodes' time, {own.after:.0%} of the kernels'"
        told = f"the faster one told right for {own.right:.0%} of {counted(own.operators, 'operator')}"
        lines.append(("cost model", f"{text}; {told}"))
    return lines


def _doubtful(report: Report) -> int:
    """Fusions that nothing but an uncertain prediction speaks for: neither the whole model was timed, nor they."""
    if report.choice is not None and report.choice.measured:
        return 0
    return sum(
        not all(f.predicted[t].is_certain for t in f.targets if t in f.predicted)
        for f in report.fusions
        if not any(check.after_us for check in f.measured)
    )


def _timed(choice: Choice | None) -> list[tuple[str, str]]:
    """The sizes that models were timed at, and each one's speed against the original's."""
    lines: list[tuple[str, str]] = []
    for measured in choice.measured if choice is not None else ():
        lines.append((f"timed on {measured.device}", f"{shapes(measured.sizes)}; {measured.rounds} rounds"))
        for timed in measured.models:
            speed = "" if timed.model == "original" else f", {timed.speed} of the original's speed"
            lines.append(("", f"{WORDS[timed.model]} {show_us(timed.us)}{speed}"))
    return lines
