"""How values are read: which views are read where they lie, and which are copied first."""

from __future__ import annotations

from collections.abc import Iterable

from fusion_cli.plan.graph import LEAVES, REDUCTIONS, VIEWS, Uses, Val
from fusion_cli.plan.lowering import Builder

_FROM_MEMORY = frozenset({"matmul", "conv", "pool", "moments", "gather"})
"""What reads elements other than the one that it makes."""


class AliasAnalysis:
    """The views of a tensor program; `copied` are those that somebody needs as memory of their own."""

    def __init__(self, builder: Builder, uses: Uses) -> None:
        self.builder = builder
        self.uses = uses
        self.copied = {v for v in uses.order if v.op in ("transpose", "slice") and self._needs_copy(v)}

    def storage_root(self, val: Val) -> Val:
        """The value in memory that reading `val` reads: behind views that are not copied."""
        while val.op in VIEWS and val not in self.copied:
            val = val.args[0]
        return val

    def is_computed(self, val: Val) -> bool:
        return val in self.copied or val.op not in LEAVES | VIEWS | {"concat"}

    def _needs_copy(self, val: Val) -> bool:
        return val in self.uses.outputs or not all(self._reads_view(r, val, val) for r in self.uses.readers(val))

    def _reads_view(self, reader: Val, read: Val, view: Val) -> bool:
        """Whether `reader` can read the transpose or slice `view`, which it sees as `read`, without a copy."""
        if reader.is_elementwise or reader.op in REDUCTIONS:
            return True
        if view.op == "transpose":
            return reader.op == "attention" or (reader.op == "matmul" and swaps_last_two(view.perm))
        if reader.op in ("matmul", "attention"):
            return all(s == 1 for s in self.builder.literals(view.shape_value("steps")))
        if reader.op == "transpose" and self._needs_copy(reader):
            return True
        if reader.op == "transpose" or (reader.op == "reshape" and self.builder.keeps_strides(read.dims, reader.dims)):
            return reader not in self.uses.outputs and all(
                self._reads_view(r, reader, view) for r in self.uses.readers(reader)
            )
        return False

    def readers(self, val: Val) -> Iterable[tuple[Val, bool]]:
        """Values that read `val`, through views too; whether as it is computed, rather than from memory."""
        for reader in self.uses.readers(val):
            if self.is_computed(reader):
                yield reader, reader not in self.copied and not _reads_memory(reader, val)
            else:
                yield from ((r, False) for r, _ in self.readers(reader))


def _reads_memory(reader: Val, val: Val) -> bool:
    """Whether `reader` needs `val` in memory even within one kernel."""
    return reader.op in _FROM_MEMORY or (reader.op == "attention" and val in reader.args[:3])


def swaps_last_two(perm: tuple[int, ...]) -> bool:
    rank = len(perm)
    return perm == (*range(rank - 2), rank - 1, rank - 2)
