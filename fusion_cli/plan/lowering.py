"""Building the tensor program: the primitives that lowering rules are written with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from fusion_cli.codes import plan as codes
from fusion_cli.errors import Unsupported
from fusion_cli.operators.dtypes import PLANNED, name_of
from fusion_cli.operators.registry import having
from fusion_cli.plan.graph import Val
from fusion_cli.plan.shape_program import ShapeProgram
from fusion_cli.planir.stages import Const
from fusion_cli.sizes.algebra import ONE, Shape, Size, runs
from fusion_cli.sizes.equalities import Sizes
from fusion_cli.sizes.operations import broadcast_shapes

_BOOL = having("bool")


def dtype_name(dtype: ir.DataType | None) -> str:
    """An element type as plans name it; raises Unsupported where kernels have none."""
    name = name_of(dtype)
    if name not in PLANNED:
        raise Unsupported(codes.DTYPE, "one of " + ", ".join(sorted(PLANNED)), name)
    return name


class Builder:
    """The tensor program under construction. Equal operations on equal values are shared."""

    def __init__(self) -> None:
        self.sizes = Sizes()
        self.shapes = ShapeProgram(self.sizes)
        self.node = ""
        self._shared: dict[tuple[object, ...], Val] = {}

    # Leaves

    def input(self, slot: int, dtype: str, shape: Shape, name: str) -> Val:
        dims = self.shapes.source("dims", slot, shape)
        return self._make("input", (), dtype, dims, attrs=(("slot", slot),), name=name)

    def const(self, value: Const, dtype: str, shape: Sequence[int] = ()) -> Val:
        return self._make("const", (), dtype, self.shapes.const(shape), value=value)

    def array(self, array: np.ndarray, dtype: str, name: str) -> Val:
        """A constant whose elements are all equal."""
        flat = array.reshape(-1)
        if not flat.size or not (flat[0] == flat).all():
            raise Unsupported(codes.CONSTANT, "a scalar, or equal elements", f"{name} of shape {array.shape}")
        element: Const = flat[0].item() if dtype != "bfloat16" else float(flat[0])
        return self.const(element, dtype, array.shape)

    def positions(self, axis: int, dims: int) -> Val:
        """int64 positions along `axis` (negative, from the end), of dimensions `dims` (a shape value)."""
        return self._make("index", (), "int64", dims, value=axis)

    # Elementwise

    def apply(self, op: str, *args: Val | float, dtype: str = "") -> Val:
        """An elementwise operator on values and literals; the result has the first value's type, or `dtype`, unless the
        operator gives truth values."""
        typed = args[1:] if op == "Where" else args
        kind, *_ = (a.dtype for a in typed if isinstance(a, Val))
        vals = tuple(a if isinstance(a, Val) else self.const(a, kind) for a in args)
        return self._make(op, vals, "bool" if op in _BOOL else dtype or kind, self._broadcast([v.dims for v in vals]))

    def cast(self, x: Val, dtype: str) -> Val:
        return x if x.dtype == dtype else self._make("Cast", (x,), dtype, x.dims)

    def expand(self, x: Val, dims: int) -> Val:
        """Broadcast to the (two-way) broadcast with shape value `dims`."""
        result = self._broadcast([x.dims, dims])
        return x if result == x.dims else self._make("Expand", (x,), x.dtype, result)

    def again(self, val: Val, args: Sequence[Val], dims: int) -> Val:
        """The same operation on other values."""
        return self._make(val.op, tuple(args), val.dtype, dims, val.value, val.attrs)

    # Over the last axis

    def reduce(self, op: str, x: Val) -> Val:
        """`op` ("reduce_sum", ...) over the last axis, which stays as 1."""
        return self._make(op, (x,), x.dtype, self.shapes.emit("reduce", (x.dims,), (1, len(x.shape) - 1)))

    def softmax(self, x: Val, zero_empty: bool = False) -> Val:
        """A row that is all -inf gives NaN, with `zero_empty` zeros."""
        return self._make("softmax", (x,), x.dtype, x.dims, attrs=(("zero_empty", zero_empty),))

    # Views

    def reshape(self, x: Val, dims: int) -> Val:
        """The same elements in the same order with dimensions `dims` (resolved: no 0 for "copy", no -1)."""
        if x.op == "reshape":
            x = x.args[0]
        if x.op == "transpose":
            moved = self._split_again(x, self._shape(dims)) or self._split_before(x, dims)
            moved = moved or self._split_before(self._without_ones(x), dims) or self._merge_before(x, dims)
            if moved is not None:
                return moved
        if dims == x.dims or self._shape(dims) == self._shape(x.dims):
            return x
        return self.again(x, (), dims) if x.op == "const" else self._make("reshape", (x,), x.dtype, dims)

    def _split_again(self, x: Val, shape: Shape) -> Val | None:
        """Leading axes merged, the others transposed, and the leading axes split again: one transpose."""
        if x.perm[0] != 0 or x.args[0].op != "reshape":
            return None
        merged, before = x.args[0], x.args[0].args[0]
        count = len(before.shape) - len(merged.shape) + 1
        leading = self._shape(before.dims)[:count]
        if count < 1 or self._shape(before.dims)[count:] != self._shape(merged.dims)[1:]:
            return None
        if shape != leading + self._shape(x.dims)[1:]:
            return None
        return self.transpose(before, (*range(count), *(p + count - 1 for p in x.perm[1:])))

    def _split_before(self, x: Val, dims: int) -> Val | None:
        """Axes of a transpose split: the transpose of split axes, which needs no copy."""
        runs = self.axis_runs(x.dims, dims)
        if runs is None:
            return None
        by_axis = dict(zip(x.perm, runs, strict=True))
        order = [i for axis in sorted(by_axis) for i in by_axis[axis]]
        before = self.reshape(x.args[0], self.shapes.emit("take", (dims,), order))
        return self.transpose(before, [order.index(i) for i in range(len(order))])

    def _merge_before(self, x: Val, dims: int) -> Val | None:
        """Axes of a transpose merged that lie side by side before it, too: the transpose of merged axes."""
        runs = self.axis_runs(dims, x.dims)
        if runs is None or not all(runs):
            return None
        moved = [[x.perm[i] for i in run] for run in runs]
        if any(m != list(range(m[0], m[0] + len(m))) for m in moved):
            return None
        order = sorted(range(len(runs)), key=moved.__getitem__)
        before = self.reshape(x.args[0], self.shapes.emit("take", (dims,), order))
        return self.transpose(before, [order.index(i) for i in range(len(order))])

    def _without_ones(self, x: Val) -> Val:
        """A transpose without its axes of size 1."""
        kept = [p for p, size in zip(x.perm, self._shape(x.dims), strict=True) if size != ONE]
        order = sorted(kept)
        before = self.reshape(x.args[0], self.shapes.emit("take", (x.args[0].dims,), order))
        perm = tuple(map(order.index, kept))
        return self._make(
            "transpose", (before,), x.dtype, self.shapes.emit("permute", (before.dims,), perm), attrs=(("perm", perm),)
        )

    def axis_runs(self, whole: int, split: int) -> list[list[int]] | None:
        """Which axes of the shape `split` each axis of `whole` is split into; None where axes are merged."""
        return runs(self._shape(whole), self._shape(split))

    def keeps_strides(self, before: int, after: int) -> bool:
        """Whether the reshape only splits axes and adds or drops those of 1: then any view stays a view."""
        shape = [s for s in self._shape(before) if s != ONE]
        return runs([*shape, ONE], [*self._shape(after), ONE]) is not None

    def transpose(self, x: Val, perm: Sequence[int]) -> Val:
        if x.op == "transpose":
            x, perm = x.args[0], [x.perm[p] for p in perm]
        moved = [p for p in perm if self.sizes.norm(x.shape[p]) != ONE]
        dims = self.shapes.emit("permute", (x.dims,), perm)
        if moved == sorted(moved):
            return self.reshape(x, dims)
        return self._make("transpose", (x,), x.dtype, dims, attrs=(("perm", tuple(perm)),))

    def slice(self, x: Val, dims: int, starts: int, steps: int) -> Val:
        """Along each axis every `steps`-th element from `starts` on, all inside x (shape values; see slicing.py)."""
        dims, starts, steps = map(self.shapes.canonical, (dims, starts, steps))
        return self._make("slice", (x,), x.dtype, dims, attrs=(("starts", starts), ("steps", steps)))

    def concat(self, vals: Sequence[Val], axis: int) -> Val:
        """The values joined along `axis` (negative); joined values among them are joined directly."""
        flat = [p for v in vals for p in (self._joined(v) if v.op == "concat" and v.axis == axis else [v])]
        if len(flat) == 1:
            return flat[0]
        rank = len(flat[0].shape)
        start, starts = self.shapes.const((0,)), []
        for val in flat:
            starts.append(self.shapes.emit("put", (self.shapes.const((0,) * rank), start), (rank + axis,)))
            start = self.shapes.emit("add", (start, self.shapes.emit("take", (val.dims,), (rank + axis,))))
        dims = self._broadcast([self.shapes.emit("put", (v.dims, start), (rank + axis,)) for v in flat])
        attrs = (("axis", axis), ("joined", tuple(flat)), ("steps", self.shapes.const((1,) * rank)))
        parts = [
            self._make("part", (v,), v.dtype, v.dims, attrs=(*attrs, ("starts", s)))
            for v, s in zip(flat, starts, strict=True)
        ]
        return self._make("concat", tuple(parts), flat[0].dtype, dims, attrs=attrs[:1])

    def moved(self, part: Val, by: int) -> Val:
        """A part of joined values that lies elsewhere in them, by a shape value."""
        starts = self.shapes.emit("add", (part.shape_value("starts"), by))
        attrs = tuple((name, starts if name == "starts" else value) for name, value in part.attrs)
        return self._make("part", part.args, part.dtype, part.dims, attrs=attrs)

    @staticmethod
    def _joined(concat: Val) -> list[Val]:
        return [part.args[0] for part in concat.args]

    def unsqueeze(self, x: Val, axes: Sequence[int]) -> Val:
        return self.reshape(x, self.shapes.emit("unsqueeze", (x.dims,), axes)) if axes else x

    def squeeze(self, x: Val, axes: Sequence[int]) -> Val:
        return self.reshape(x, self.shapes.emit("squeeze", (x.dims,), axes)) if axes else x

    def flatten_from(self, x: Val, axis: int) -> Val:
        """Axes `axis` and after as one (axis >= 0)."""
        head = self.shapes.emit("slice", (x.dims,), (0, axis, 1))
        tail = self.shapes.emit("prod", (self.shapes.emit("slice", (x.dims,), (axis, len(x.shape), 1)),))
        return self.reshape(x, self.shapes.emit("concat", (head, tail)))

    def gather(self, table: Val, rows: Val) -> Val:
        """The rows of a matrix that integers [...] name, as [..., length of a row]."""
        length = self.shapes.emit("take", (table.dims,), (1,))
        dims = self.shapes.emit("concat", (rows.dims, length))
        return self._make("gather", (table, self.unsqueeze(rows, (len(rows.shape),))), table.dtype, dims)

    # Anchors

    def matmul(self, a: Val, b: Val, trans_a: bool = False, trans_b: bool = False, alpha: float = 1.0) -> Val:
        """alpha * A @ B over the last two axes of values of rank 2 or more."""
        dims_a, dims_b = (
            self.shapes.emit("permute", (x.dims,), (*range(len(x.shape) - 2), len(x.shape) - 1, len(x.shape) - 2))
            if trans
            else x.dims
            for x, trans in ((a, trans_a), (b, trans_b))
        )
        attrs = (("trans_a", trans_a), ("trans_b", trans_b), ("alpha", alpha))
        return self._make("matmul", (a, b), a.dtype, self.shapes.emit("matmul", (dims_a, dims_b)), attrs=attrs)

    def conv(self, args: Sequence[Val], dims: int, attrs: tuple[tuple[str, object], ...]) -> Val:
        return self._make("conv", tuple(args), args[0].dtype, dims, attrs=attrs)

    def moments(self, x: Val, groups: int, epsilon: float) -> Val:
        """The mean and the inverse deviation of each group of channels of an image [N, ..., C], as [2, N, C]."""
        ends = self.shapes.emit("take", (x.dims,), (0, len(x.shape) - 1))
        dims = self.shapes.emit("concat", (self.shapes.const((2,)), ends))
        return self._make("moments", (x,), "float32", dims, attrs=(("groups", groups), ("epsilon", epsilon)))

    def pool(self, x: Val, dims: int, attrs: tuple[tuple[str, object], ...]) -> Val:
        """Windows of x [N, ..., C]."""
        return self._make("pool", (x,), x.dtype, dims, attrs=attrs)

    # Shared

    def literals(self, host: int) -> list[int | None]:
        """The elements of a shape value as far as they are known."""
        return [self.sizes.norm(e).known for e in self.shapes.values[host]]

    def merge_shape(self, x: Val, shape: Shape) -> None:
        """Learn that x has this shape too."""
        for mine, given in zip(x.shape, shape, strict=True):
            self.sizes.learn(mine, given)

    def fixed(self, size: Size, what: str) -> int:
        """A dimension that must be known at compile time."""
        known = self.sizes.norm(size).known
        if known is None:
            raise Unsupported(codes.UNPROVEN_SHAPE, f"a fixed size of {what}", str(size))
        return known

    def _shape(self, dims: int) -> Shape:
        return self.sizes.shape(self.shapes.values[dims])

    def _broadcast(self, dims: Sequence[int]) -> int:
        """The broadcast, as one of `dims` itself where that is provably the result."""
        shape = broadcast_shapes([self._shape(d) for d in dims])
        for candidate in dims:
            if self._shape(candidate) == shape:
                return candidate
        return self.shapes.emit("broadcast", list(dict.fromkeys(dims)))

    def _make(
        self,
        op: str,
        args: tuple[Val, ...],
        dtype: str,
        dims: int,
        value: Const | None = None,
        attrs: tuple[tuple[str, object], ...] = (),
        name: str = "",
    ) -> Val:
        key = (op, tuple(map(id, args)), dtype, dims, type(value), repr(value), attrs)
        if key not in self._shared:
            shape = self.shapes.values[dims]
            self._shared[key] = Val(op, args, dtype, dims, shape, value, attrs, self.node, name)
        return self._shared[key]
