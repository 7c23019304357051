"""The axes of images [N, C, ...], and the permutations that turn them over."""

from __future__ import annotations

IMAGE = 3
"""Axes that an image has at least: the batch, the channels, and one to move along."""


def to_last(rank: int) -> tuple[int, ...]:
    """What puts the channels of an image last."""
    return (0, *range(2, rank), 1)


def to_first(rank: int) -> tuple[int, ...]:
    """What puts them first again."""
    return (0, rank - 1, *range(1, rank - 1))
