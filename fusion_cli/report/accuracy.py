"""How far predictions were from what a run measured."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from fusion_cli.costs import Device, Forecast
from fusion_cli.measured import Choice
from fusion_cli.report import Fusion


@dataclass(frozen=True)
class Pair:
    """Microseconds without fusions and with them, predicted beside measured."""

    before: tuple[float, float]
    after: tuple[float, float]

    @property
    def errors(self) -> tuple[float, float]:
        """Of both, relative to what was measured."""
        return tuple(abs(p / m - 1) for p, m in (self.before, self.after))  # type: ignore[return-value]

    @property
    def is_right(self) -> bool:
        """Whether what was predicted to be faster is."""
        return (self.after[0] < self.before[0]) == (self.after[1] < self.before[1])


@dataclass(frozen=True)
class Accuracy:
    """The cost model's own errors on a run: of how many distinct operators that were timed, the median error of their
    nodes' time and of their own, and the share of those where the faster of the two was told right."""

    operators: int
    before: float
    after: float
    right: float


def accuracy(pairs: Sequence[Pair]) -> Accuracy | None:
    """None of nothing."""
    if not pairs:
        return None
    before, after = (median(errors) for errors in zip(*(p.errors for p in pairs), strict=True))
    return Accuracy(len(pairs), before, after, sum(p.is_right for p in pairs) / len(pairs))


def timed_operators(fusions: Iterable[Fusion]) -> list[Pair]:
    """Operators that were timed beside their nodes, each once a target."""
    found: dict[tuple[str, str], Pair] = {}
    for fusion in fusions:
        for check in fusion.measured:
            score = fusion.predicted.get(check.target)
            if score is not None and check.before_us and check.after_us and score.after_us:
                pair = Pair((score.before_us, check.before_us), (score.after_us, check.after_us))
                found.setdefault((fusion.name, check.target), pair)
    return list(found.values())


def timed_models(forecasts: Sequence[Forecast], choice: Choice | None) -> dict[Device, Pair]:
    """Whole models that were timed, original and with kernels, by how they ran, at the sizes that decide."""
    found: dict[Device, Pair] = {}
    for measured in choice.measured if choice else ():
        us = {timed.model: timed.us for timed in measured.models}
        forecast = next((f for f in forecasts if f.device == measured.device), None)
        if forecast is not None and "kernels" in us and measured.device not in found:
            before, after = forecast.before.total, forecast.after.total
            found[measured.device] = Pair((before, us["original"]), (after, us["kernels"]))
    return found
