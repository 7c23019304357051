"""Heads of queries that share keys and values: those repeated for each of a group are read where they are.

Exporters write it as Expand along an axis of 1 and a reshape that merges the axis with that of the heads.
"""

from __future__ import annotations

from fusion_cli.plan.graph import Val
from fusion_cli.plan.lowering import Builder


def split_heads(b: Builder, scores: Val) -> int | None:
    """The dimensions of a product of queries and keys with the axes of the batch as those of the keys were before they
    were merged; None where no key is repeated."""
    keys, is_merged = scores.args[1], False
    while keys.op != "Expand":
        if keys.op != "reshape" and not _keeps_batch(keys):
            return None
        is_merged |= keys.op == "reshape"
        keys = _inner(keys)
    if not is_merged:
        return None
    batch = b.shapes.emit("take", (keys.dims,), range(len(keys.shape) - 2))
    last = b.shapes.emit("take", (scores.dims,), (len(scores.shape) - 2, len(scores.shape) - 1))
    return b.shapes.emit("concat", (batch, last))


def reshaped(b: Builder, x: Val, dims: int) -> Val:
    """x in dimensions `dims`; of a multiple, the multiple of what is reshaped."""
    return _like(b, x, reshaped(b, _inner(x), dims)) if _is_multiple(x) else b.reshape(x, dims)


def unrepeated(b: Builder, x: Val, beside: Val) -> Val:
    """A factor of a product without being repeated along axes of the batch that the factor beside it has in full."""
    if _keeps_batch(x):
        inner = unrepeated(b, _inner(x), beside)
        return x if inner is _inner(x) else _like(b, x, inner)
    if _turns_ones(b, x):
        inner, rank = unrepeated(b, x.args[0], beside), len(x.shape)
        batch = b.shapes.emit("take", (inner.dims,), range(rank - 2))
        last = b.shapes.emit("take", (x.dims,), (rank - 2, rank - 1))
        return x if inner is x.args[0] else b.reshape(inner, b.shapes.emit("concat", (batch, last)))
    if x.op != "Expand" or not len(x.args[0].shape) == len(x.shape) == len(beside.shape):
        return x
    before, equal = x.args[0].shape, b.sizes.equal
    repeated = [i for i, size in enumerate(before) if not equal(size, x.shape[i])]
    spared = all(i < len(before) - 2 and equal(x.shape[i], beside.shape[i]) for i in repeated)
    return x.args[0] if spared else x


def _is_multiple(x: Val) -> bool:
    """Whether x is a value of its shape times one number."""
    return x.op in ("Mul", "Div") and any(a.op == "const" for a in x.args) and _inner(x).shape == x.shape


def _keeps_batch(x: Val) -> bool:
    """Whether x is a multiple of a value, or one with its last two axes moved at most."""
    return _is_multiple(x) or (x.op == "transpose" and x.perm[:-2] == tuple(range(len(x.perm) - 2)))


def _turns_ones(b: Builder, x: Val) -> bool:
    """Whether x is a value with its last two axes in other sizes: the transpose of a single key is a reshape."""
    if x.op != "reshape" or len(x.args[0].shape) != len(x.shape):
        return False
    return all(map(b.sizes.equal, x.args[0].shape[:-2], x.shape[:-2]))


def _inner(x: Val) -> Val:
    return next((a for a in x.args if a.op != "const"), x.args[0])


def _like(b: Builder, x: Val, inner: Val) -> Val:
    """The same view, or multiple, of another value."""
    if x.op == "transpose":
        return b.transpose(inner, x.perm)
    return b.apply(x.op, *(a if a.op == "const" else inner for a in x.args), dtype=x.dtype)
