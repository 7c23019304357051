"""What a kernel has to do, and how long a device takes for it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fusion_cli.devices.profile import DeviceProfile


@dataclass(frozen=True)
class Work:
    """One kernel: matrix operations (as the vendor's kernel would need time for them, see `slowdown`), bytes through
    memory, and elementwise operations, simple and special (exp and the like)."""

    name: str
    bytes: float
    flops: float = 0.0
    dtype: str = "float32"
    simple: float = 0.0
    special: float = 0.0
    slowdown: float = 1.0

    def time_us(self, profile: DeviceProfile) -> float:
        """Device time, dispatch aside."""
        arithmetic = self.simple / (profile.simple_gops * 1e3) + self.special / (profile.special_gops * 1e3)
        moved = self.bytes / (profile.bandwidth(self.bytes) * profile.share(self.name))
        matrix = self.flops / profile.matrix_rate(self.dtype)
        return max(matrix, moved) * self.slowdown + arithmetic if self.flops else max(moved, arithmetic)


def count(dims: Sequence[int]) -> int:
    return math.prod(dims)


def total_bytes(works: Iterable[Work]) -> int:
    return int(sum(w.bytes for w in works))
