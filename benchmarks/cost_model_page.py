"""How far predictions are from measurements, as tables of a Markdown page and as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from statistics import median
from typing import Any

from benchmarks.cost_cases import ABLATIONS, Prediction
from benchmarks.tally import table

HEADING = "## Against measurements"
"""From here to its end a page is written anew."""
_GOALS = {"signs": {"GPU": 0.95, "CPU": 0.90}, "fused": 0.20, "ORT": 0.20, "whole": 0.25}
_ALIKE = 0.02
Group = tuple[str, bool]
"""GPU or CPU, and whether held out."""


def group(p: Prediction) -> Group:
    return "CPU" if p.case.device == "cpu" else "GPU", p.case.is_held_out


def figures(found: Sequence[Prediction], of: Callable[[Prediction], tuple[float, float]]) -> dict[str, Any]:
    """The share of right signs, and median relative errors: of fused fusions and of ONNX Runtime's nodes one by one,
    and of whole models either way. `of` gives what is predicted before and after."""
    signs: list[bool] = []
    errors: dict[str, list[float]] = {"fused": [], "ORT": [], "whole": []}
    for p in found:
        (before, after), measured = of(p), p.case.measured
        fused = measured.after if p.same else None
        if fused is not None and measured.rules:
            errors["whole" if p.case.is_model else "fused"].append(abs(after / fused - 1))
            if measured.before is not None and _differs(measured.before, fused, measured.speed):
                signs.append((after < before) == (fused < measured.before))
        if measured.before is not None:
            errors["whole" if p.case.is_model else "ORT"].append(abs(before / measured.before - 1))
    return {
        "cases": len(found),
        "compared": len(signs),
        "signs": sum(signs) / len(signs) if signs else None,
        **{name: median(values) if values else None for name, values in errors.items()},
    }


def _differs(before: float, fused: float, speed: tuple[float, float] | None) -> bool:
    """Whether what was measured tells which is faster: the interval of the speed, where it was kept, leaves 1 out."""
    return abs(fused / before - 1) > _ALIKE and (speed is None or not speed[0] <= 1 <= speed[1])


def _whole(p: Prediction) -> tuple[float, float]:
    return p.before.total, p.after.total


def by_group(found: Iterable[Prediction]) -> dict[Group, list[Prediction]]:
    groups: dict[Group, list[Prediction]] = {}
    for p in found:
        groups.setdefault(group(p), []).append(p)
    return dict(sorted(groups.items()))


def summary_json(found: Sequence[Prediction]) -> dict[str, Any]:
    groups = by_group(found)
    return {
        "summary": {_name(g): figures(own, _whole) for g, own in groups.items()},
        "without": {
            term: {_name(g): figures(own, lambda p, t=term: p.without[t]) for g, own in groups.items()}
            for term in ABLATIONS
        },
        "cases": [
            {
                "name": p.case.name,
                "held_out": p.case.is_held_out,
                "measured": asdict(p.case.measured),
                "same_fusions": p.same,
                "before": asdict(p.before),
                "after": asdict(p.after),
            }
            for p in found
        ],
    }


def with_tables(page: str, found: Sequence[Prediction], cpu: str) -> str:
    """The page with its last section written anew."""
    return f"{page.split(HEADING)[0].rstrip()}\n\n{HEADING}\n\n{tables(found, cpu)}"


def tables(found: Sequence[Prediction], cpu: str) -> str:
    """The last section of the page."""
    groups = by_group(found)
    header = (
        "cases",
        "number",
        "faster one told right",
        "error of the fused",
        "of ONNX Runtime's nodes",
        "of whole models",
    )
    rows = [[_name(g), *_cells(figures(own, _whole))] for g, own in groups.items()]
    goals = f"{_GOALS['signs']['GPU']:.0%} GPU, {_GOALS['signs']['CPU']:.0%} CPU"
    rows.append(["to be", "", goals, *(f"{_GOALS[k]:.0%}" for k in ("fused", "ORT", "whole"))])
    without = [
        [term, _name(g), *_cells(figures(own, lambda p, t=term: p.without[t]))[1:]]
        for term in ABLATIONS
        for g, own in groups.items()
    ]
    other = sum(not p.same for p in found)
    told = f" Cases for CPUs: {cpu}." if cpu else ""
    told += f" Of {other} cases other fusions were measured than are chosen now: there only the nodes' time counts."
    intro = (
        "Made by `python -m benchmarks.cost_model`. Median relative errors; whole models count once without fusions and"
        " once with them, on a GPU node by node and as a CUDA graph. What differs by less than"
        f" {_ALIKE:.0%}, or has 1 within the interval of its speed (95%) where that was kept, counts as no difference."
        f"{told}"
    )
    parts = [
        intro,
        table(header, rows),
        "With what a term counts taken to cost nothing:",
        table(("without", "cases", *header[2:]), without),
        "All cases, in microseconds, predicted / measured:",
        table(("case", "held out", "ONNX Runtime", "fused"), [_row(p) for p in found]),
    ]
    return "\n\n".join(parts) + "\n"


def _cells(found: dict[str, Any]) -> list[str]:
    told = f"{_share(found['signs'])} of {found['compared']}"
    return [str(found["cases"]), told, *(_share(found[k]) for k in ("fused", "ORT", "whole"))]


def _row(p: Prediction) -> list[str]:
    measured = p.case.measured
    fused = _both(p.after.total, measured.after) if p.same and measured.rules else "-"
    return [p.case.name, "yes" if p.case.is_held_out else "", _both(p.before.total, measured.before), fused]


def _both(predicted: float, measured: float | None) -> str:
    return "-" if measured is None else f"{predicted:.1f} / {measured:.1f} ({predicted / measured - 1:+.0%})"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def _name(of: Group) -> str:
    return f"{of[0]}, {'held out' if of[1] else 'fitted'}"
