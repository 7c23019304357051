"""Einsum of one operand (a transpose) or two (a matrix product between transposes)."""

from __future__ import annotations

import onnx_ir as ir

from fusion_cli.codes import plan as codes
from fusion_cli.errors import Unsupported
from fusion_cli.operators.dtypes import FLOATS
from fusion_cli.plan.context import Context
from fusion_cli.plan.graph import Val
from fusion_cli.plan.lower_elementwise import Rule
from fusion_cli.plan.lowering import Builder


def _einsum(ctx: Context, node: ir.Node) -> Val:
    equation = node.attributes.get_string("equation", "") or ""
    left, arrow, out = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    vals = ctx.operands(node)
    plain = arrow and all(t.isalpha() and len(set(t)) == len(t) for t in (*terms, out))
    if not plain or len(terms) != len(vals) or any(len(t) != len(v.shape) for t, v in zip(terms, vals, strict=True)):
        raise Unsupported(codes.ATTRIBUTE, "an Einsum that names each axis once", equation)
    if len(vals) == 1 and sorted(left) == sorted(out):
        return ctx.b.transpose(vals[0], [left.index(label) for label in out])
    only_in_one = len(vals) == 2 and set(terms[0]) ^ set(terms[1])
    if not only_in_one or not set(only_in_one) <= set(out) <= set(left) or any(v.dtype not in FLOATS for v in vals):
        raise Unsupported(codes.ATTRIBUTE, "an Einsum that is a transpose or a matrix product", equation)
    return _product(ctx.b, (terms[0], terms[1]), out, (vals[0], vals[1]))


def _product(b: Builder, terms: tuple[str, str], out: str, vals: tuple[Val, Val]) -> Val:
    """Axes in both operands and the result are batches, those in both only are summed over."""
    first, second = terms
    batch = "".join(c for c in out if c in first and c in second)
    inner = "".join(c for c in first if c in second and c not in out)
    rows, columns = ("".join(c for c in out if c in own and c not in batch) for own in terms)
    trans_a, trans_b = first == batch + inner + rows, second == batch + columns + inner
    a = _matrix(b, vals[0], first, (batch, inner, rows) if trans_a else (batch, rows, inner))
    w = _matrix(b, vals[1], second, (batch, columns, inner) if trans_b else (batch, inner, columns))
    product = b.matmul(a, w, trans_a=trans_a, trans_b=trans_b)
    # Batch axes stay as they are: two that differ only in being 1 are broadcast.
    sizes = [b.shapes.emit("slice", (product.dims,), (0, len(batch), 1))]
    for term, val, labels in ((first, vals[0], rows), (second, vals[1], columns)):
        sizes.append(b.shapes.emit("take", (val.dims,), [term.index(c) for c in labels]))
    apart = b.reshape(product, b.shapes.emit("concat", sizes))
    order = batch + rows + columns
    return b.transpose(apart, [order.index(c) for c in out])


def _matrix(b: Builder, x: Val, labels: str, groups: tuple[str, str, str]) -> Val:
    """x as [batch..., m, n], each of m and n the product of a group of axes."""
    batch, m, n = groups
    x = b.transpose(x, [labels.index(c) for c in batch + m + n])
    at = len(batch)
    sizes = [b.shapes.emit("slice", (x.dims,), (0, at, 1))]
    for group in (m, n):
        sizes.append(b.shapes.emit("prod", (b.shapes.emit("slice", (x.dims,), (at, at + len(group), 1)),)))
        at += len(group)
    return b.reshape(x, b.shapes.emit("concat", sizes))


RULES: dict[str, Rule] = {"Einsum": _einsum}
