"""The values of the tensor program that one kernel computes."""

from __future__ import annotations

from dataclasses import dataclass, field

from fusion_cli.plan.graph import ANCHORS, Val
from fusion_cli.sizes.algebra import Shape

ANCHORED = frozenset({"linear", "conv", "pool"})
"""Kinds of kernels that compute what follows their own result element by element."""


@dataclass(eq=False)
class Group:
    """The values of one kernel. `like` is a value of the iteration space's shape; `kind` names the stage."""

    kind: str
    like: Val
    vals: list[Val] = field(default_factory=list)
    needs: set[Group] = field(default_factory=set)
    """The groups whose values it reads."""
    first: int = 0
    last: int = 0
    """Where its values lie in the topological order."""
    has_parts: bool = False
    """Whether it writes to places in the memory of joined values."""

    @property
    def shape(self) -> Shape:
        return self.like.shape

    @property
    def anchor(self) -> Val:
        return next(v for v in self.vals if v.op in ANCHORS)

    def widen(self, other: Val) -> None:
        """Take the rank of a value of the same shape that has more leading ones."""
        if len(other.shape) > len(self.like.shape):
            self.like = other
