"""How faults of a plan are said, and what can be told of shapes whose sizes are numbers, symbols or unknown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

Shape = Sequence[int | str | None]
"""What is known of dimensions: a number, a symbol, or nothing."""


class BrokenPlan(Exception):
    """A plan that breaks an invariant: a fault of the compiler, never of a model. The message says where; the plan's
    text is a note of the exception."""


def require(holds: object, fault: str, *said: object) -> None:
    """Raise BrokenPlan unless something holds; `said` are put in the message's braces."""
    if not holds:
        raise BrokenPlan(fault.format(*said))


@contextmanager
def within(place: str) -> Iterator[None]:
    """Say of faults in which place of the plan they are."""
    try:
        yield
    except BrokenPlan as fault:
        raise BrokenPlan(f"{place}: {fault}") from None


def differ(a: int | str | None, b: int | str | None) -> bool:
    """Whether sizes are certainly not equal; those of different names may be."""
    return isinstance(a, int) and isinstance(b, int) and a != b


def are_equal(shape: Shape, other: Shape) -> bool:
    """Whether shapes are equal as far as they are known, leading ones aside."""
    shared = min(len(shape), len(other))
    leading = {*shape[: len(shape) - shared], *other[: len(other) - shared]}
    return leading <= {1, None} and all(
        a == b or None in (a, b) for a, b in zip(reversed(shape), reversed(other), strict=False)
    )
