"""Finding softmax(Q K^T) V in the tensor program, however its scale, mask, guards, views and softmax are written."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from fusion_cli.errors import Unsupported
from fusion_cli.plan.attention_layout import Laid, Layouts, bases, stored
from fusion_cli.plan.attention_parts import (
    Parts,
    between,
    leaves_of,
    operands_of,
    output_dims,
    output_of,
    scaled_acc,
)
from fusion_cli.plan.attention_softmax import Softmax, softmax_at
from fusion_cli.plan.graph import Uses, Val
from fusion_cli.plan.lowering import Builder

_MOVED = ("reshape", "transpose")


@dataclass(frozen=True, eq=False)
class Roles:
    """What the matcher saw: the scores, the softmax of them, and the result of an attention."""

    scores: Val | None
    weights: Val | None
    result: Val


@dataclass(frozen=True, eq=False)
class _Way:
    """An attention as the program has it: from the product of queries and keys through the softmax (`inner`), through
    `guards` to the `weights` and their product with the values."""

    softmax: Softmax
    matmul: Val
    inner: tuple[Val, ...]
    guards: tuple[Val, ...]
    product: Val
    weights: Val


@dataclass(frozen=True, eq=False)
class _Found:
    """An attention: the value to store, the product that it is, in the program as it was, and what replaces it."""

    out: Val
    product: Val
    args: tuple[Val, ...]
    parts: Parts
    outer: Callable[[Val], Val]
    """What makes `out` of the attention, by views alone."""


def fuse_attention(builder: Builder, outputs: Sequence[Val], roles: Sequence[Roles]) -> list[Val]:
    """The program with every attention as one value, and every other softmax as arithmetic.

    Raises Unsupported where the region ends in an attention that the matcher saw and that no kernel computes: storing
    its scores is all that would be left of it. In a larger region they are stored.
    """
    uses = Uses(list(outputs))
    seen = {_source(r.weights): r.scores for r in roles if r.weights is not None}
    found: dict[Val, _Found] = {}
    reasons: dict[Val, Unsupported] = {}
    for val in uses.order:
        softmax = softmax_at(builder, uses, val) if val.op == "softmax" or val in seen else None
        if softmax is None:
            continue
        builder.node = softmax.root.node
        try:
            match = _match(builder, uses, _way(uses, softmax, seen.get(softmax.root)))
        except Unsupported as reason:
            reasons[softmax.root] = reason
        else:
            found[match.out] = match
    _require(uses, roles, {f.product for f in found.values()}, reasons)
    return _rebuild(builder, found, outputs)


def _require(uses: Uses, roles: Sequence[Roles], fused: Collection[Val], reasons: Mapping[Val, Unsupported]) -> None:
    ends = {_source(o) for o in uses.outputs}
    for attention in roles:
        if _source(attention.result) in ends and _products(attention.result).isdisjoint(fused):
            own = reasons.get(_source(attention.weights)) if attention.weights is not None else None
            raise own or next(iter(reasons.values()), stored("a softmax in a form that no kernel has"))


def _source(val: Val) -> Val:
    while val.op in _MOVED:
        val = val.args[0]
    return val


def _products(val: Val) -> set[Val]:
    """The products nearest behind a value."""
    found: set[Val] = set()
    stack, reached = [val], {val}
    while stack:
        val = stack.pop()
        if val.op == "matmul":
            found.add(val)
        elif val.is_elementwise or val.op in _MOVED:
            fresh = [a for a in val.args if a not in reached]
            reached.update(fresh)
            stack.extend(fresh)
    return found


def _way(uses: Uses, softmax: Softmax, known: Val | None) -> _Way:
    guards, product, weights = _weighted(uses, softmax.root)
    matmul = _scores(softmax.x, known)
    inner = (matmul, *between(softmax.x, matmul), *between(softmax.root, softmax.x))
    inside = {*inner, *guards}
    if any(not uses.only_inside(v, inside) for v in inner if v is not softmax.root):
        raise stored("scores that something else reads too")
    return _Way(softmax, matmul, inner, tuple(guards), product, weights)


def _match(b: Builder, uses: Uses, way: _Way) -> _Found:
    reasons = []
    for base in bases(b, way.matmul, (*way.inner, *way.guards)):
        try:
            return _laid_out(b, uses, way, base)
        except Unsupported as reason:
            reasons.append(reason)
    raise reasons[0]


def _laid_out(b: Builder, uses: Uses, way: _Way, base: Laid) -> _Found:
    """The attention with its scores as `base` has them. Raises Unsupported where views are left in its midst."""
    softmax, product = way.softmax, way.product
    layouts = Layouts(b, {way.matmul: base}, {*way.inner, *way.guards})
    weights = layouts.softmax(softmax.x, softmax.zero_empty)
    layouts.known[softmax.root] = weights
    new, outer = layouts.weighted(product, way.weights)
    dims = output_dims(b, base.core, new)
    if not softmax.is_one_told:
        if outer(new) is not new:
            raise stored("sinks of which nobody knows how many there are")
        dims = b.shapes.emit("broadcast", (dims, product.dims))
    sink = softmax.sink and layouts.undone(softmax.sink, layouts.of(softmax.x), softmax.x)
    out, out_perm, outer = output_of(b, uses, product, new, outer)
    score, prob = weights.core.args[0], new.args[0]
    acc, scale = scaled_acc(score, base.core)
    operands, perms, factor = operands_of(base.core, new)
    leaves = leaves_of((score, acc), (prob, weights.core))
    leaves += () if sink is None or sink.op == "const" or sink in leaves else (sink,)
    nodes = tuple(dict.fromkeys(x.node for x in (*way.inner, *way.guards, product, out) if x.node))
    parts = Parts(
        scale * factor, perms, score, acc, prob, weights.core, sink, softmax.zero_empty, leaves, dims, out_perm, nodes
    )
    return _Found(out, product, (*operands, *leaves), parts, outer)


def _weighted(uses: Uses, softmax: Val) -> tuple[list[Val], Val, Val]:
    """From the softmax through guards and views to the product with V: (guards, product, which operand of it)."""
    inside = [softmax]
    while True:
        readers = {r for v in inside for r in uses.readers(v)} - set(inside)
        products = [r for r in readers if r.op == "matmul"]
        pending = [r for r in readers if r.is_elementwise or r.op in _MOVED]
        if any(v in uses.outputs for v in inside):
            raise stored("weights that are a result of their own")
        if len(products) + len(pending) != len(readers):
            other = next(r for r in readers if r not in products and r not in pending)
            raise stored(f"weights that {other.node or other.op} reads")
        if not pending:
            break
        inside.extend(sorted(pending, key=uses.order.index))
    operands = [a for p in products for a in p.args if a in inside]
    if len(operands) != 1:
        raise stored(f"weights that {len(operands)} products read")
    return inside[1:], products[0], operands[0]


def _scores(x: Val, known: Val | None) -> Val:
    """The product of queries and keys that makes the scores; others are added to it only where one is known as such."""
    found = _products(x)
    if known is not None:
        found &= _products(known)
    if len(found) != 1:
        raise stored("scores mixed with one another after their product" if not found else "a sum of several products")
    return found.pop()


def _rebuild(b: Builder, found: Mapping[Val, _Found], outputs: Sequence[Val]) -> list[Val]:
    new: dict[Val, Val] = {}
    stack = list(reversed(outputs))
    while stack:
        val = stack[-1]
        args = found[val].args if val in found else val.args
        missing = [a for a in args if a not in new]
        if missing:
            stack += reversed(missing)
            continue
        stack.pop()
        if val not in new:
            new[val] = _renewed(b, val, found.get(val), [new[a] for a in args])
    return [new[o] for o in outputs]


def _renewed(b: Builder, val: Val, attention: _Found | None, args: list[Val]) -> Val:
    if attention is not None:
        parts = attention.parts
        dims = parts.dims if parts.out_perm is None else b.shapes.emit("permute", (parts.dims,), parts.out_perm)
        made = replace(val, op="attention", args=tuple(args), attrs=(("parts", parts),), dims=dims)
        return attention.outer(replace(made, shape=b.shapes.values[dims], value=None))
    if val.op == "softmax":
        b.node = val.node
        return _plain_softmax(b, args[0], bool(val.attr("zero_empty")))
    return val if args == list(val.args) else replace(val, args=tuple(args))


def _plain_softmax(b: Builder, x: Val, zero_empty: bool) -> Val:
    highest = b.reduce("reduce_max", x)
    if zero_empty:
        highest = b.apply("Where", b.apply("Equal", highest, -math.inf), b.const(0.0, x.dtype), highest)
    exponential = b.apply("Exp", b.apply("Sub", x, highest))
    total = b.reduce("reduce_sum", exponential)
    return b.apply("Div", exponential, b.apply("Max", total, 1.0) if zero_empty else total)
