"""The numbers of the figures: what is drawn where, in units of their viewBox."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from fusion_cli.costs import Guard
from fusion_cli.devices.profile import DeviceProfile
from fusion_cli.measured import WORDS, Measurement
from fusion_cli.report import Fusion, Report
from fusion_cli.score import load_profile
from fusion_cli.targets import resolve_targets
from fusion_cli.types import Fate, GraphNode

WIDTH = 600.0
FATES: dict[Fate, str] = {
    "fused": "fused",
    "taken back": "measured and taken back",
    "turned down": "turned down by what is predicted",
    "missed": "a rule came near",
    "left": "no rule came near",
}


@dataclass(frozen=True)
class Bar:
    """A whole model's time: how long the bar is, and the ends of the interval of its time against the original's."""

    name: str
    us: float
    speed: str
    width: float
    low: float
    high: float
    is_written: bool


@dataclass(frozen=True)
class Bars:
    """The models timed in one place."""

    measured: Measurement
    bars: tuple[Bar, ...]


def bars(report: Report) -> list[Bars]:
    """One figure for each device and size that models were timed with."""
    if report.choice is None:
        return []
    return [Bars(measured, tuple(_bars(measured, report.choice.chosen))) for measured in report.choice.measured]


def _bars(measured: Measurement, chosen: str) -> list[Bar]:
    first = measured.models[0].us
    longest = max(max(first / c.speed.low, c.us) for c in measured.models)
    found = []
    for c in measured.models:
        width, low, high = (WIDTH * us / longest for us in (c.us, first / c.speed.high, first / c.speed.low))
        found.append(Bar(WORDS[c.model], c.us, str(c.speed), width, low, high, c.model == chosen))
    return found


@dataclass(frozen=True)
class Run:
    """Nodes in a row that became the same."""

    fate: Fate
    start: int
    count: int


def runs(graph: Sequence[GraphNode]) -> list[Run]:
    """The strip of the whole model."""
    found, start = [], 0
    for fate, same in groupby(graph, key=lambda n: n.fate):
        count = len(list(same))
        found.append(Run(fate, start, count))
        start += count
    return found


def legend(graph: Sequence[GraphNode]) -> list[tuple[Fate, str, int]]:
    """The colours of the strip, what they mean, and of how many nodes."""
    counts = Counter(n.fate for n in graph)
    return [(fate, text, counts[fate]) for fate, text in FATES.items()]


@dataclass(frozen=True)
class FusionRow:
    """An operator on a target: how many times as fast as its nodes it is, as predicted and as measured."""

    fusion: Fusion
    target: str
    places: int
    predicted: float | None
    measured: float | None
    error: float | None
    guard: Guard | None
    """The sizes at which it runs, where it is not all."""


def fusion_rows(report: Report) -> list[FusionRow]:
    """Every operator once for each of its targets."""
    places = Counter(f.name for f in report.fusions)
    first = {f.name: f for f in report.fusions}
    return [_row(fusion, target, places[name]) for name, fusion in first.items() for target in fusion.targets]


def _row(fusion: Fusion, target: str, places: int) -> FusionRow:
    score = fusion.predicted.get(target)
    check = next((c for c in fusion.measured if c.target == target), None)
    predicted = None if score is None else _ratio(score.before_us, score.after_us)
    measured = None if check is None else _ratio(check.before_us, check.after_us)
    error, guard = None if check is None else check.error, None if score is None else score.guard
    return FusionRow(fusion, target, places, predicted, measured, error, guard)


def _ratio(before: float | None, after: float | None) -> float | None:
    return before / after if before and after else None


@dataclass(frozen=True)
class Point:
    """A fusion on a roofline: operations per byte, and Gop/s."""

    name: str
    x: float
    y: float
    intensity: float
    rate: float
    is_measured: bool


@dataclass(frozen=True)
class Roof:
    """A target's roofline in logarithmic axes: the line's points, the corner, and the fusions below it."""

    target: str
    device: str
    bandwidth: float
    peak: float
    line: tuple[tuple[float, float], ...]
    points: tuple[Point, ...]
    x_ticks: tuple[tuple[float, str], ...]
    y_ticks: tuple[tuple[float, str], ...]


_HEIGHT = 240.0


def roofs(report: Report) -> list[Roof]:
    """The rooflines of the targets that fusions are for."""
    used = [t for t in report.targets if t != "portable" and any(t in f.targets for f in report.fusions)]
    return [_roof(report, target) for target in used]


def _roof(report: Report, target: str) -> Roof:
    first = {f.name: f for f in report.fusions if target in f.targets and target in f.predicted}
    found: list[tuple[str, float, float, bool]] = []
    for fusion in first.values():
        score = fusion.predicted[target]
        check = next((c for c in fusion.measured if c.target == target), None)
        for us, is_measured in ((score.after_us, False), (check.after_us if check else None, True)):
            if us and score.bytes_after and score.operations:
                rate = score.operations / us / 1e3
                found.append((fusion.name, score.operations / score.bytes_after, rate, is_measured))
    return roof_of(target, load_profile(resolve_targets([target])[0]), found)


def roof_of(name: str, profile: DeviceProfile, found: Sequence[tuple[str, float, float, bool]] = ()) -> Roof:
    """A device's roofline, with fusions by name, operations per byte, Gop/s, and whether that is measured."""
    peak, bandwidth = max(profile.tflops.values()) * 1e3, profile.bandwidth_gbs
    xs = _decades([peak / bandwidth, *(x for _, x, _, _ in found)])
    ys = _decades([peak, bandwidth * 10.0 ** xs[0], *(y for _, _, y, _ in found)])

    def at(x: float, y: float) -> tuple[float, float]:
        return _place(x, xs) * WIDTH, (1 - _place(y, ys)) * _HEIGHT

    ends = (10.0 ** xs[0], peak / bandwidth, 10.0 ** xs[1])
    return Roof(
        name,
        profile.description,
        bandwidth,
        peak,
        tuple(at(x, min(peak, bandwidth * x)) for x in ends),
        tuple(Point(n, *at(x, y), x, y, m) for n, x, y, m in found),
        tuple((at(10.0**e, 1.0)[0], f"{10.0**e:g}") for e in range(xs[0], xs[1] + 1)),
        tuple((at(1.0, 10.0**e)[1], f"{10.0**e:g}") for e in range(ys[0], ys[1] + 1)),
    )


def _decades(values: Sequence[float]) -> tuple[int, int]:
    """The powers of ten around the values."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return low, max(high, low + 1)


def _place(value: float, decades: tuple[int, int]) -> float:
    return (math.log10(value) - decades[0]) / (decades[1] - decades[0])


def error_rows(report: Report) -> list[tuple[str, float, float, float, bool]]:
    """Of every output its error, the tolerance, and how far it is along a logarithmic bar from 1e-9 to ten times the
    tolerance."""
    if report.verification is None:
        return []
    rows = []
    for check in report.verification.outputs:
        ends = math.log10(1e-9), math.log10(check.tolerance * 10)
        place = (math.log10(max(min(check.error, 1e9), 1e-9)) - ends[0]) / (ends[1] - ends[0])
        rows.append((check.output, check.error, check.tolerance, min(max(place, 0.0), 1.0), check.ok))
    return rows
