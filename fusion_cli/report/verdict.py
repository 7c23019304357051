"""What a run came to, in one line: the first of every summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fusion_cli.measured import Choice, Measurement
from fusion_cli.report import Report
from fusion_cli.report.readable import counted, show_us

_PLACES = {"cpu": "this CPU", "cuda": "this GPU", "cuda graph": "this GPU, as a CUDA graph,"}


def verdict(report: Report) -> str:
    """How much faster what was written is, where and at which sizes; else why it is not, and what to try."""
    missing = _missing(report)
    return f"NO KERNELS, {missing}; {_came_to(report)}" if missing else _came_to(report)


def _missing(report: Report) -> str:
    """The compilers that were lacking: kernels were asked for, and there are none."""
    if "auto" in report.options.targets and "portable" in report.targets:
        return "for there is no compiler on this machine"
    built = {library.target for library in report.libraries}
    unbuilt = dict.fromkeys(s.target for s in report.sources if s.target not in built)
    return f"for there is no compiler for {', '.join(unbuilt)}" if unbuilt else ""


def _came_to(report: Report) -> str:
    choice = report.choice
    if report.output is None:
        return f"predicted, not measured: {_predicted(report)}"
    if choice is None:
        return f"written without verifying or timing it (--no-verify); predicted: {_predicted(report)}"
    if choice.chosen == "original":
        return _nothing_faster(choice, report.targets)
    speed = choice.speed_of(choice.chosen)
    if speed is None:
        return f"written, {choice.why}; predicted, not measured: {_predicted(report)}"
    first = choice.measured[0]
    if choice.chosen == "simplified" and (elsewhere := untried(report)):
        place = f"on {_place(first)} it is {speed} without kernels"
        return f"written for {elsewhere}, which was not run here; predicted: {_predicted(report)}; {place}"
    if speed.is_faster:
        return f"{speed.ratio:.2f}x on {_place(first)}{_when(choice)}"
    kept = "slower than the original" if speed.is_slower else "as fast as the original"
    return f"{kept} on {_place(first)}{_when(choice)}: {speed}; written all the same: {choice.why}"


def shapes(sizes: Mapping[str, tuple[int, ...]]) -> str:
    """Inputs with their shapes: "input_ids [1,128], mask [1,128]"."""
    return ", ".join(f"{name} [{','.join(map(str, shape))}]" for name, shape in sizes.items())


def _place(measured: Measurement) -> str:
    return f"{_PLACES[measured.device]} at {shapes(measured.sizes)}"


def _when(choice: Choice) -> str:
    return f", as measured on {choice.measured_at} UTC (--remeasure does it again)" if choice.measured_at else ""


def _nothing_faster(choice: Choice, targets: Sequence[str]) -> str:
    """Why the original is what is written."""
    if choice.measured:
        first = choice.measured[0]
        best = max(first.models[1:], key=lambda c: c.speed.ratio)
        where, why = f"{_place(first)}{_when(choice)}", f"the best is {best.speed}"
    else:
        where, why = "this CPU" if "cpu" in targets else ", ".join(targets), choice.why
    advice = "try the sizes that you run (--dim, --shape, --inputs), another --target, or --force"
    return f"nothing faster on {where}: {why}; the original is written as it is; {advice}"


def untried(report: Report) -> str:
    """The targets of kernels that were not tried here, "" where all were."""
    tried = {check.target for fusion in report.fusions for check in fusion.measured}
    kernels = {t for fusion in report.fusions for t in fusion.targets} - {"portable"}
    return ", ".join(sorted(kernels - tried))


def _predicted(report: Report) -> str:
    s, targets = report.summary, ", ".join(report.targets)
    if not s.fusions:
        return f"nothing pays on {targets}"
    if targets == "portable":
        return f"{counted(s.fusions, 'fusion')} as functions, without kernels, so none is faster (--target portable)"
    change = f"{show_us(abs(s.us_saved))} {'saved' if s.us_saved >= 0 else 'lost'}"
    return f"{change} by {counted(s.fusions, 'fusion')} on {targets}"
