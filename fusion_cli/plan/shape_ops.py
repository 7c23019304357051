"""The operations of the shape program (see `ShapeOp`), on numbers and on sizes known up to symbols."""

from __future__ import annotations

from collections.abc import Callable

from fusion_cli.sizes import operations
from fusion_cli.sizes.algebra import ONE, Shape, Size, product, term
from fusion_cli.sizes.operations import BEYOND, broadcast_shapes, slice_positions

Ints = tuple[int, ...]
Evaluator = Callable[..., Shape]
"""Takes the literals of an operation, and its operands."""


def _matmul(ints: Ints, a: Shape, b: Shape) -> Shape:
    inner = a[-1].known, b[-2].known
    if None not in inner and inner[0] != inner[1]:
        raise ValueError(f"a product's inner dimensions are {inner[0]} and {inner[1]}")
    return (*broadcast_shapes([a[:-2], b[:-2]]), a[-2], b[-1])


def _reshape(ints: Ints, shape: Shape, target: Shape) -> Shape:
    known: list[Size | None] = []
    for i, size in enumerate(target):
        if size.known == -1:
            known.append(None)
        elif size.known == 0 and not ints[0]:
            known.append(shape[i])
        else:
            known.append(size if size.is_nonnegative else term("reshape", Size(i), *shape, *target))
    rest = product(s for s in known if s is not None)
    inferred = Size(0) if rest == Size(0) or None not in known else product(shape) // rest
    return tuple(inferred if s is None else s for s in known)


def _reduce(ints: Ints, shape: Shape) -> Shape:
    keepdims, *axes = ints
    reduced = {a % len(shape) for a in axes}
    if keepdims:
        return tuple(ONE if i in reduced else s for i, s in enumerate(shape))
    return tuple(s for i, s in enumerate(shape) if i not in reduced)


def _start(size: Size, start: Size, step: Size) -> Size:
    if size.known is not None and start.known is not None and step.known:
        return Size(slice_positions(size.known, start.known, 0, step.known).start)
    if start == Size(0) and step.known is not None and step.known > 0:
        return start
    return term("start", size, start, step)


def _count(size: Size, start: Size, end: Size, step: Size) -> Size:
    if size.known is not None and start.known is not None and end.known is not None and step.known:
        return Size(len(slice_positions(size.known, start.known, end.known, step.known)))
    to_the_end = end == size or (end.known is not None and end.known >= BEYOND)
    if start == Size(0) and step == ONE and to_the_end:
        return size
    return term("count", size, start, end, step)


def _unsqueeze(ints: Ints, shape: Shape) -> Shape:
    rank = len(shape) + len(ints)
    added = {a % rank for a in ints}
    rest = iter(shape)
    return tuple(ONE if i in added else next(rest) for i in range(rank))


def _squeeze(ints: Ints, shape: Shape) -> Shape:
    removed = {a % len(shape) for a in ints} if ints else {i for i, s in enumerate(shape) if s == ONE}
    return tuple(s for i, s in enumerate(shape) if i not in removed)


def _conv(ints: Ints, x: Shape, w: Shape) -> Shape:
    n, *rest, auto_pad = ints
    strides, pads, dilations = rest[:n], rest[n : 3 * n], rest[3 * n :]
    spatial = []
    for i, (size, kernel) in enumerate(zip(x[2:], w[2:], strict=True)):
        last = size - ONE
        if auto_pad < 2:
            padding = 0 if auto_pad == 1 else pads[i] + pads[n + i]
            last += Size(padding) - Size(dilations[i]) * (kernel - ONE)
        spatial.append(last // Size(strides[i]) + ONE)
    return (x[0], w[0], *spatial)


def _elementwise(compute: Callable[..., Size]) -> Evaluator:
    """One element after the other; vectors of one element go with all of another."""

    def evaluate(ints: Ints, *args: Shape) -> Shape:
        count = max(map(len, args)) if all(args) else 0
        columns = zip(*(arg * count if len(arg) == 1 else arg for arg in args), strict=True)
        return tuple(compute(*column) for column in columns)

    return evaluate


def _picked(ints: Ints, vector: Shape) -> Shape:
    return tuple(vector[i] for i in ints)


def _put(ints: Ints, vector: Shape, values: Shape) -> Shape:
    new = list(vector)
    for index, value in zip(ints, values, strict=True):
        new[index] = value
    return tuple(new)


def _fill(ints: Ints, counts: Shape) -> Shape:
    count = counts[0].known
    if count is None:
        raise ValueError("a vector of unknown length")
    return (Size(ints[0]),) * count


EVALUATE: dict[str, Evaluator] = {
    "const": lambda ints: tuple(map(Size, ints)),
    "broadcast": lambda ints, *shapes: broadcast_shapes(shapes),
    "matmul": _matmul,
    "gemm": lambda ints, a, b: (a[ints[0]], b[1 - ints[1]]),
    "permute": _picked,
    "reshape": _reshape,
    "reduce": _reduce,
    "concat": lambda ints, *vectors: sum(vectors, ()),
    "slice": lambda ints, vector: vector[slice(*ints)],
    "take": _picked,
    "put": _put,
    "slice_start": _elementwise(_start),
    "slice_count": _elementwise(_count),
    "unsqueeze": _unsqueeze,
    "squeeze": _squeeze,
    "flatten": lambda ints, shape: (product(shape[: ints[0]]), product(shape[ints[0] :])),
    "conv": _conv,
    "add": _elementwise(Size.__add__),
    "sub": _elementwise(Size.__sub__),
    "mul": _elementwise(Size.__mul__),
    "div": _elementwise(operations.truncated),
    "mod": _elementwise(Size.__mod__),
    "min": _elementwise(operations.OPERATIONS["Min"]),
    "max": _elementwise(operations.OPERATIONS["Max"]),
    "equal": _elementwise(operations.is_equal),
    "where": _elementwise(operations.chosen),
    "prod": lambda ints, vector: (product(vector),),
    "fill": _fill,
}
