"""The size of an open dimension at which a fusion begins to pay, or stops."""

from __future__ import annotations

from collections.abc import Callable, Iterator


def doubled(size: int, largest: int) -> Iterator[int]:
    """Twice the size, four times, and so on up to the largest."""
    while size < largest:
        size = min(2 * size, largest)
        yield size


def halved(size: int) -> Iterator[int]:
    """Half the size, a quarter, and so on down to 1."""
    while size > 1:
        size //= 2
        yield size


def edge(loses: int, pays: int, is_paying: Callable[[int], bool]) -> int:
    """The size nearest to `loses`, at which it does not pay, at which it does."""
    while abs(pays - loses) > 1:
        middle = (pays + loses) // 2
        loses, pays = (loses, middle) if is_paying(middle) else (middle, pays)
    return pays
