"""The family of shapes that open inputs are tried with, the likeliest first.

Sizes are small and different (a width of 12 is 3 heads of 4), so that what fits fits for a reason; but of as many rows
as columns are products of what nobody has turned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any

from fusion_cli.operators.registry import ELEMENTWISE_NAMES
from fusion_cli.rulekit.constraints import Wanted
from fusion_cli.rulekit.schemas import Kind
from fusion_cli.sessions import Array

Shape = tuple[int, ...]
HIDDEN = 36
"""The width of what a product with a weight gives first: of three parts as wide as the input, or of two halves."""
_BASE: Sequence[Shape] = ((2, 8, 12), (2, 12, 12), (2, 3, 8, 4), (6, 12), (2, 6, 7, 10), (2, 3, 2, 8, 4), (12,))


@dataclass(frozen=True, eq=False)
class Asked:
    """An open input: whose it is, what is known of the other inputs (`known`, by position) and of the graph so far
    (`seen`), and what the rule's conditions ask of it."""

    op: str
    position: int
    known: Mapping[int, Array]
    seen: Sequence[Array]
    kind: Kind
    wanted: Wanted
    turn: int
    attributes: Mapping[str, Any]


def shapes_for(asked: Asked) -> Iterator[Shape]:
    known = [v.shape for _, v in sorted(asked.known.items()) if v.ndim]
    if not known:
        turn = asked.turn % len(_BASE)
        yield from (v.shape for v in asked.seen if v.ndim > 1 and asked.turn % 2 == 0)
        yield from _BASE[turn : turn + 1]
        yield from ((*v.shape[:-2], v.shape[-1], v.shape[-2]) for v in asked.seen if v.ndim > 1)
        yield from (*_BASE[turn:], *_BASE[:turn])
        yield from ((1, s[1], *(1,) * (len(s) - 2)) for s in _BASE if len(s) > 2)
        return
    if asked.op in _SPECIAL:
        yield from _SPECIAL[asked.op](asked)
    first = max(known, key=len)
    if asked.op in ELEMENTWISE_NAMES:
        yield from _broadcast(first, asked)
    else:
        yield from (first, *_broadcast(first, asked), *(v.shape for v in asked.seen), *_BASE)


def _broadcast(shape: Shape, asked: Asked) -> Iterator[Shape]:
    """What broadcasts to a shape: the same, a row, a number, a number per channel, a row per sequence."""
    ways: list[Shape] = [shape, shape[-1:], (), (1,) * max(len(shape) - 1, 0) + shape[-1:]]
    ways += [(d,) + (1,) * (len(shape) - 2) for d in shape[1:2]]
    ways += [shape[-2:], (*shape[:-1], 1), (1, *shape[1:])]
    ways += [s for s in (*(v.shape for v in asked.seen), *_BASE) if s != shape and _fits_into(shape, s)][:3]
    turn = asked.turn % 3 if asked.wanted.constant is None and not asked.wanted.number else 0
    yield from (*ways[turn:], *ways[:turn])


def _fits_into(small: Shape, large: Shape) -> bool:
    """Whether an array of one shape broadcasts to the other."""
    pairs = zip(small[::-1], large[::-1], strict=False)
    return len(small) <= len(large) and all(a in (1, b) for a, b in pairs)


def _matmul(asked: Asked) -> Iterator[Shape]:
    if asked.position == 1 and 0 in asked.known:
        *batch, _, k = (1, *asked.known[0].shape) if asked.known[0].ndim == 1 else asked.known[0].shape
        widths = [HIDDEN, *dict.fromkeys(v.shape[-1] for v in asked.seen if v.ndim and v.shape[-1] > 1), k]
        if asked.wanted.constant is not True and len(batch) > 0:
            rows = asked.known[0].shape[-2]
            yield from ((*batch, k, n) for n in (rows, *widths))
        yield from ((k, n) for n in widths)
    elif 1 in asked.known:
        *batch, k, n = asked.known[1].shape if asked.known[1].ndim > 1 else (*asked.known[1].shape, 1)
        yield from ((*(batch or [2]), m, k) for m in (8, n))
        yield (6, k)


def _gemm(asked: Asked) -> Iterator[Shape]:
    if asked.position == 1:
        rows, columns = asked.known[0].shape[-2:] if asked.known[0].ndim > 1 else (1, 1)
        inner = rows if asked.attributes.get("transA") else columns
        widths = [HIDDEN, *dict.fromkeys(v.shape[-1] for v in asked.seen if v.ndim)]
        yield from ((n, inner) if asked.attributes.get("transB") else (inner, n) for n in widths)
    elif asked.position == 2:
        b = asked.known[1].shape
        if len(b) == 2:
            yield (b[0] if asked.attributes.get("transB") else b[1],)


def _conv(asked: Asked) -> Iterator[Shape]:
    x = asked.known.get(0)
    if x is not None and asked.position == 1 and x.ndim > 2:
        group = int(asked.attributes.get("group", 1)) if not isinstance(asked.attributes.get("group"), list) else 1
        for kernel in (1, 3):
            for channels in (x.shape[1], 8):
                yield (channels, x.shape[1] // group, *(kernel,) * (x.ndim - 2))
    elif asked.position == 2:
        yield asked.known[1].shape[:1]


def _einsum(asked: Asked) -> Iterator[Shape]:
    """Sizes by label: those of the operands that are known, others for the rest."""
    equation = asked.attributes.get("equation")
    if not isinstance(equation, str) or "." in equation:
        return
    terms = equation.partition("->")[0].split(",")
    sizes = {
        label: size
        for position, array in asked.known.items()
        for label, size in zip(terms[position], array.shape, strict=False)
    }
    if asked.position < len(terms):
        open_labels = [label for label in dict.fromkeys(terms[asked.position]) if label not in sizes]
        sizes |= dict(zip(open_labels, cycle((10, 6, 2)), strict=False))
        yield tuple(sizes[label] for label in terms[asked.position])


def _along(axis: int) -> Callable[[Asked], Iterator[Shape]]:
    """One number for each index of an axis of the first input."""

    def shapes(asked: Asked) -> Iterator[Shape]:
        x = asked.known.get(0)
        if x is not None and axis < x.ndim > 0:
            yield (x.shape[axis],)

    return shapes


def _angles(asked: Asked) -> Iterator[Shape]:
    """Sines and cosines for a rotary embedding of heads: per sequence and position, half as wide."""
    x = asked.known.get(0)
    if x is not None and x.ndim == 4:
        yield (x.shape[0], x.shape[2], x.shape[3] // 2)


_SPECIAL = {
    "Einsum": _einsum,
    "RotaryEmbedding": _angles,
    "FusedGemm": _gemm,
    "GroupNorm": _along(-1),
    "MatMul": _matmul,
    "FusedMatMul": _matmul,
    "Gemm": _gemm,
    "Conv": _conv,
    "BatchNormalization": _along(1),
    "InstanceNormalization": _along(1),
    "GroupNormalization": _along(1),
    "LayerNormalization": _along(-1),
    "RMSNormalization": _along(-1),
}
