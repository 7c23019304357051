"""The shape program: building it, what is known of its values at compile time, and running it on numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fusion_cli.plan.shape_ops import EVALUATE
from fusion_cli.planir.host_op import ShapeOp
from fusion_cli.sizes.algebra import Shape, Size
from fusion_cli.sizes.equalities import Sizes


class ShapeProgram:
    """A shape program under construction. Equal operations are shared; operations on literals are folded."""

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        self.ops: list[ShapeOp] = []
        self.values: list[Shape] = []
        """What is known of each shape value, element by element."""
        self._index: dict[ShapeOp, int] = {}
        self._first: dict[Shape, int] = {}

    def source(self, kind: str, slot: int, value: Shape) -> int:
        """A "dims" or "read" operation on operator input `slot`, with what is known of its result."""
        self.sizes.give(value)
        return self._add(ShapeOp(kind, (), (slot,)), value)

    def const(self, ints: Sequence[int]) -> int:
        return self._add(ShapeOp("const", (), tuple(ints)), tuple(Size(i) for i in ints))

    def emit(self, kind: str, args: Sequence[int] = (), ints: Sequence[int] = ()) -> int:
        """Append an operation (see `ShapeOp`), or return the earlier one that is equal; the index of its value."""
        op = ShapeOp(kind, tuple(args), tuple(ints))
        if kind in ("take", "put"):
            found = self._looked_through(op)
            if isinstance(found, int):
                return found
            op = found
        if op in self._index:
            return self._index[op]
        if kind == "reshape":
            shape, target = (self.sizes.shape(self.values[a]) for a in op.args)
            # Without allowzero a 0 stands for the size that is there.
            copied = [shape[i] if size == Size(0) and not op.ints[0] else size for i, size in enumerate(target)]
            if all(size.known == -1 or size.is_nonnegative for size in copied):
                self.sizes.settle_reshape(shape, tuple(copied))
        value = EVALUATE[kind](op.ints, *(self.sizes.shape(self.values[a]) for a in op.args))
        literals = [s.known for s in value]
        if all(self.ops[a].kind == "const" for a in op.args) and None not in literals:
            return self.const([i for i in literals if i is not None])
        return self._add(op, value)

    def canonical(self, value: int) -> int:
        """The first value that was asked for here and is provably equal to this one."""
        return self._first.setdefault(self.sizes.shape(self.values[value]), value)

    def _looked_through(self, op: ShapeOp) -> ShapeOp | int:
        """A "take" or "put" without what a "put" before it changes for nothing; or an earlier value that it is."""
        while self.ops[op.args[0]].kind == "put":
            inner = self.ops[op.args[0]]
            base, values = inner.args
            if op.kind == "put":
                if not set(inner.ints) <= set(op.ints):
                    break
                op = ShapeOp("put", (base, op.args[1]), op.ints)
            elif set(op.ints) <= set(inner.ints):
                op = ShapeOp("take", (values,), tuple(map(inner.ints.index, op.ints)))
            elif not set(op.ints) & set(inner.ints):
                op = ShapeOp("take", (base,), op.ints)
            else:
                break
        whole = op.kind == "take" and op.ints == tuple(range(len(self.values[op.args[0]])))
        return op.args[0] if whole or (op.kind == "put" and not op.ints) else op

    def _add(self, op: ShapeOp, value: Shape) -> int:
        if op not in self._index:
            self._index[op] = len(self.ops)
            self.ops.append(op)
            self.values.append(value)
        return self._index[op]


def run_shape_program(
    ops: Sequence[ShapeOp],
    dims: Mapping[int, Sequence[int]],
    reads: Mapping[int, Sequence[int]] | None = None,
) -> list[tuple[int, ...]]:
    """Run a shape program on numbers: `dims` and `reads` give shape and elements of the operator inputs by slot.

    Raises ValueError where a value depends on something not given.
    """
    values: list[Shape] = []
    for op in ops:
        if op.kind in ("dims", "read"):
            source = dims if op.kind == "dims" else (reads or {})
            if op.ints[0] not in source:
                raise ValueError(f"the shape program needs {op.kind} of input {op.ints[0]}")
            values.append(tuple(Size(int(i)) for i in source[op.ints[0]]))
        else:
            values.append(EVALUATE[op.kind](op.ints, *(values[a] for a in op.args)))
    return [tuple(s.coef for s in value) for value in values]
