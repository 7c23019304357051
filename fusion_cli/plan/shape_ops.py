"""The operations of the shape program (see `HostOp`), on numbers and on sizes known up to symbols."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fusion_cli.planir.stages import HostOp
from fusion_cli.sizes import operations
from fusion_cli.sizes.algebra import ONE, Shape, Size, product, term
from fusion_cli.sizes.operations import broadcast_shapes

Evaluator = Callable[[HostOp, Sequence[Shape]], Shape]

_BEYOND = 2**31 - 1
"""The least end of a slice that exporters write for "through the last element"."""


def _const(op: HostOp, args: Sequence[Shape]) -> Shape:
    return tuple(Size(i) for i in op.ints)


def _broadcast(op: HostOp, args: Sequence[Shape]) -> Shape:
    return broadcast_shapes(args)


def _matmul(op: HostOp, args: Sequence[Shape]) -> Shape:
    a, b = args
    inner = a[-1].known, b[-2].known
    if None not in inner and inner[0] != inner[1]:
        raise ValueError(f"a product's inner dimensions are {inner[0]} and {inner[1]}")
    return (*broadcast_shapes([a[:-2], b[:-2]]), a[-2], b[-1])


def _gemm(op: HostOp, args: Sequence[Shape]) -> Shape:
    trans_a, trans_b = op.ints
    return (args[0][1 if trans_a else 0], args[1][0 if trans_b else 1])


def _permute(op: HostOp, args: Sequence[Shape]) -> Shape:
    return tuple(args[0][p] for p in op.ints)


def _reshape(op: HostOp, args: Sequence[Shape]) -> Shape:
    shape, target = args
    known: list[Size | None] = []
    for i, size in enumerate(target):
        if size.known == -1:
            known.append(None)
        elif size.known == 0 and not op.ints[0]:
            known.append(shape[i])
        else:
            known.append(size if size.is_nonnegative else term("reshape", Size(i), *shape, *target))
    rest = product(s for s in known if s is not None)
    inferred = Size(0) if rest == Size(0) or None not in known else product(shape) // rest
    return tuple(inferred if s is None else s for s in known)


def _reduce(op: HostOp, args: Sequence[Shape]) -> Shape:
    shape, (keepdims, *axes) = args[0], op.ints
    reduced = {a % len(shape) for a in axes}
    if keepdims:
        return tuple(ONE if i in reduced else s for i, s in enumerate(shape))
    return tuple(s for i, s in enumerate(shape) if i not in reduced)


def _concat(op: HostOp, args: Sequence[Shape]) -> Shape:
    return tuple(s for arg in args for s in arg)


def _slice(op: HostOp, args: Sequence[Shape]) -> Shape:
    start, end, step = op.ints
    return args[0][start:end:step]


def _take(op: HostOp, args: Sequence[Shape]) -> Shape:
    return tuple(args[0][i] for i in op.ints)


def _put(op: HostOp, args: Sequence[Shape]) -> Shape:
    vector = list(args[0])
    for index, value in zip(op.ints, args[1], strict=True):
        vector[index] = value
    return tuple(vector)


def _positions(size: int, start: int, end: int, step: int) -> range:
    """What a slice takes of an axis. Unlike Python's, one that goes backwards begins at 0 at the latest."""
    least, most = (0, size) if step > 0 else (-1, size - 1)
    first, last = (min(max(v + size if v < 0 else v, least), most) for v in (start, end))
    return range(max(first, 0), last if size else 0, step)


def _start(size: Size, start: Size, step: Size) -> Size:
    if size.known is not None and start.known is not None and step.known:
        return Size(_positions(size.known, start.known, 0, step.known).start)
    if start == Size(0) and step.known is not None and step.known > 0:
        return start
    return term("start", size, start, step)


def _count(size: Size, start: Size, end: Size, step: Size) -> Size:
    if size.known is not None and start.known is not None and end.known is not None and step.known:
        return Size(len(_positions(size.known, start.known, end.known, step.known)))
    to_the_end = end == size or (end.known is not None and end.known >= _BEYOND)
    if start == Size(0) and step == ONE and to_the_end:
        return size
    return term("count", size, start, end, step)


def _unsqueeze(op: HostOp, args: Sequence[Shape]) -> Shape:
    rank = len(args[0]) + len(op.ints)
    added = {a % rank for a in op.ints}
    rest = iter(args[0])
    return tuple(ONE if i in added else next(rest) for i in range(rank))


def _squeeze(op: HostOp, args: Sequence[Shape]) -> Shape:
    if not op.ints:
        return tuple(s for s in args[0] if s != ONE)
    removed = {a % len(args[0]) for a in op.ints}
    return tuple(s for i, s in enumerate(args[0]) if i not in removed)


def _flatten(op: HostOp, args: Sequence[Shape]) -> Shape:
    shape, axis = args[0], op.ints[0]
    if axis < 0:
        axis += len(shape)
    return (product(shape[:axis]), product(shape[axis:]))


def _conv(op: HostOp, args: Sequence[Shape]) -> Shape:
    x, w = args
    n = op.ints[0]
    strides, pads, dilations = op.ints[1 : 1 + n], op.ints[1 + n : 1 + 3 * n], op.ints[1 + 3 * n : 1 + 4 * n]
    spatial = []
    for i, (size, kernel) in enumerate(zip(x[2:], w[2:], strict=True)):
        last = size - ONE
        if op.ints[-1] < 2:
            padding = 0 if op.ints[-1] == 1 else pads[i] + pads[n + i]
            last += Size(padding) - Size(dilations[i]) * (kernel - ONE)
        spatial.append(last // Size(strides[i]) + ONE)
    return (x[0], w[0], *spatial)


def _elementwise(compute: Callable[..., Size]) -> Evaluator:
    """One element after the other; vectors of one element go with all of another."""

    def evaluate(op: HostOp, args: Sequence[Shape]) -> Shape:
        count = max(map(len, args)) if all(args) else 0
        columns = zip(*(arg * count if len(arg) == 1 else arg for arg in args), strict=True)
        return tuple(compute(*column) for column in columns)

    return evaluate


def _prod(op: HostOp, args: Sequence[Shape]) -> Shape:
    return (product(args[0]),)


def _fill(op: HostOp, args: Sequence[Shape]) -> Shape:
    count = args[0][0].known
    if count is None:
        raise ValueError("a vector of unknown length")
    return (Size(op.ints[0]),) * count


EVALUATE: dict[str, Evaluator] = {
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
    "put": _put,
    "slice_start": _elementwise(_start),
    "slice_count": _elementwise(_count),
    "unsqueeze": _unsqueeze,
    "squeeze": _squeeze,
    "flatten": _flatten,
    "conv": _conv,
    "add": _elementwise(Size.__add__),
    "sub": _elementwise(Size.__sub__),
    "mul": _elementwise(Size.__mul__),
    "div": _elementwise(operations.truncated),
    "mod": _elementwise(Size.__mod__),
    "min": _elementwise(operations.least),
    "max": _elementwise(operations.largest),
    "equal": _elementwise(operations.is_equal),
    "where": _elementwise(operations.chosen),
    "prod": _prod,
    "fill": _fill,
}
