"""Matrix products, convolution and the Attention operator as primitives."""

from __future__ import annotations

import math

import onnx_ir as ir

from fusion_cli.codes import plan as codes
from fusion_cli.errors import Unsupported
from fusion_cli.operators.dtypes import DTYPES, FLOATS
from fusion_cli.operators.versions import windows
from fusion_cli.plan.context import Context, read_besides
from fusion_cli.plan.graph import Val
from fusion_cli.plan.lower_elementwise import Rule
from fusion_cli.plan.lowering import Builder
from fusion_cli.sizes.algebra import ONE

_AUTO_PAD = ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")


def _floats(*vals: Val) -> None:
    for val in vals:
        if val.dtype not in FLOATS:
            raise Unsupported(codes.DTYPE, "floating-point operands", val.dtype)


def product(b: Builder, a: Val, w: Val, trans_a: bool = False, trans_w: bool = False, alpha: float = 1.0) -> Val:
    """alpha A W as numpy's matmul has it, of operands whose last two axes may be swapped; a vector has no such two."""
    _floats(a, w)
    vector_a, vector_w = len(a.shape) == 1, len(w.shape) == 1
    rows, columns = b.unsqueeze(a, (0,)) if vector_a else a, b.unsqueeze(w, (1,)) if vector_w else w
    result = b.matmul(rows, columns, trans_a and not vector_a, trans_w and not vector_w, alpha)
    return b.squeeze(result, [axis for axis, is_vector in ((-2, vector_a), (-1, vector_w)) if is_vector])


def _matmul(ctx: Context, node: ir.Node) -> Val:
    a, w = ctx.operands(node)
    return product(ctx.b, a, w)


def _gemm(ctx: Context, node: ir.Node) -> Val:
    b, get = ctx.b, node.attributes
    a, w, c = ctx.operand(node, 0), ctx.operand(node, 1), ctx.optional(node, 2)
    _floats(a, w)
    result = b.matmul(a, w, bool(get.get_int("transA", 0)), bool(get.get_int("transB", 0)), get.get_float("alpha", 1.0))
    beta = get.get_float("beta", 1.0)
    if c is None or beta == 0:
        return result
    return b.apply("Add", result, c if beta == 1.0 else b.apply("Mul", c, beta))


def _conv(ctx: Context, node: ir.Node) -> Val:
    x, w, bias = ctx.operand(node, 0), ctx.operand(node, 1), ctx.optional(node, 2)
    _floats(x, w)
    n = len(x.shape) - 2
    if n < 1:
        raise Unsupported(codes.ATTRIBUTE, "a convolution over at least one axis", f"rank {len(x.shape)}")
    get = node.attributes
    strides, dilations, pads = windows(node, n)
    auto_pad = get.get_string("auto_pad", "NOTSET")
    dims = ctx.b.shapes.emit("conv", (x.dims, w.dims), (n, *strides, *pads, *dilations, _AUTO_PAD.index(auto_pad)))
    attrs = (
        ("strides", strides),
        ("pads", pads),
        ("dilations", dilations),
        ("group", get.get_int("group", 1)),
        ("auto_pad", auto_pad),
    )
    return ctx.b.conv([v for v in (x, w, bias) if v is not None], dims, attrs)


def _split_heads(ctx: Context, x: Val, heads: int) -> Val:
    """[B, S, heads * D] as [B, heads, S, D]."""
    b = ctx.b
    target = b.shapes.emit("concat", (b.shapes.emit("slice", (x.dims,), (0, 2, 1)), b.shapes.const((heads, -1))))
    return b.transpose(b.reshape(x, b.shapes.emit("reshape", (x.dims, target), (0,))), (0, 2, 1, 3))


def _merge_heads(ctx: Context, x: Val) -> Val:
    """[B, heads, S, D] as [B, S, heads * D]."""
    b = ctx.b
    x = b.transpose(x, (0, 2, 1, 3))
    target = b.shapes.emit("concat", (b.shapes.emit("slice", (x.dims,), (0, 2, 1)), b.shapes.const((-1,))))
    return b.reshape(x, b.shapes.emit("reshape", (x.dims, target), (0,)))


def _group_axis(ctx: Context, x: Val, heads: int) -> Val:
    """[B, H, ...] as [B, heads, H / heads, ...]; an axis of 1 stays 1 twice."""
    b = ctx.b
    if b.sizes.norm(x.shape[1]) == ONE:
        return b.unsqueeze(x, (1,))
    head, tail = b.shapes.emit("slice", (x.dims,), (0, 1, 1)), b.shapes.emit("slice", (x.dims,), (2, 4, 1))
    group = b.fixed(x.shape[1], "the heads") // heads
    return b.reshape(x, b.shapes.emit("concat", (head, b.shapes.const((heads, group)), tail)))


def _attention(ctx: Context, node: ir.Node) -> Val:
    """softmax(scale * Q K^T + mask) V, with grouped query heads by an axis that K and V broadcast over."""
    b, get = ctx.b, node.attributes
    _check_attention(node)
    q, k, v, mask = (ctx.optional(node, i) for i in range(4))
    if q is None or k is None or v is None:
        raise Unsupported(codes.ATTRIBUTE, "Q, K and V", "a missing one")
    _floats(q, k, v)
    packed = len(q.shape) == 3
    if packed:
        q = _split_heads(ctx, q, get.get_int("q_num_heads", 0))
        k, v = (_split_heads(ctx, x, get.get_int("kv_num_heads", 0)) for x in (k, v))
    whole = q.dims
    scale = get.get_float("scale") or 1 / math.sqrt(b.fixed(q.shape[3], "the head"))
    grouped = not b.sizes.equal(q.shape[1], k.shape[1])
    if mask is not None:
        mask = b.unsqueeze(mask, tuple(range(4 - len(mask.shape))))
    if grouped:
        heads = b.fixed(k.shape[1], "the key heads")
        q = _group_axis(ctx, q, heads)
        k, v = b.unsqueeze(k, (2,)), b.unsqueeze(v, (2,))
        mask = None if mask is None else _group_axis(ctx, mask, heads)
    swap = (*range(len(k.shape) - 2), len(k.shape) - 1, len(k.shape) - 2)
    scores = b.apply("Mul", b.matmul(q, b.transpose(k, swap)), scale)
    # Where a mask leaves a query no key, the operator gives zeros.
    weights = b.softmax(_masked(ctx, node, scores, mask), zero_empty=mask is not None)
    out = b.matmul(weights, v)
    if grouped:
        head, last = b.shapes.emit("slice", (whole,), (0, 3, 1)), b.shapes.emit("slice", (v.dims,), (-1, 5, 1))
        out = b.reshape(out, b.shapes.emit("concat", (head, last)))
    return _merge_heads(ctx, out) if packed else out


def _masked(ctx: Context, node: ir.Node, scores: Val, mask: Val | None) -> Val:
    b = ctx.b
    lowest = b.const(-math.inf, scores.dtype)
    softcap = node.attributes.get_float("softcap", 0.0)
    if softcap:
        # Opset 23 writes the cap after the mask, where it would undo it: ONNX Runtime masks what is capped there too.
        scores = b.apply("Mul", b.apply("Tanh", b.apply("Div", scores, softcap)), softcap)
    if mask is not None:
        if mask.dtype == "bool":
            scores = b.apply("Where", mask, scores, lowest)
        else:
            # The lowest number masks as -inf does.
            hidden = b.apply("LessOrEqual", mask, -DTYPES[mask.dtype].largest)
            scores = b.apply("Where", hidden, lowest, b.apply("Add", scores, mask))
    if node.attributes.get_int("is_causal", 0):
        later = b.apply("Greater", b.positions(-1, scores.dims), b.positions(-2, scores.dims))
        scores = b.apply("Where", later, lowest, scores)
    return scores


def _check_attention(node: ir.Node) -> None:
    if any(v is not None for v in node.inputs[4:]):
        raise Unsupported(codes.ATTRIBUTE, "Attention without a cache", "past keys or key lengths")
    if read_besides(node):
        raise Unsupported(codes.UNUSED_OUTPUT, "only the first output of Attention used", "a cache or the scores used")
    if node.attributes.get_int("qk_matmul_output_mode", 0):
        raise Unsupported(codes.ATTRIBUTE, "Attention without its scores", "qk_matmul_output_mode")


RULES: dict[str, Rule] = {"MatMul": _matmul, "Gemm": _gemm, "Conv": _conv, "Attention": _attention}
