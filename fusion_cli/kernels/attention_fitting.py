"""Which kernels an attention of so many queries and keys has."""

from __future__ import annotations

from dataclasses import dataclass

from fusion_cli.devices.profile import DeviceProfile
from fusion_cli.kernels.attention_work import ARCH, SHALLOW, panels_of

FEW_QUERIES = 16
"""Up to so many, as in attention_decode.cuh, keys and values are read once for all heads that share them, by a kernel
that is bound by that; more may have one that has all keys at once, as in attention_short.cuh."""
_LEAST_MANY = 65
"""Queries from which on there are those of attention_ring.cuh and attention_walk.cuh."""
TILE_ROWS = 128
"""Of Hopper's kernel whose blocks go from tile to tile, one to a multiprocessor."""
_TILE, _RING_TILES = 128, {True: 8, False: 4}
"""Keys of a tile, and tiles that go through a ring, if what the score reads is the same for all queries or not."""


@dataclass(frozen=True)
class Fitting:
    """Which kernels fit the numbers of queries and keys: those that these never have launched are not compiled."""

    few: bool
    """That of few queries."""
    shorts: tuple[int, ...]
    """Those that have all keys at once: how many tiles of them."""
    rings: tuple[bool, ...]
    """Those with two places for keys, for operands of the score that are the same for all queries, or not."""
    many: bool
    """That whose blocks go from tile to tile."""
    is_certain: bool
    """Whether the numbers are known: what fits is launched, before those that follow here."""

    @classmethod
    def to(cls, queries: int | None, keys: int | None) -> Fitting:
        """Those that fit so many, None being any number."""

        def fits(least: int, over: int, most: int | None = None) -> bool:
            are_there = keys is None or over < keys <= (keys if most is None else most)
            return are_there and (queries is None or queries >= least)

        is_certain = queries is not None and keys is not None
        shorts = tuple(t for t in (1, 2) if fits(FEW_QUERIES + 1, (t - 1) * _TILE, t * _TILE))
        taken = is_certain and bool(shorts)
        rings = tuple(alike for alike, t in _RING_TILES.items() if not taken and fits(_LEAST_MANY, 0, t * _TILE))
        few = queries is None or queries <= FEW_QUERIES
        return cls(few, shorts, rings, not taken and fits(_LEAST_MANY, 0), is_certain)

    def rings_of(self, panel: tuple[int, int]) -> tuple[bool, ...]:
        """Those of heads of these depths, by a panel of Hopper's own kernels."""
        return self.rings if max(panel) <= SHALLOW else ()

    def walks(self, panel: tuple[int, int]) -> bool:
        """Whether there is a kernel whose blocks go from tile to tile."""
        return self.many and not (self.is_certain and False in self.rings_of(panel))


def goes_round(profile: DeviceProfile, dtype: str, queries: int, keys: int, depth: int, value_depth: int) -> bool:
    """Whether heads of these depths have Hopper's kernel whose blocks go from tile to tile."""
    panel = panels_of(depth, value_depth) if profile.target == ARCH and dtype != "float32" else None
    return panel is not None and Fitting.to(queries, keys).walks(panel)
