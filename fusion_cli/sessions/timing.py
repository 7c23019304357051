"""How long models take beside one another: run in turn, and compared round by round."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

_NOISE = 1.02
"""Speeds that differ by less are called equal, however sure that is: those of two sessions of one model do."""
_DEVIATIONS = 1.96
"""On either side of the mean of a normal distribution, these hold 95% of it."""

_ONE_WAY = 8
"""Rounds in the same order."""


@dataclass(frozen=True)
class Speed:
    """How many times as fast as another a model is: the median over rounds, and the ends of an interval that holds the
    true median with a confidence of 95%, however the times are distributed, and the median of every sitting."""

    ratio: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.ratio:.2f}x ({self.low:.2f} to {self.high:.2f})"

    @property
    def is_faster(self) -> bool:
        """Whether that is more than noise, and no chance. Asked for where something is to be gained for it, it takes
        more than the opposite: with what is about as fast the simpler stays, run after run."""
        return self.low > _NOISE

    @property
    def is_slower(self) -> bool:
        """Whether the opposite is more than noise, and no chance."""
        return self.ratio < 1 / _NOISE and self.high < 1


@dataclass(frozen=True)
class Timing:
    """Microseconds of several models, for each those of every round, and how many rounds each sitting had."""

    samples: tuple[tuple[float, ...], ...]
    sittings: tuple[int, ...] = ()

    @property
    def rounds(self) -> int:
        """How often each model was run."""
        return len(self.samples[0])

    @cached_property
    def first_us(self) -> float:
        """The median of the first model."""
        return statistics.median(self.samples[0])

    def us(self, model: int) -> float:
        """The first model's median by the median of what this model took relative to it in the same round."""
        return self.first_us / self.speed(model).ratio

    def percentile(self, model: int, share: float) -> float:
        """What so many of the rounds, as a share, took a model at most."""
        ranked = sorted(self.samples[model])
        return ranked[min(int(share * len(ranked)), len(ranked) - 1)]

    def speed(self, model: int, against: int = 0) -> Speed:
        """How one model compares with another."""
        pairs = zip(self.samples[against], self.samples[model], strict=True)
        ratios = [theirs / own for theirs, own in pairs]
        rest = iter(ratios)
        medians = [statistics.median(islice(rest, rounds)) for rounds in self.sittings]
        # Ranks by the sign test: each ratio is above the true median or below it, like the throw of a coin.
        ranked, count = sorted(ratios), len(ratios)
        outside = max(1, round((count - _DEVIATIONS * math.sqrt(count)) / 2))
        low, high = min([ranked[outside - 1], *medians]), max([ranked[-outside], *medians])
        return Speed(statistics.median(ratios), low, high)


def pooled(timings: Iterable[Timing]) -> Timing:
    """The rounds of several measurements of the same models as those of one, each of which is a sitting of it."""
    each = list(timings)
    samples = tuple(sum(parts, ()) for parts in zip(*(t.samples for t in each), strict=True))
    return Timing(samples, tuple(t.rounds for t in each))


def interleave(
    models: Sequence[Callable[[], object]], *, seconds: float = 1.0, least: int = 5, most: int = 1000
) -> Timing:
    """Run models in turn, after one warm-up each, until `seconds` have passed.

    Those of a round are compared with each other: what slows the machine down for a while slows all. Every model runs
    as long after its last run as the others do, with as much of it left in the caches; were another first in every
    round, some would run twice in a row, and the medians would be of several times at once. What it is to go first, or
    after which other, is evened out by going round the other way from time to time. At least `least` rounds are run,
    whatever they take, and `most` at the utmost.
    """
    for run in models:
        run()
    samples: list[list[float]] = [[] for _ in models]
    order = list(range(len(models)))
    end = time.perf_counter() + seconds
    while len(samples[0]) < least or (time.perf_counter() < end and len(samples[0]) < most):
        for model in order:
            start = time.perf_counter()
            models[model]()
            samples[model].append(max(time.perf_counter() - start, 1e-9) * 1e6)
        if len(samples[0]) % _ONE_WAY == 0:
            order.reverse()
    return Timing(tuple(map(tuple, samples)))
