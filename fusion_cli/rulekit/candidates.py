"""The values that open inputs and attributes are tried with, the likeliest first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, permutations
from math import prod, sqrt
from typing import Any

import numpy as np
import onnx

from fusion_cli.operators.dtypes import DTYPES
from fusion_cli.rulekit.families import Asked, Shape, shapes_for
from fusion_cli.sessions import Array

_FIRST_INPUT, _OTHER_INPUT = 20, 12
"""How many shapes an operator's first open input and each other one are tried with."""
_NUMBERS = (0.5, 2.0, 1e-5, 1.0, 8.0, 0.0, -1.0, 3.0, 6.0, 1e-12, -1e4)
_EQUATIONS = {
    2: ["ab,bc->ac", "ab,cb->ac"],
    3: ["abc,adc->abd", "abc,acd->abd", "abc,cd->abd", "abc,abd->acd"],
    4: ["abcd,abed->abce", "abcd,abde->abce", "abcd,aecd->acbe", "abcd,abce->abde"],
}
_LAST = np.iinfo(np.int64).max


def input_candidates(asked: Asked) -> Iterator[tuple[Array, bool]]:
    """Arrays to try, each with whether it is a constant of the model."""
    if asked.wanted.number:
        for number in _numbers(asked.seen):
            yield from ((_typed(np.full(shape, number), asked), True) for shape in ((), (1,)))
        return
    kinds = [False, True] if asked.wanted.constant is None else [asked.wanted.constant]
    if asked.kind in ("int64", "int32"):
        yield from ((array.astype(asked.kind), True) for array in _integers(asked))
        return
    for constant in kinds:
        for shape in islice(dict.fromkeys(shapes_for(asked)), _OTHER_INPUT if asked.known else _FIRST_INPUT):
            if asked.op == "Cast":
                # A cast between floats is seen through.
                dtype = next(iter(asked.wanted.dtypes), "int32")
                yield np.ones(shape).astype(DTYPES[dtype].numpy), constant
            elif asked.kind == "float32":
                rng = np.random.default_rng(prod(shape) + len(shape))
                yield _typed(rng.normal(size=shape), asked), constant
            else:
                yield np.ones(shape, asked.kind), constant


def attribute_candidates(
    op: str, name: str, kind: int | None, data: Sequence[Array | None], chosen: Mapping[str, Any], outputs: int
) -> Sequence[Any]:
    """Values to try for an attribute that the rule leaves open; None leaves it out."""
    first = next((v for v in data if v is not None), np.zeros(()))
    size = first.shape[_axis(chosen, first.ndim)] if first.ndim else 1
    if name == "perm":
        return _permutations(first.ndim)
    if name == "axes":
        return _axes(op, first.ndim)
    if name == "axis":
        return [a for a in (-1, 1, -2, 0, 2) if -first.ndim <= a < first.ndim] or [0]
    if name == "starts":
        return [[size // 2], [0], [size // 3], [1]]
    if name == "ends":
        start = (chosen.get("starts") or [0])[0]
        later = [end for end in (start + size // 3, start + 1) if end < _LAST]
        return [[end] for end in ((_LAST, *later) if start else (size // 2, size // 3, 1, size - 1, _LAST))]
    if name == "split":
        return [[size // outputs] * outputs]
    if name in ("num_heads", "kv_num_heads", "num_groups", "groups"):
        return [3, 2, 1]
    if name == "to":
        return [onnx.TensorProto.FLOAT, onnx.TensorProto.BOOL, onnx.TensorProto.INT64]
    if name == "activation":
        return [0] if kind == onnx.AttributeProto.INT else ["Relu"]
    if name == "strides":
        kernel = data[1].shape[2:] if len(data) > 1 and data[1] is not None else ()
        return [[*kernel], [1 for _ in kernel], [2 for _ in kernel]]
    if name == "equation":
        return _EQUATIONS.get(first.ndim, [])
    by_kind: dict[int, Sequence[Any]] = {onnx.AttributeProto.INT: [1, 0, 2, -1], onnx.AttributeProto.FLOAT: [1.0, 0.5]}
    return by_kind.get(kind or 0, [None])


# ---- numbers and integers


def _numbers(seen: Sequence[Array]) -> list[float]:
    """Numbers of a rule: usual ones, sizes with their roots and inverses, and what undoes a number already there."""
    sizes = dict.fromkeys(d for v in seen for d in v.shape[::-1] if d > 1)
    found = [*_NUMBERS[:2], *(f for d in sizes for f in (float(d), 1 / d, sqrt(d), 1 / sqrt(d))), *_NUMBERS[2:]]
    for value in seen:
        if value.size == 1 and value.dtype.kind == "f" and float(value.ravel()[0]):
            found += [float(value.ravel()[0]), 1 / float(value.ravel()[0])]
    return list(dict.fromkeys(found))


def _integers(asked: Asked) -> Iterator[Array]:
    data = asked.known.get(0)
    if asked.op in ("Reshape", "Expand") and asked.position == 1 and data is not None:
        shapes = _reshapes(data.shape, asked) if asked.op == "Reshape" else _expansions(data.shape, asked.seen)
        yield from (np.array(s) for s in dict.fromkeys(shapes))
        return
    if asked.op == "Tile" and data is not None:
        yield from (np.array([1] * (data.ndim - 1 - i) + [2] + [1] * i) for i in range(data.ndim))
        return
    yield from (np.array(0), np.array([0, 1]), np.array([1]), np.array(1), np.array([list(range(8))] * 2))
    yield from (np.array(v.shape) for v in asked.seen if v.ndim)


def _reshapes(shape: Shape, asked: Asked) -> Iterator[Shape]:
    """Shapes of as many elements: heads split off, heads merged, pairs as columns, and those that other values have."""
    size = prod(shape)
    heads = [(*shape[:-1], n, shape[-1] // n) for n in (3, 2, shape[-1] // 2 if shape else 0) if _divides(shape, n)]
    merged = [(*shape[:i], shape[i] * shape[i + 1], *shape[i + 2 :]) for i in reversed(range(len(shape) - 1))]
    others = [v.shape for v in asked.seen if v.size == size and v.shape != shape]
    yield from (*merged, *heads, *others) if len(shape) > 3 else (*heads, *others, *merged)
    if len(shape) > 1:
        yield from ((shape[0], n, -1) for n in (3, 2) if size % (shape[0] * n) == 0)
        yield from ((-1, shape[-1]), (shape[0], -1), (1, *shape))
        if shape[-1] % 2 == 0:
            yield (*shape[:-1], -1, 1, 2)


def _divides(shape: Shape, n: int) -> bool:
    return bool(shape) and n > 1 and shape[-1] % n == 0 and shape[-1] // n > 1


def _expansions(shape: Shape, seen: Sequence[Array]) -> Iterator[Shape]:
    yield from (v.shape for v in seen if v.shape != shape and v.ndim >= len(shape))
    yield from (tuple(2 if d == 1 else d for d in shape), (2, *shape), shape)


# ---- attributes


def _axis(chosen: Mapping[str, Any], rank: int) -> int:
    found = chosen.get("axis", (chosen.get("axes") or [-1])[0])
    return int(found) if -rank <= found < rank else -1


def _axes(op: str, rank: int) -> list[list[int]]:
    """One axis, the last first; then the last two or three."""
    if op == "Unsqueeze":
        return [[a] for a in (-1, 1, 0, 2, -2)]
    several = [list(range(-n, 0)) for n in (2, 3) if n < rank]
    ranges = [[a for a in range(-rank, 0) if a not in (-rank, skipped)] for skipped in (-rank + 1, -2) if rank > 3]
    return [[-1], *([a] for a in range(-rank, -1)), *several, *ranges]


def _permutations(rank: int) -> list[list[int]]:
    """The usual ones first: heads beside the batch, the last two axes swapped, and keys turned as well."""
    usual = {2: [[1, 0]], 3: [[0, 2, 1], [1, 0, 2]], 4: [[0, 2, 1, 3], [0, 1, 3, 2], [0, 2, 3, 1], [0, 3, 1, 2]]}
    first = usual.get(rank, [])
    identity = list(range(rank))
    return first + [p for p in map(list, permutations(identity)) if p not in first and p != identity][:12]


def _typed(array: Array, asked: Asked) -> Array:
    name = "float32" if not asked.wanted.dtypes or "float32" in asked.wanted.dtypes else asked.wanted.dtypes[0]
    return np.asarray(array).astype(DTYPES[name].numpy)
