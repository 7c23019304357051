"""The shape program: building it, what is known of its values at compile time, and running it on numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fusion_cli.plan.ir import HostOp
from fusion_cli.plan.sizes import ONE, Shape, Size, Sizes

Evaluator = Callable[[Sizes, HostOp, list[Shape]], Shape]


class HostProgram:
    """A shape program under construction. Equal operations are shared; operations on literals are folded."""

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        self.ops: list[HostOp] = []
        self.values: list[Shape] = []
        """What is known of each host value, element by element."""
        self._index: dict[HostOp, int] = {}

    def source(self, kind: str, slot: int, value: Shape) -> int:
        """A "dims" or "read" operation on operator input `slot`, with what is known of its result."""
        return self._add(HostOp(kind, (), (slot,)), value)

    def const(self, ints: Sequence[int]) -> int:
        return self._add(HostOp("const", (), tuple(ints)), tuple(Size(i) for i in ints))

    def emit(self, kind: str, args: Sequence[int] = (), ints: Sequence[int] = ()) -> int:
        """Append an operation (see `HostOp`), or return the earlier one that is equal; the index of its value."""
        op = HostOp(kind, tuple(args), tuple(ints))
        if op in self._index:
            return self._index[op]
        value = _EVALUATE[kind](self.sizes, op, [self.values[a] for a in op.args])
        literals = [s.known for s in value]
        if all(self.ops[a].kind == "const" for a in op.args) and None not in literals:
            return self.const([i for i in literals if i is not None])
        return self._add(op, value)

    def _add(self, op: HostOp, value: Shape) -> int:
        if op not in self._index:
            self._index[op] = len(self.ops)
            self.ops.append(op)
            self.values.append(value)
        return self._index[op]


def run_host(
    ops: Sequence[HostOp],
    dims: Mapping[int, Sequence[int]],
    reads: Mapping[int, Sequence[int]] | None = None,
) -> list[tuple[int, ...]]:
    """Run a shape program on numbers: `dims` and `reads` give shape and elements of the operator inputs by slot.

    Raises ValueError where a value depends on something not given.
    """
    sizes = Sizes()
    values: list[Shape] = []
    for op in ops:
        if op.kind in ("dims", "read"):
            source = dims if op.kind == "dims" else (reads or {})
            if op.ints[0] not in source:
                raise ValueError(f"the shape program needs {op.kind} of input {op.ints[0]}")
            values.append(tuple(Size(int(i)) for i in source[op.ints[0]]))
        else:
            values.append(_EVALUATE[op.kind](sizes, op, [values[a] for a in op.args]))
    return [tuple(s.coef for s in value) for value in values]


def _const(sizes: Sizes, op: HostOp, args: list[Shape]) -> Shape:
    return tuple(Size(i) for i in op.ints)


def _broadcast(sizes: Sizes, op: HostOp, args: list[Shape]) -> Shape:
    return sizes.broadcast_shapes(args)


def _matmul(sizes: Sizes, op: HostOp, args: list[Shape]) -> Shape:
    a, b = args
    inner = sizes.norm(a[-1]).known, sizes.norm(b[-2]).known
    if None not in inner and inner[0] != inner[1]:
        raise ValueError(f"a product's inner dimensions are {inner[0]} and {inner[1]}")
    return (*sizes.broadcast_shapes([a[:-2], b[:-2]]), a[-2], b[-1])


def _gemm(sizes: Sizes, op: HostOp, args: list[Shape]) -> Shape:
    trans_a, trans_b = op.ints
    return (args[0][1 if trans_a else 0], args[1][0 if trans_b else 1])


def _permute(sizes: Sizes, op: HostOp, args: list[Shape]) -> Shape:
    return tuple(args[0][p] for p in op.ints)


def _reshape(sizes: Sizes, op: HostOp, args: list[Shape]) -> Shape:
    shape, target = args
    known: list[Size | None] = []
    for i, size in enumerate(map(sizes.norm, target)):
        if size.known == -1:
            known.append(None)
        elif size.known == 0 and not op.ints[0]:
            known.append(shape[i])
        elif sizes.is_nonnegative(size):
            known.append(size)
        else:
            known.append(sizes.fresh())
    if None not in known:
        return tuple(s for s in known if s is not None)
    rest = sizes.product(s for s in known if s is not None)
    total = sizes.product(shape)
    inferred = Size(0) if rest == Size(0) else sizes.div(total, rest)
    return tuple(inferred if s is None else s for s in known)


def _reduce(sizes: Sizes, op: HostOp, args: list[Shape]) -> Shape:
    shape, (keepdims, *axes) = args[0], op.ints
    reduced = {a % len(shape) for a in axes}
    if keepdims:
        return tuple(ONE if i in reduced else s for i, s in enumerate(shape))
    return tuple(s for i, s in enumerate(shape) if i not in reduced)


def _concat(sizes: Sizes, op: HostOp, args: list[Shape]) -> Shape:
    return tuple(s for arg in args for s in arg)


def _slice(sizes: Sizes, op: HostOp, args: list[Shape]) -> Shape:
    start, end, step = op.ints
    return args[0][start:end:step]


def _take(sizes: Sizes, op: HostOp, args: list[Shape]) -> Shape:
    return tuple(args[0][i] for i in op.ints)


def _unsqueeze(sizes: Sizes, op: HostOp, args: list[Shape]) -> Shape:
    rank = len(args[0]) + len(op.ints)
    added = {a % rank for a in op.ints}
    rest = iter(args[0])
    return tuple(ONE if i in added else next(rest) for i in range(rank))


def _squeeze(sizes: Sizes, op: HostOp, args: list[Shape]) -> Shape:
    if not op.ints:
        return tuple(s for s in args[0] if sizes.norm(s) != ONE)
    removed = {a % len(args[0]) for a in op.ints}
    return tuple(s for i, s in enumerate(args[0]) if i not in removed)


def _flatten(sizes: Sizes, op: HostOp, args: list[Shape]) -> Shape:
    shape, axis = args[0], op.ints[0]
    if axis < 0:
        axis += len(shape)
    return (sizes.product(shape[:axis]), sizes.product(shape[axis:]))


def _conv(sizes: Sizes, op: HostOp, args: list[Shape]) -> Shape:
    x, w = args
    n = op.ints[0]
    strides, pads, dilations = op.ints[1 : 1 + n], op.ints[1 + n : 1 + 3 * n], op.ints[1 + 3 * n : 1 + 4 * n]
    spatial = []
    for i in range(n):
        size, kernel = sizes.norm(x[2 + i]).known, sizes.norm(w[2 + i]).known
        if size is None or kernel is None:
            spatial.append(sizes.fresh())
        elif op.ints[-1] >= 2:
            spatial.append(Size(-(-size // strides[i])))
        else:
            padding = 0 if op.ints[-1] == 1 else pads[i] + pads[n + i]
            spatial.append(Size((size + padding - dilations[i] * (kernel - 1) - 1) // strides[i] + 1))
    return (x[0], w[0], *spatial)


def _pairwise(combine: Callable[[Sizes, Size, Size], Size]) -> Evaluator:
    def evaluate(sizes: Sizes, op: HostOp, args: list[Shape]) -> Shape:
        a, b = args
        count = len(b) if len(a) == 1 else len(a)
        pairs = zip(a * count if len(a) == 1 else a, b * count if len(b) == 1 else b, strict=True)
        return tuple(combine(sizes, sizes.norm(x), sizes.norm(y)) for x, y in pairs)

    return evaluate


def _arithmetic(symbol: str, compute: Callable[[int, int], int]) -> Evaluator:
    def combine(sizes: Sizes, x: Size, y: Size) -> Size:
        if x.known is not None and y.known is not None:
            return Size(compute(x.known, y.known))
        if symbol in "+-" and y == Size(0):
            return x
        if symbol in "+" and x == Size(0):
            return y
        return sizes.opaque(symbol, x, y)

    return _pairwise(combine)


def _equal(sizes: Sizes, x: Size, y: Size) -> Size:
    if x == y:
        return ONE
    if x.known is not None and y.known is not None:
        return Size(0)
    for number, other in ((x, y), (y, x)):
        if number.known is not None and number.known < 0 and sizes.is_nonnegative(other):
            return Size(0)
    return sizes.opaque("==", x, y)


def _where(sizes: Sizes, op: HostOp, args: list[Shape]) -> Shape:
    count = max(map(len, args)) if all(args) else 0
    cond, a, b = (arg * count if len(arg) == 1 else arg for arg in args)
    result = []
    for c, x, y in zip(map(sizes.norm, cond), map(sizes.norm, a), map(sizes.norm, b), strict=True):
        chosen = sizes.fresh(signed=not (sizes.is_nonnegative(x) and sizes.is_nonnegative(y)))
        result.append(x if x == y or (c.known is not None and c.known != 0) else y if c.known == 0 else chosen)
    return tuple(result)


def _prod(sizes: Sizes, op: HostOp, args: list[Shape]) -> Shape:
    return (sizes.product(args[0]),)


def _fill(sizes: Sizes, op: HostOp, args: list[Shape]) -> Shape:
    count = sizes.norm(args[0][0]).known
    if count is None:
        raise ValueError("a vector of unknown length")
    return (Size(op.ints[0]),) * count


_EVALUATE: dict[str, Evaluator] = {
    "const": _const,
    "broadcast": _broadcast,
    "matmul": _matmul,
    "gemm": _gemm,
    "permute": _permute,
    "reshape": _reshape,
    "reduce": _reduce,
    "concat": _concat,
    "slice": _slice,
    "take": _take,
    "unsqueeze": _unsqueeze,
    "squeeze": _squeeze,
    "flatten": _flatten,
    "conv": _conv,
    "add": _arithmetic("+", lambda a, b: a + b),
    "sub": _arithmetic("-", lambda a, b: a - b),
    "mul": _pairwise(Sizes.mul),
    "div": _pairwise(Sizes.div),
    "mod": _arithmetic("%", lambda a, b: a % b),
    "min": _arithmetic("&min&", min),
    "max": _arithmetic("&max&", max),
    "equal": _pairwise(_equal),
    "where": _where,
    "prod": _prod,
    "fill": _fill,
}
