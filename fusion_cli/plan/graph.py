"""The tensor program between ONNX nodes and stages: one operation per value, from a small set of primitives.

Primitives: "input", "const" (all elements equal), "index" (the position along an axis), the elementwise operators of
ONNX, "Expand", reductions over the last axis ("reduce_sum", ...), "softmax" over the last axis, the views "reshape",
"transpose" and "slice", "matmul", "conv", "pool" and "moments" of images whose channels come last, "gather", which
reads rows of a matrix by their numbers [..., 1], and "concat", whose arguments are each a "part": a value that is
written to its place in the memory of the whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from fusion_cli.operators.registry import having
from fusion_cli.planir.stages import Const
from fusion_cli.sizes.algebra import Shape

REDUCTIONS = frozenset({"reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod"})
VIEWS = frozenset({"reshape", "transpose", "slice"})
ANCHORS = frozenset({"matmul", "conv", "pool", "attention", "moments"})
LEAVES = frozenset({"input", "const", "index"})

CHEAP = having("cheap")
RECOMPUTED = 8
"""Operations worth repeating per element rather than writing their result to memory."""


@dataclass(frozen=True, eq=False)
class Val:
    """A value of the tensor program; compared by identity.

    `dims` is the shape value with its dimensions and `shape` what is known of them. `attrs` are literals that tell
    equal operations on equal arguments apart: ("perm", ...), ("axis", ...) and so on. `node` names the ONNX node.
    """

    op: str
    args: tuple[Val, ...]
    dtype: str
    dims: int
    shape: Shape
    value: Const | None = None
    attrs: tuple[tuple[str, object], ...] = ()
    node: str = field(default="", repr=False)
    name: str = field(default="", repr=False)

    @property
    def is_elementwise(self) -> bool:
        return self.op not in REDUCTIONS | VIEWS | ANCHORS | LEAVES | {"softmax", "concat", "gather"}

    def attr(self, name: str) -> object:
        return dict(self.attrs)[name]

    @property
    def perm(self) -> tuple[int, ...]:
        """A transpose's permutation."""
        perm = self.attr("perm")
        assert isinstance(perm, tuple)
        return perm

    @property
    def axis(self) -> int:
        """A concatenation's axis, negative."""
        axis = self.attr("axis")
        assert isinstance(axis, int)
        return axis

    def shape_value(self, name: str) -> int:
        """A shape value among the attributes."""
        index = self.attr(name)
        assert isinstance(index, int)
        return index


class Uses:
    """Who reads what in a tensor program, in topological order."""

    def __init__(self, outputs: Sequence[Val]) -> None:
        self.outputs = set(outputs)
        self.order = topological(outputs)
        self._readers: dict[Val, list[Val]] = {v: [] for v in self.order}
        for val in self.order:
            for arg in dict.fromkeys(val.args):
                self._readers[arg].append(val)

    def readers(self, val: Val) -> list[Val]:
        return self._readers[val]

    def only_inside(self, val: Val, inside: set[Val]) -> bool:
        return val not in self.outputs and all(r in inside for r in self._readers[val])


def topological(roots: Iterable[Val]) -> list[Val]:
    """All values the roots depend on, arguments first."""
    order: dict[Val, None] = {}
    stack = [(root, False) for root in reversed(list(roots))]
    while stack:
        val, expanded = stack.pop()
        if val in order:
            continue
        if expanded:
            order[val] = None
        else:
            stack.append((val, True))
            stack.extend((arg, False) for arg in reversed(val.args) if arg not in order)
    return list(order)
