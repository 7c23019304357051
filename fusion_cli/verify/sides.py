"""On which sides of its guards an operator was tried, where a model holds both ways."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from fusion_cli.costs import Guard
from fusion_cli.types import FusedOp
from fusion_cli.verify.feeds import Feeds

Sizes = Mapping[str, tuple[int, int]]
"""Of dimensions by name, the least and the largest, which are the same."""


def runs_with(op: FusedOp, feeds: Feeds) -> bool:
    """Whether a call of the operator runs with these inputs of the model, and not its nodes in its place."""
    guards = op.guards
    return len(guards) < len(op.calls) or any(_holds(guard, feeds) for guard in guards.values())


def untried(ops: Iterable[FusedOp], tried: Sequence[Feeds]) -> Iterator[Sizes]:
    """Sizes nearest to their limits for the sides of guards on which none of the inputs tried are."""
    for guard in dict.fromkeys(guard for op in ops for guard in op.guards.values()):
        for side in {True, False} - {_holds(guard, feeds) for feeds in tried}:
            size = guard.limit if side else guard.limit - 1 if guard.is_from else guard.limit + 1
            yield dict.fromkeys(guard.dims[:-1], (1, 1)) | {guard.dims[-1]: (size, size)}


def _holds(guard: Guard, feeds: Feeds) -> bool:
    return guard.holds(feeds[guard.value].shape)
