"""The operations of the shape program (see `HostOp`), on numbers and on sizes known up to symbols."""

from __future__ import annotations

from collections.abc import Callable

from fusion_cli.planir.stages import HostOp
from fusion_cli.sizes.algebra import ONE, Shape, Size, Sizes

Evaluator = Callable[[Sizes, HostOp, list[Shape]], Shape]

_BEYOND = 2**31 - 1
"""The least end of a slice that exporters write for "through the last element"."""


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
        whole = tuple(s for s in known if s is not None)
        sizes.agree(sizes.product(shape), sizes.product(whole))
        return whole
    rest = sizes.product(s for s in known if s is not None)
    total = sizes.product(shape)
    inferred = Size(0) if rest == Size(0) else sizes.inferred(total, rest)
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


def _put(sizes: Sizes, op: HostOp, args: list[Shape]) -> Shape:
    vector = list(args[0])
    for index, value in zip(op.ints, args[1], strict=True):
        vector[index] = value
    return tuple(vector)


def _positions(size: int, start: int, end: int, step: int) -> range:
    """What a slice takes of an axis. Unlike Python's, one that goes backwards begins at 0 at the latest."""
    least, most = (0, size) if step > 0 else (-1, size - 1)
    first, last = (min(max(v + size if v < 0 else v, least), most) for v in (start, end))
    return range(max(first, 0), last if size else 0, step)


def _slice_start(sizes: Sizes, op: HostOp, args: list[Shape]) -> Shape:
    return tuple(_start(sizes, *map(sizes.norm, axis)) for axis in zip(*args, strict=True))


def _start(sizes: Sizes, size: Size, start: Size, step: Size) -> Size:
    if size.known is not None and start.known is not None and step.known:
        return Size(_positions(size.known, start.known, 0, step.known).start)
    if start == Size(0) and step.known is not None and step.known > 0:
        return start
    return Size(1, (f"(start {size} {start} {step})",))


def _slice_count(sizes: Sizes, op: HostOp, args: list[Shape]) -> Shape:
    return tuple(_count(sizes, *map(sizes.norm, axis)) for axis in zip(*args, strict=True))


def _count(sizes: Sizes, size: Size, start: Size, end: Size, step: Size) -> Size:
    if size.known is not None and start.known is not None and end.known is not None and step.known:
        return Size(len(_positions(size.known, start.known, end.known, step.known)))
    to_the_end = end == size or (end.known is not None and end.known >= _BEYOND)
    if start == Size(0) and step == ONE and to_the_end:
        return size
    return Size(1, (f"(count {size} {start} {end} {step})",))


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
    "slice_start": _slice_start,
    "slice_count": _slice_count,
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
