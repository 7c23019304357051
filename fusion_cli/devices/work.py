"""What a kernel has to do, and how long a device takes for it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from fusion_cli.costs import Terms
from fusion_cli.devices.profile import DeviceProfile
from fusion_cli.operators.dtypes import NARROW

ATTENTION_ROWS = 64
"""Rows of queries and of keys that an attention kernel keeps on the chip at once."""

EPILOGUE = "Epilogue"
"""The name of a pass over what a product before it has made."""
_MANY_TAPS = 16
"""Places of a filter from which on a kernel for each group is slower than ours for all (conv_tiles.cuh)."""
_A_GROUP = 3.0
_LINE = 3
"""Of a convolution along one axis."""


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
    grid: tuple[float, float, float] | None = None
    """Batches, rows and columns of a product's result, which tiles have to cover."""
    blocks: float = 0.0
    """Of an attention: pieces of its work that multiprocessors share; 0 where that is not known."""
    in_rounds: bool = False
    """Whether a multiprocessor works on one of them at a time."""
    weights: float = 0.0
    """Those of the bytes that are of constants."""
    turned: float = 0.0
    """Bytes that kernels around it move, one after the other (see `turned_bytes`)."""
    is_joined: bool = False
    """Whether the launch of the work before it does this, too."""

    def terms(self, profile: DeviceProfile) -> Terms:
        """Device time, dispatch aside. Two cores of a CPU share what takes longer than waking the second."""
        found = self._terms(profile)
        if self.turned:
            found += Work("Turning", self.turned)._moving(profile)
        if profile.kind != "cpu":
            return found
        return replace(found, launch=min(found.launch, found.total - found.launch))

    def _terms(self, profile: DeviceProfile) -> Terms:
        arithmetic = self.simple / (profile.simple_gops * 1e3) + self.special / (profile.special_gops * 1e3)
        moved = self._moving(profile)
        launch = profile.launch(self.name) if self.bytes and not self.is_joined else 0.0
        if not self.flops:
            if moved.total < arithmetic:
                return Terms(compute=arithmetic, launch=launch)
            return moved + Terms(launch=launch)
        matrix = self.flops / profile.matrix_rate(self.dtype)
        spread = profile.spread(*self.grid) if self.grid else profile.idleness(self.blocks, self.in_rounds)
        if matrix * spread < moved.total:
            return moved * self.slowdown + Terms(compute=arithmetic, launch=launch)
        tiles = matrix * (spread - 1) * self.slowdown
        return Terms(compute=matrix * self.slowdown + arithmetic, tiles=tiles, launch=launch)

    def _moving(self, profile: DeviceProfile) -> Terms:
        """What it takes to move the bytes: constants from where they are between two runs of the model."""
        others = self.bytes - self.weights
        parts = ((others, self.bytes), (self.weights, profile.touched(self.weights, others)))
        share = profile.share(self.name) * 1e3
        us = [(moved / (profile.bandwidth(touched) * share), profile.is_cached(touched)) for moved, touched in parts]
        return Terms(memory=sum(t for t, cached in us if not cached), cache=sum(t for t, cached in us if cached))

    def time_us(self, profile: DeviceProfile) -> float:
        """The same in total."""
        return self.terms(profile).total


def turned_bytes(profile: DeviceProfile, dtype: str, rank: int, ends: float) -> float:
    """What the vendor's convolution on a GPU moves besides to have its channels last: it turns over the image and the
    result, `ends` bytes together. On an H100 lines of 512 channels in 16 bits take 9 us for what 2 would do."""
    times = (8.0 if rank == _LINE else 2.0) if dtype in NARROW else profile.vendor_float32_turning
    return times * ends


def vendor_convolution(profile: DeviceProfile, groups: int, filters: Sequence[int]) -> float:
    """What the vendor's convolution on a GPU takes over a product; `filters` are the dimensions of its weights. Groups
    of several channels that meet them at many places run one after the other: measured on an H100, 16 groups of 48
    channels and 128 places take 0.6 ms for 2.3 Gflop, which a product would have done in 3 us."""
    return (_A_GROUP * groups if runs_by_group(groups, filters) else 1.0) / profile.conv_efficiency


def runs_by_group(groups: int, filters: Sequence[int]) -> bool:
    """Whether a convolution has groups of several channels that meet these filters at many places."""
    return groups > 1 and filters[1] > 1 and count(filters[2:]) >= _MANY_TAPS


def count(dims: Sequence[int]) -> int:
    return math.prod(dims)


def launches(works: Iterable[Work]) -> int:
    return sum(not w.is_joined for w in works)


def total_bytes(works: Iterable[Work]) -> int:
    return int(sum(w.bytes for w in works))
