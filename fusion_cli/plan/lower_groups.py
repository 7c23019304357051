"""Norms of groups of channels of images whose channels come last: their moments, and what is done with these to each
element."""

from __future__ import annotations

import onnx_ir as ir

from fusion_cli.operators.image_axes import IMAGE, to_last
from fusion_cli.operators.versions import attribute, has_weights_by_group
from fusion_cli.plan.context import Context
from fusion_cli.plan.graph import Val
from fusion_cli.plan.slicing import Slice, sliced

_MOST_CHANNELS = 4096
"""That a block keeps the moments of (moments.cuh)."""


def norm_of_groups(ctx: Context, node: ir.Node, x: Val) -> Val | None:
    """An InstanceNormalization or GroupNormalization of an image, or of one whose groups of channels were made channels
    (exporters write group norms so); None where it is another's."""
    b = ctx.b
    found = _image_of(ctx, node, x)
    if found is None:
        return None
    image, groups = found
    channels, rank = b.sizes.norm(image.shape[1]).known, len(image.shape)
    if channels is None or not 0 < channels <= _MOST_CHANNELS or channels % groups or has_weights_by_group(node):
        return None
    moments = b.moments(b.transpose(image, to_last(rank)), groups, attribute(node, "epsilon"))
    mean, inverse = (_by_channel(ctx, moments, i, rank) for i in range(2))
    result = b.apply("Mul", b.apply("Sub", image, mean), inverse)
    for index, (op, none) in enumerate((("Mul", 1.0), ("Add", 0.0)), start=1):
        literal = ctx.literal(node.inputs[index])
        if literal is None or not (literal == none).all():
            weight = _each(ctx, ctx.operand(node, index), channels, rank)
            result = b.apply(op, result, weight)
    return b.reshape(result, x.dims)


def _image_of(ctx: Context, node: ir.Node, x: Val) -> tuple[Val, int] | None:
    """The image that is normalized, and the number of its groups."""
    b, value = ctx.b, node.inputs[0]
    if node.op_type == "GroupNormalization":
        return (x, int(attribute(node, "num_groups"))) if len(x.shape) >= IMAGE else None
    producer = None if value is None else value.producer()
    made = b.sizes.norm(x.shape[1]).known
    if producer is not None and producer.op_type == "Reshape" and producer in ctx.nodes and made:
        image = ctx.operand(producer, 0)
        if len(image.shape) >= IMAGE and b.sizes.equal(image.shape[0], x.shape[0]):
            return image, made
    return (x, made) if made and len(x.shape) >= IMAGE else None


def _by_channel(ctx: Context, moments: Val, which: int, rank: int) -> Val:
    """One of the moments [2, N, C] as [N, C, 1, ...]."""
    b = ctx.b
    first, one = b.shapes.const((which,)), b.shapes.const((1,))
    found = b.squeeze(sliced(b, moments, Slice((-3,), first, one, one)), (0,))
    return b.unsqueeze(found, tuple(range(2, rank)))


def _each(ctx: Context, weight: Val, channels: int, rank: int) -> Val:
    """A vector by channel, or by group of them, as [C, 1, ...]."""
    b = ctx.b
    count = b.sizes.norm(weight.shape[0]).known
    if count != channels and count:
        apart = b.expand(b.unsqueeze(weight, (1,)), b.shapes.const((count, channels // count)))
        weight = b.flatten_from(apart, 0)
    return b.unsqueeze(weight, tuple(range(1, rank - 1)))
