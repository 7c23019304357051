"""What the stage of an attention is made of: operands as stored, and the expressions of its scores and weights."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from fusion_cli.plan.attention_layout import stored
from fusion_cli.plan.graph import Uses, Val, topological
from fusion_cli.plan.lowering import Builder

Perm = tuple[int, ...] | None


@dataclass(frozen=True, eq=False)
class Parts:
    """What an "attention" value is made of; its args are q, k, v and then `leaves`, as stored.

    `score` and `prob` are the roots of two expressions over `leaves` and over `score_acc` and `prob_acc`; `sink` is a
    leaf, or a number.
    """

    scale: float
    perms: tuple[Perm, Perm, Perm]
    score: Val
    score_acc: Val
    prob: Val
    prob_acc: Val
    sink: Val | None
    zero_empty: bool
    leaves: tuple[Val, ...]
    dims: int
    """Shape value: dimensions of P @ V, before `out_perm`."""
    out_perm: Perm
    nodes: tuple[str, ...]


def operands_of(scores: Val, product: Val) -> tuple[tuple[Val, Val, Val], tuple[Perm, Perm, Perm], float]:
    """q, k and v as stored, their permutations, and the constant factor of the scores in them."""
    q, q_perm, q_scale = _peel(scores.args[0], _swap_if(scores, "trans_a", 0))
    k, k_perm, k_scale = _peel(scores.args[1], _swap_if(scores, "trans_b", 1, flip=True))
    v, v_perm, _ = _peel(product.args[1], None, scales=False)
    alpha = scores.attr("alpha")
    assert isinstance(alpha, float)
    return (q, k, v), (q_perm, k_perm, v_perm), q_scale * k_scale * alpha


def scaled_acc(root: Val, matmul: Val) -> tuple[Val, float]:
    """Follow constant factors applied to the bare scores: the value they end in, and their product."""
    readers: dict[Val, list[Val]] = defaultdict(list)
    for val in between(root, matmul):
        for arg in dict.fromkeys(val.args):
            readers[arg].append(val)
    acc, scale = matmul, 1.0
    while len(readers[acc]) == 1 and (factor := _factor(readers[acc][0], acc)) is not None:
        acc, scale = readers[acc][0], scale * factor
    return acc, scale


def _factor(val: Val, of: Val) -> float | None:
    """c where `val` is `of` * c or `of` / c for a literal scalar c that keeps the shape."""
    if val.op not in ("Mul", "Div") or val.shape != of.shape or (val.op == "Div" and val.args[0] is not of):
        return None
    other = next((a for a in val.args if a is not of), of)
    if other.op != "const" or other.value is None or isinstance(other.value, bool):
        return None
    number = float(other.value)
    if not math.isfinite(number) or number == 0:
        return None
    return number if val.op == "Mul" else 1 / number


def _swap_if(matmul: Val, flag: str, operand: int, flip: bool = False) -> tuple[int, ...] | None:
    """The permutation that swaps the last two axes of an operand, where it is stored the other way."""
    if bool(matmul.attr(flag)) == flip:
        return None
    rank = len(matmul.args[operand].shape)
    return (*range(rank - 2), rank - 1, rank - 2)


def _peel(val: Val, perm: tuple[int, ...] | None, scales: bool = True) -> tuple[Val, tuple[int, ...] | None, float]:
    """The stored tensor behind transposes and constant factors: (tensor, permutation, factor)."""
    scale = 1.0
    while True:
        if val.op == "transpose":
            perm = val.perm if perm is None else tuple(val.perm[p] for p in perm)
            val = val.args[0]
            continue
        factor = next((f for a in val.args if (f := _factor(val, a)) is not None), None) if scales else None
        if factor is None:
            break
        scale *= factor
        val = next(a for a in val.args if _factor(val, a) is not None)
    return val, None if perm == tuple(range(len(val.shape))) else perm, scale


def output_dims(b: Builder, scores: Val, product: Val) -> int:
    """Dimensions of the output. Keys and values must be equally many; where the model does not say so, the shape
    program multiplies the bare scores with V too, which fails at run time if they are not."""
    value = product.args[1]
    if b.sizes.equal(scores.shape[-1], value.shape[-2]):
        return product.dims
    return b.shapes.emit("broadcast", (product.dims, b.shapes.emit("matmul", (scores.dims, value.dims))))


def output_of(
    b: Builder, uses: Uses, product: Val, new: Val, outer: Callable[[Val], Val]
) -> tuple[Val, tuple[int, ...] | None, Callable[[Val], Val]]:
    """The value to store, the permutation of the attention that it is, and what makes it of what is stored: a transpose
    that alone reads the product is no copy of its own, also through a reshape that merges the axes of grouped heads."""
    chain = [product]
    while len(uses.readers(chain[-1])) == 1 and chain[-1] not in uses.outputs and len(chain) < 3:
        chain.append(uses.readers(chain[-1])[0])
    moves = [v.op for v in chain[1:]]
    tried = [chain[2]] if moves == ["reshape", "transpose"] else [chain[1]] if moves[:1] == ["transpose"] else []
    for out in (*tried, product):
        made = outer(new)
        for move in chain[1 : chain.index(out) + 1]:
            made = b.transpose(made, move.perm) if move.op == "transpose" else b.reshape(made, move.dims)
        perm = _permutation(b, made, new)
        if perm is not None:
            return out, None if perm == tuple(range(len(perm))) else perm, lambda x, d=out.dims: b.reshape(x, d)
    raise stored("a result whose axes are merged and moved")


def _permutation(b: Builder, made: Val, new: Val) -> tuple[int, ...] | None:
    """The permutation of `new` that has the elements of `made` in their order, if there is one."""
    identity = tuple(range(len(new.shape)))
    if made is new or (made.op == "reshape" and made.args[0] is new):
        return identity
    if made.op != "transpose":
        return None
    if made.args[0] is new:
        return made.perm
    merged = made.args[0]
    runs = b.axis_runs(merged.dims, new.dims) if merged.op == "reshape" and merged.args[0] is new else None
    return None if runs is None else tuple(i for axis in made.perm for i in runs[axis])


def leaves_of(*expressions: tuple[Val, Val]) -> tuple[Val, ...]:
    """Operands of the expressions (root, acc): the values read on the way from acc to root, literals aside."""
    leaves: dict[Val, None] = {}
    for root, acc in expressions:
        inner = between(root, acc)
        for val in inner:
            leaves.update(dict.fromkeys(a for a in val.args if a not in inner and a is not acc))
    return tuple(v for v in leaves if v.op not in ("const", "index"))


def between(root: Val, acc: Val) -> dict[Val, None]:
    """The values that depend on acc and that root depends on, arguments first, acc left out."""
    depends: dict[Val, None] = {}
    for val in topological([root]):
        if val is not acc and any(a is acc or a in depends for a in val.args):
            depends[val] = None
    return depends
