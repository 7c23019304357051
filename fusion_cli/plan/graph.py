"""The tensor program between ONNX nodes and stages: one operation per value, from a small set of primitives.

Primitives: "input", "const" (all elements equal), "index" (the position along an axis), the elementwise operators of
ONNX, "Expand", reductions over the last axis ("reduce_sum", ...), "softmax" over the last axis, the views "reshape" and
"transpose", "matmul" and "conv".
"""

from __future__ import annotations

from dataclasses import dataclass, field

from fusion_cli.plan.ir import Const
from fusion_cli.plan.sizes import Shape

FLOATS = frozenset({"float32", "float16", "bfloat16"})
DTYPES = FLOATS | {"int32", "int64", "bool"}

REDUCTIONS = frozenset({"reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod"})
VIEWS = frozenset({"reshape", "transpose"})
ANCHORS = frozenset({"matmul", "conv", "attention"})
LEAVES = frozenset({"input", "const", "index"})


@dataclass(frozen=True, eq=False)
class Val:
    """A value of the tensor program; compared by identity.

    `dims` is the host value with its dimensions and `shape` what is known of them. `attrs` are literals that tell
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
        return self.op not in REDUCTIONS | VIEWS | ANCHORS | LEAVES | {"softmax"}

    def attr(self, name: str) -> object:
        return dict(self.attrs)[name]

    @property
    def perm(self) -> tuple[int, ...]:
        """A transpose's permutation."""
        perm = self.attr("perm")
        assert isinstance(perm, tuple)
        return perm
