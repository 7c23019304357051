"""Images that are made larger without a pixel that is made of two, with the channels last; values that are padded."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import onnx_ir as ir

from fusion_cli.codes import plan as codes
from fusion_cli.errors import Unsupported
from fusion_cli.load.overridable import is_constant
from fusion_cli.operators.enlarging import is_unfolding
from fusion_cli.operators.image_axes import IMAGE, to_first, to_last
from fusion_cli.operators.paddings import MIRRORS, pads_of
from fusion_cli.operators.versions import attribute
from fusion_cli.plan.context import Context
from fusion_cli.plan.graph import Val
from fusion_cli.plan.lower_elementwise import Rule
from fusion_cli.plan.slicing import Slice, sliced

_PLANE = 4
"""Axes of an image with a height and a width."""


def _depth_to_space(ctx: Context, node: ir.Node) -> Val:
    b, x, size = ctx.b, ctx.operand(node, 0), attribute(node, "blocksize")
    if len(x.shape) != _PLANE:
        raise Unsupported(codes.ATTRIBUTE, "DepthToSpace of an image of four axes", f"rank {len(x.shape)}")
    channels = b.fixed(x.shape[1], "the channels of DepthToSpace") // size**2
    first = attribute(node, "mode") == "CRD"
    parts = (channels, size, size) if first else (size, size, channels)
    made = _unfolded(ctx, b.transpose(x, to_last(_PLANE)), parts, 0 if first else 2)
    return b.transpose(made, to_first(_PLANE))


def _conv_transpose(ctx: Context, node: ir.Node) -> Val:
    """A product over the channels, of which each makes the pixels that the kernel covers."""
    b, x, w, bias = ctx.b, ctx.operand(node, 0), ctx.operand(node, 1), ctx.optional(node, 2)
    if not is_unfolding(node):
        raise Unsupported(codes.ATTRIBUTE, "a ConvTranspose that moves by as much as its kernel covers", "another")
    rank = len(x.shape)
    parts = [b.fixed(size, "the filter of ConvTranspose") for size in w.shape[1:]]
    made = _unfolded(ctx, b.matmul(b.transpose(x, to_last(rank)), b.flatten_from(w, 1)), parts, 0, bias)
    return b.transpose(made, to_first(rank))


def _pad(ctx: Context, node: ir.Node) -> Val:
    """A number behind the ends of axes, or what lies near them once more: mirrored, or the last of it repeated."""
    b, x, found = ctx.b, ctx.operand(node, 0), pads_of(node, "constant", *MIRRORS)
    if found is None or not all(v is None or is_constant(v) for v in node.inputs[1:]):
        raise Unsupported(codes.ATTRIBUTE, "a Pad by constant sizes that adds", "another")
    rank = len(x.shape)
    order = to_last(rank) if ctx.region.channels_last and rank >= IMAGE else tuple(range(rank))
    x = b.transpose(x, order)
    for axis, (before, after) in enumerate(zip(*found, strict=True)):
        at = order.index(axis) - rank
        first = [_end(ctx, node, x, at, before, True)] if before else []
        last = [_end(ctx, node, x, at, after, False)] if after else []
        x = b.concat([*first, x, *last], at)
    return b.transpose(x, [order.index(a) for a in range(rank)])


def _end(ctx: Context, node: ir.Node, x: Val, axis: int, count: int, is_first: bool) -> Val:
    """What a Pad puts before the first or behind the last position of an axis (negative)."""
    b, mode = ctx.b, attribute(node, "mode")
    dims = b.shapes.emit("put", (x.dims, b.shapes.const((count,))), (axis + len(x.shape),))
    if mode == "constant":
        return b.expand(ctx.optional(node, 2) or b.const(0, x.dtype), dims)
    size, is_mirrored = b.fixed(x.shape[axis], "what is padded"), mode == "reflect"
    if size <= count * is_mirrored:
        raise Unsupported(codes.ATTRIBUTE, f"an axis of more than {count * is_mirrored}", str(size))
    start = (count if is_mirrored else 0) if is_first else size - 1 - is_mirrored
    first, step, counts = (b.shapes.const((n,)) for n in (start, -1, count if is_mirrored else 1))
    part = sliced(b, x, Slice((axis,), first, counts, step))
    return part if is_mirrored else b.expand(part, dims)


def _unfolded(ctx: Context, x: Val, parts: Sequence[int], channels: int, bias: Val | None = None) -> Val:
    """An image [N, ..., C] whose last axis is `parts`: that of this index is the channels of the result, the others, in
    their order, its pixels along each axis. Each channel with its bias."""
    b, n = ctx.b, len(x.shape) - 2
    head = b.shapes.emit("slice", (x.dims,), (0, n + 1, 1))
    split = b.reshape(x, b.shapes.emit("concat", (head, b.shapes.const(tuple(parts)))))
    inner = [i for i in range(n + 1) if i != channels]
    pixels = chain.from_iterable((1 + i, n + 1 + k) for i, k in enumerate(inner))
    turned = b.transpose(split, (0, *pixels, n + 1 + channels))
    if bias is not None:
        turned = b.apply("Add", turned, bias)
    larger = b.shapes.emit("mul", (head, b.shapes.const((1, *(parts[k] for k in inner)))))
    return b.reshape(turned, b.shapes.emit("concat", (larger, b.shapes.const((parts[channels],)))))


RULES: dict[str, Rule] = {"DepthToSpace": _depth_to_space, "ConvTranspose": _conv_transpose, "Pad": _pad}
