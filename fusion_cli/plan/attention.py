"""Finding softmax(Q K^T) V in the tensor program, however its scale, mask, guards and transposes are written."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fusion_cli.plan.graph import LEAVES, Uses, Val, topological
from fusion_cli.plan.lowering import Builder


@dataclass(frozen=True, eq=False)
class Parts:
    """What an "attention" value is made of; its args are q, k, v and then `leaves`, as stored.

    `score` and `prob` are the roots of two expressions over `leaves` and over `score_acc` and `prob_acc`.
    """

    scale: float
    perms: tuple[tuple[int, ...] | None, tuple[int, ...] | None, tuple[int, ...] | None]
    score: Val
    score_acc: Val
    prob: Val
    prob_acc: Val
    zero_empty: bool
    leaves: tuple[Val, ...]
    dims: int
    """Host value: dimensions of P @ V, before `out_perm`."""
    out_perm: tuple[int, ...] | None
    nodes: tuple[str, ...]


def fuse_attention(builder: Builder, outputs: Sequence[Val]) -> list[Val]:
    """The program with every attention as one value, and every other softmax as arithmetic."""
    uses = Uses(list(outputs))
    found: dict[Val, tuple[Val, tuple[Val, ...], Parts]] = {}
    for val in uses.order:
        if val.op == "softmax":
            match = _match(builder, uses, val)
            if match is not None:
                found[match[0]] = match
    return _rebuild(builder, uses.order, found, outputs)


def _match(builder: Builder, uses: Uses, softmax: Val) -> tuple[Val, tuple[Val, ...], Parts] | None:
    guarded = _probabilities(uses, softmax)
    if guarded is None:
        return None
    prob, product, prob_inside = guarded
    scored = _scores(softmax.args[0])
    if scored is None:
        return None
    matmul, score_inside = scored
    inside = {softmax, *score_inside}
    if not all(uses.only_inside(v, inside) for v in score_inside):
        return None
    acc, scale = _scaled_acc(uses, matmul, score_inside)
    q, q_perm, q_scale = _peel(matmul.args[0], _swap_if(matmul, "trans_a", 0))
    k, k_perm, k_scale = _peel(matmul.args[1], _swap_if(matmul, "trans_b", 1, flip=True))
    v, v_perm, _ = _peel(product.args[1], None, scales=False)
    if product.attr("trans_a") or product.attr("trans_b") or product.attr("alpha") != 1.0:
        return None
    dims = _output_dims(builder, matmul, product)
    alpha = matmul.attr("alpha")
    assert isinstance(alpha, float)
    scale *= q_scale * k_scale * alpha
    out, out_perm = _output(builder, uses, product)
    leaves = _leaves((softmax.args[0], acc), (prob, softmax))
    nodes = tuple(dict.fromkeys(x.node for x in (*score_inside, softmax, *prob_inside, product, out) if x.node))
    perms, zero_empty = (q_perm, k_perm, v_perm), bool(softmax.attr("zero_empty"))
    parts = Parts(scale, perms, softmax.args[0], acc, prob, softmax, zero_empty, leaves, dims, out_perm, nodes)
    return out, (q, k, v), parts


def _probabilities(uses: Uses, softmax: Val) -> tuple[Val, Val, list[Val]] | None:
    """From the softmax through elementwise guards to the product with V: (probability, product, guards)."""
    inside = [softmax]
    while True:
        readers = {r for v in inside for r in uses.readers(v)} - set(inside)
        products = [r for r in readers if r.op == "matmul"]
        pending = [r for r in readers if r.is_elementwise]
        if len(products) + len(pending) != len(readers) or any(v in uses.outputs for v in inside):
            return None
        if not pending:
            break
        inside.extend(sorted(pending, key=uses.order.index))
    if len(products) != 1 or products[0].args[0] not in inside or products[0].args[1] in inside:
        return None
    return products[0].args[0], products[0], inside[1:]


def _scores(root: Val) -> tuple[Val, list[Val]] | None:
    """From the softmax's operand back through elementwise operations to the one product that makes the scores."""
    depends: dict[Val, bool] = {}
    products: set[Val] = set()
    for val in topological([root]):
        if val.op == "matmul":
            depends[val] = True
        elif val.is_elementwise:
            depends[val] = any(depends[a] for a in val.args)
        else:
            depends[val] = False
    reached = {root}
    stack = [root]
    while stack:
        val = stack.pop()
        if val.op == "matmul":
            products.add(val)
            continue
        fresh = [a for a in val.args if depends[a] and a not in reached]
        reached.update(fresh)
        stack.extend(fresh)
    if len(products) != 1 or not depends[root]:
        return None
    return products.pop(), [v for v in depends if v in reached]


def _scaled_acc(uses: Uses, matmul: Val, inside: Sequence[Val]) -> tuple[Val, float]:
    """Follow constant factors applied to the bare scores: the value they end in, and their product."""
    acc, scale = matmul, 1.0
    while True:
        readers = uses.readers(acc)
        factor = _factor(readers[0], acc) if len(readers) == 1 and readers[0] in inside else None
        if factor is None:
            return acc, scale
        acc, scale = readers[0], scale * factor


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


def _output_dims(b: Builder, scores: Val, product: Val) -> int:
    """Dimensions of the output. Keys and values must be equally many; where the model does not say so, the shape
    program multiplies the bare scores with V too, which fails at run time if they are not."""
    value = product.args[1]
    if b.sizes.equal(scores.shape[-1], value.shape[-2]):
        return product.dims
    return b.host.emit("broadcast", (product.dims, b.host.emit("matmul", (scores.dims, value.dims))))


def _output(b: Builder, uses: Uses, product: Val) -> tuple[Val, tuple[int, ...] | None]:
    """The value to store, and the permutation of P @ V that it is: a transpose that alone reads the product, also
    through a reshape that merges the axes of grouped heads."""
    chain = [product]
    while len(uses.readers(chain[-1])) == 1 and chain[-1] not in uses.outputs and len(chain) < 3:
        chain.append(uses.readers(chain[-1])[0])
    if len(chain) > 1 and chain[1].op == "transpose":
        return chain[1], chain[1].perm
    if [v.op for v in chain[1:]] == ["reshape", "transpose"]:
        runs = b.axis_runs(chain[1].dims, product.dims)
        if runs is not None:
            return chain[2], tuple(i for axis in chain[2].perm for i in runs[axis])
    return product, None


def _leaves(*expressions: tuple[Val, Val]) -> tuple[Val, ...]:
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


def _rebuild(
    builder: Builder,
    order: Sequence[Val],
    found: Mapping[Val, tuple[Val, tuple[Val, ...], Parts]],
    outputs: Sequence[Val],
) -> list[Val]:
    new: dict[Val, Val] = {}
    for val in order:
        if val in found:
            out, qkv, parts = found[val]
            args = tuple(new[a] for a in (*qkv, *parts.leaves))
            new[val] = _attention_value(builder, out, args, parts)
        elif val.op == "softmax":
            builder.node = val.node
            new[val] = _plain_softmax(builder, new[val.args[0]], bool(val.attr("zero_empty")))
        elif val.op in LEAVES or all(new[a] is a for a in val.args):
            new[val] = val
        else:
            new[val] = replace(val, args=tuple(new[a] for a in val.args))
    return [new[o] for o in outputs]


def _attention_value(b: Builder, out: Val, args: tuple[Val, ...], parts: Parts) -> Val:
    dims = out.dims
    if parts.out_perm is not None and len(parts.out_perm) != len(out.shape):
        dims = b.host.emit("permute", (parts.dims,), parts.out_perm)
    shape = b.host.values[dims]
    val = replace(out, op="attention", args=args, attrs=(("parts", parts),), dims=dims, shape=shape)
    return val if dims == out.dims else b.reshape(val, out.dims)


def _plain_softmax(b: Builder, x: Val, zero_empty: bool) -> Val:
    highest = b.reduce("reduce_max", x)
    if zero_empty:
        highest = b.apply("Where", b.apply("Equal", highest, -math.inf), b.const(0.0, x.dtype), highest)
    exponential = b.apply("Exp", b.apply("Sub", x, highest))
    total = b.reduce("reduce_sum", exponential)
    return b.apply("Div", exponential, b.apply("Max", total, 1.0) if zero_empty else total)
