"""Predicted costs: times, and what they are made of."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Literal, Self

Device = Literal["cpu", "cuda", "cuda graph"]
"""Where models run; on a GPU operator by operator, or all its kernels as one CUDA graph."""


@dataclass(frozen=True)
class Terms:
    """Microseconds by what they are spent on; they add up to the time. Where two things run at once, arithmetic and
    memory, or the host and a GPU, only what the longer takes is counted."""

    compute: float = 0.0
    """Arithmetic at the full rate."""
    memory: float = 0.0
    """Moving bytes between memory and the chip, where that takes longer than the arithmetic."""
    cache: float = 0.0
    """The same, where they stay in the last cache."""
    tiles: float = 0.0
    """What a product or an attention takes longer for tiles that are not full, and for multiprocessors left without
    one in the last wave."""
    launch: float = 0.0
    """Kernels that begin and end on the device."""
    dispatch: float = 0.0
    """The host: nodes, and launches from inside an operator."""

    @property
    def total(self) -> float:
        return float(sum(getattr(self, f.name) for f in fields(self)))

    def __add__(self, other: Self) -> Self:
        return type(self)(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def __mul__(self, factor: float) -> Self:
        return type(self)(*(getattr(self, f.name) * factor for f in fields(self)))


@dataclass(frozen=True)
class Guard:
    """Sizes at which a fusion runs; at all others its nodes do, as ONNX Runtime has them."""

    dims: tuple[str, ...]
    """Names of open dimensions, whose product decides."""
    value: str
    """A graph input that has them, at `axes`."""
    axes: tuple[int, ...]
    limit: int
    is_from: bool
    """Whether it runs from the limit on, or up to it."""

    def holds(self, shape: Sequence[int]) -> bool:
        """Whether the fusion runs where `value` has this shape."""
        size = math.prod(shape[axis] for axis in self.axes)
        return size >= self.limit if self.is_from else size <= self.limit

    def __str__(self) -> str:
        size = f"{'*'.join(self.dims)}={self.limit}"
        return f"from {size} on; below it" if self.is_from else f"up to {size}; beyond it"


@dataclass(frozen=True)
class Score:
    """Predicted cost of a region on one target: time by its terms, bytes through memory, kernel launches."""

    target: str
    before: Terms
    after: Terms
    bytes_before: int
    bytes_after: int
    launches_before: int
    launches_after: int
    operations: float = 0.0
    """What its kernels compute, in elementary operations."""
    uncertainty_us: float = 0.0
    """By how much the gain is likely to be off."""
    guard: Guard | None = None
    """The sizes at which it runs, where it is not all."""

    @property
    def before_us(self) -> float:
        return self.before.total

    @property
    def after_us(self) -> float:
        return self.after.total

    @property
    def gain_us(self) -> float:
        return self.before_us - self.after_us

    @property
    def is_certain(self) -> bool:
        """Whether the gain, or the loss, is more than predictions are off."""
        return abs(self.gain_us) > self.uncertainty_us


@dataclass(frozen=True)
class Forecast:
    """The predicted time of a whole model for one target, run on one device: as it is, and with its fusions."""

    target: str
    device: Device
    before: Terms
    after: Terms
