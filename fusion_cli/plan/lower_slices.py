"""Operators that take parts of tensors, join tensors, or repeat them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import onnx_ir as ir

from fusion_cli.codes import plan as codes
from fusion_cli.errors import Unsupported
from fusion_cli.operators.image_axes import IMAGE, to_first, to_last
from fusion_cli.operators.resizes import repeats_of
from fusion_cli.plan.context import Context, normalized_axis
from fusion_cli.plan.graph import Val
from fusion_cli.plan.lower_elementwise import Rule
from fusion_cli.plan.slicing import Slice, sliced
from fusion_cli.sizes.algebra import ONE

_END = 2**63 - 1
"""Past the last element, for Slice; its negative is before the first."""


def _slice(ctx: Context, node: ir.Node) -> Val:
    b, x = ctx.b, ctx.operand(node, 0)
    starts, ends = ctx.vector(node, "starts"), ctx.vector(node, "ends")
    if starts is None or ends is None:
        raise Unsupported(codes.ATTRIBUTE, "starts and ends of Slice", "none")
    count = len(b.shapes.values[starts])
    axes = ctx.ints(node, "axes") or tuple(range(count))
    steps = ctx.vector(node, "steps")
    return _window(ctx, x, axes, starts, ends, b.shapes.const((1,) * count) if steps is None else steps)


def _window(ctx: Context, x: Val, axes: Sequence[int], starts: int, ends: int, steps: int) -> Val:
    """Along each of `axes` the positions from a start to an end (shape values, as ONNX's Slice reads them)."""
    b, rank = ctx.b, len(x.shape)
    own = [normalized_axis(a, rank) for a in axes]
    sizes = b.shapes.emit("take", (x.dims,), own)
    first = b.shapes.emit("slice_start", (sizes, starts, steps))
    counts = b.shapes.emit("slice_count", (sizes, starts, ends, steps))
    return sliced(b, x, Slice(tuple(a - rank for a in own), first, counts, steps))


def _split(ctx: Context, node: ir.Node) -> list[Val]:
    b, x = ctx.b, ctx.operand(node, 0)
    axis = normalized_axis(node.attributes.get_int("axis", 0), len(x.shape))
    given = ctx.vector(node, "split")
    sizes = _equal_parts(ctx, x, axis, len(node.outputs)) if given is None else given
    start, one = b.shapes.const((0,)), b.shapes.const((1,))
    parts = []
    for i in range(len(node.outputs)):
        size = b.shapes.emit("take", (sizes,), (i,))
        parts.append(sliced(b, x, Slice((axis - len(x.shape),), start, size, one)))
        start = b.shapes.emit("add", (start, size))
    return parts


def _equal_parts(ctx: Context, x: Val, axis: int, count: int) -> int:
    """Sizes of `count` parts: equal ones, but for a smaller last one where the axis does not divide."""
    b = ctx.b
    size = b.shapes.emit("take", (x.dims,), (axis,))
    if b.sizes.norm(x.shape[axis]).coef % count == 0:
        return b.shapes.emit("div", (size, b.shapes.const((count,) * count)))
    rounded = b.shapes.emit(
        "div", (b.shapes.emit("add", (size, b.shapes.const((count - 1,)))), b.shapes.const((count,)))
    )
    before = b.shapes.emit("mul", (rounded, b.shapes.const((count - 1,))))
    return b.shapes.emit("concat", (*[rounded] * (count - 1), b.shapes.emit("sub", (size, before))))


def _concat(ctx: Context, node: ir.Node) -> Val:
    vals = ctx.operands(node)
    rank = len(vals[0].shape)
    axis = normalized_axis(node.attributes.get_int("axis", 1), rank)
    if any(len(v.shape) != rank for v in vals):
        raise ValueError("joined tensors differ in rank")
    return ctx.b.concat([v for v in vals if ctx.b.sizes.norm(v.shape[axis]).known != 0] or vals[:1], axis - rank)


def _gather(ctx: Context, node: ir.Node) -> Val:
    """Gather where it is a slice (of one index, or of indices a constant distance apart), and of rows of a matrix."""
    x = ctx.operand(node, 0)
    axis = normalized_axis(node.attributes.get_int("axis", 0), len(x.shape))
    value = node.inputs[1]
    array = ctx.literal(value)
    if array is None and axis == 0 and x.op == "input" and len(x.shape) == 2 and ctx.b.sizes.norm(x.shape[0]).known:
        return ctx.b.gather(x, ctx.operand(node, 1))
    if array is None or array.ndim > 1 or array.size == 0:
        raise Unsupported(codes.CONSTANT, "constant indices of Gather", f"{value.name if value else 'none'}")
    indices = [int(i) for i in array.reshape(-1)]
    step = indices[1] - indices[0] if len(indices) > 1 else 1
    if step == 0 or any(b - a != step for a, b in pairwise(indices)):
        raise Unsupported(codes.ATTRIBUTE, "indices of Gather that make a slice", str(indices[:8]))
    if (indices[0] < 0) != (indices[-1] < 0):
        raise Unsupported(codes.ATTRIBUTE, "indices of Gather of one sign", str(indices[:8]))
    end = indices[-1] + (1 if step > 0 else -1)
    if indices[-1] == -1 and step > 0:
        end = _END
    elif indices[-1] == 0 and step < 0:
        end = -_END
    const = ctx.b.shapes.const
    result = _window(ctx, x, (axis,), const((indices[0],)), const((end,)), const((step,)))
    return result if array.ndim else ctx.b.squeeze(result, (axis,))


def _tile(ctx: Context, node: ir.Node) -> Val:
    """The whole of each axis, so and so often."""
    x, repeats = ctx.operand(node, 0), ctx.ints(node, "repeats")
    if repeats is None or len(repeats) != len(x.shape):
        raise Unsupported(codes.CONSTANT, "repeats of Tile, one per axis", str(repeats))
    return _repeated(ctx, x, repeats, each=False)


def _resize(ctx: Context, node: ir.Node) -> Val:
    """Each pixel repeated; of images that are kept with their channels last, there."""
    b, x, factors = ctx.b, ctx.operand(node, 0), repeats_of(node)
    if factors is None:
        raise Unsupported(codes.ATTRIBUTE, f"a {node.op_type} that repeats each pixel as often", "another")
    if not ctx.region.channels_last or len(factors) < IMAGE:
        return _repeated(ctx, x, factors, each=True)
    last = to_last(len(factors))
    made = _repeated(ctx, b.transpose(x, last), [factors[p] for p in last], each=True)
    return b.transpose(made, to_first(len(factors)))


def _repeated(ctx: Context, x: Val, factors: Sequence[int], *, each: bool) -> Val:
    """Each element of an axis so often, or all of it: a new axis behind it, or in front, broadcast, and the two
    merged."""
    b = ctx.b
    apart: list[int] = []
    repeated: list[int] = []
    for axis, factor in enumerate(factors):
        size, one, often = b.shapes.emit("take", (x.dims,), (axis,)), b.shapes.const((1,)), b.shapes.const((factor,))
        is_one = b.sizes.norm(x.shape[axis]) == ONE
        if factor == 1 or is_one:
            apart.append(size)
            repeated.append(often if is_one else size)
        else:
            apart += (size, one) if each else (one, size)
            repeated += (size, often) if each else (often, size)
    whole = b.expand(b.reshape(x, b.shapes.emit("concat", apart)), b.shapes.emit("concat", repeated))
    return b.reshape(whole, b.shapes.emit("mul", (x.dims, b.shapes.const(tuple(factors)))))


RULES: dict[str, Rule] = {
    "Resize": _resize,
    "Upsample": _resize,
    "Slice": _slice,
    "Split": _split,
    "Concat": _concat,
    "Gather": _gather,
    "Tile": _tile,
}
