"""The permutations that turn images [N, C, ...] over."""

from __future__ import annotations


def to_last(rank: int) -> tuple[int, ...]:
    """What puts the channels of an image last."""
    return (0, *range(2, rank), 1)


def to_first(rank: int) -> tuple[int, ...]:
    """What puts them first again."""
    return (0, rank - 1, *range(1, rank - 1))
