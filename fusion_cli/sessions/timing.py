"""Timing two things against each other on a machine that also does something else."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Timing:
    """Microseconds of A (median) and of B (A's time by the median of what B took relative to A in the same round)."""

    a_us: float
    b_us: float
    rounds: int

    @property
    def ratio(self) -> float:
        """How many times faster B is than A."""
        return self.a_us / self.b_us if self.b_us > 0 else float("inf")


def alternate(
    a: Callable[[], object], b: Callable[[], object], *, seconds: float = 1.0, least: int = 5, most: int = 1000
) -> Timing:
    """Run A and B in turn, after one warm-up each, until `seconds` have passed.

    The two of a round are compared with each other: what slows the machine down for a while slows both. The one that
    goes first changes with every round, so that neither profits from what the other leaves in the caches. At least
    `least` rounds are run, whatever they take, and `most` at the utmost.
    """
    a()
    b()
    samples: tuple[list[float], list[float]] = ([], [])
    order: Sequence[tuple[Callable[[], object], int]] = ((a, 0), (b, 1))
    end = time.perf_counter() + seconds
    while len(samples[0]) < least or (time.perf_counter() < end and len(samples[0]) < most):
        for call, index in order:
            start = time.perf_counter()
            call()
            samples[index].append(max(time.perf_counter() - start, 1e-9) * 1e6)
        order = order[::-1]
    relative = statistics.median(second / first for first, second in zip(*samples, strict=True))
    a_us = statistics.median(samples[0])
    return Timing(a_us, a_us * relative, len(samples[0]))
