"""Reductions, softmax and norms as primitives over the last axis."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from fusion_cli.codes import plan as codes
from fusion_cli.errors import Unsupported
from fusion_cli.operators.dtypes import FLOATS
from fusion_cli.operators.image_axes import IMAGE, to_first
from fusion_cli.operators.versions import attribute, has_weights_by_group, is_over_later_axes
from fusion_cli.plan.context import Context, normalized_axis, read_besides, trailing
from fusion_cli.plan.graph import Val
from fusion_cli.plan.lower_elementwise import Rule
from fusion_cli.plan.lower_groups import norm_of_groups
from fusion_cli.sizes.algebra import ONE

_BEFORE = {"ReduceSumSquare": "square", "ReduceL2": "square", "ReduceL1": "Abs"}
_REDUCE = {
    "ReduceMean": "reduce_mean",
    "ReduceMax": "reduce_max",
    "ReduceMin": "reduce_min",
    "ReduceProd": "reduce_prod",
}


def _reduce(ctx: Context, node: ir.Node) -> Val:
    """Over trailing axes, or over all positions of an image whose channels are last."""
    b, x = ctx.b, ctx.operand(node, 0)
    rank = len(x.shape)
    axes = ctx.ints(node, "axes")
    if not axes and node.attributes.get_int("noop_with_empty_axes", 0) != 0:
        return x
    axes = axes or tuple(range(rank))
    # Axes of size 1 change nothing, wherever they are.
    real = sorted({normalized_axis(a, rank) for a in axes if b.sizes.norm(x.shape[a]) != ONE})
    is_turned = rank >= IMAGE and real == list(range(1, rank - 1))
    first = 2 if is_turned else trailing(real, rank) if real else rank
    dims = b.shapes.emit("reduce", (x.dims,), (attribute(node, "keepdims"), *axes))
    flat = b.flatten_from(b.transpose(x, to_first(rank)) if is_turned else x, first)
    before = _BEFORE.get(node.op_type)
    if before == "square":
        flat = b.cast(flat, "float32") if x.dtype in FLOATS and is_turned else flat
        flat = b.apply("Mul", flat, flat)
    elif before:
        flat = b.apply(before, flat)
    if node.op_type == "ReduceLogSumExp":
        result = _log_sum_exp(ctx, flat)
    else:
        result = b.reduce(_REDUCE.get(node.op_type, "reduce_sum"), flat)
    if node.op_type in ("ReduceL2", "ReduceLogSum"):
        result = b.apply("Sqrt" if node.op_type == "ReduceL2" else "Log", result)
    return b.reshape(b.cast(result, x.dtype), dims)


def _log_sum_exp(ctx: Context, x: Val) -> Val:
    """Of rows without infinities their largest element is taken out; of others nothing, for inf - inf is NaN."""
    b = ctx.b
    highest = b.reduce("reduce_max", x)
    shift = b.apply("Where", b.apply("IsInf", highest), 0.0, highest)
    total = b.reduce("reduce_sum", b.apply("Exp", b.apply("Sub", x, shift)))
    return b.apply("Add", b.apply("Log", total), shift)


def _softmax(ctx: Context, node: ir.Node) -> Val:
    """Softmax and LogSoftmax over one axis, which changes places with the last; before opset 13 over all axes from the
    given one on."""
    b, x = ctx.b, ctx.operand(node, 0)
    rank = len(x.shape)
    axis = normalized_axis(attribute(node, "axis"), rank)
    if axis != rank - 1 and not is_over_later_axes(node):
        swapped = (*range(axis), rank - 1, *range(axis + 1, rank - 1), axis)
        return b.transpose(_softmax_of_rows(ctx, node, b.transpose(x, swapped)), swapped)
    return b.reshape(_softmax_of_rows(ctx, node, b.flatten_from(x, axis) if axis < rank - 1 else x), x.dims)


def _softmax_of_rows(ctx: Context, node: ir.Node, x: Val) -> Val:
    b = ctx.b
    if node.op_type == "LogSoftmax":
        centred = b.apply("Sub", x, b.reduce("reduce_max", x))
        return b.apply("Sub", centred, b.apply("Log", b.reduce("reduce_sum", b.apply("Exp", centred))))
    return b.softmax(x)


def _normalize(ctx: Context, x: Val, epsilon: float) -> tuple[Val, Val, Val]:
    """(x - mean) / sqrt(variance + epsilon) over the last axis; also the mean and the inverse deviation."""
    b = ctx.b
    mean = b.reduce("reduce_mean", x)
    centred = b.apply("Sub", x, mean)
    variance = b.reduce("reduce_mean", b.apply("Mul", centred, centred))
    inverse = b.apply("Reciprocal", b.apply("Sqrt", b.apply("Add", variance, epsilon)))
    return b.apply("Mul", centred, inverse), mean, inverse


def no_statistics(node: ir.Node, made: Sequence[int] = (0,)) -> None:
    """Refuse a node of which another output is used than those that are made: a mean, a deviation."""
    value = read_besides(node, made)
    if value is not None:
        raise Unsupported(codes.UNUSED_OUTPUT, f"statistics of {node.op_type} that nothing reads", f"{value.name} read")


def _float32(ctx: Context, x: Val) -> Val:
    if x.dtype not in FLOATS:
        raise Unsupported(codes.DTYPE, "a floating-point tensor", x.dtype)
    return x


def _layer_norm(ctx: Context, node: ir.Node) -> Val:
    """LayerNormalization and RMSNormalization over any trailing axes; scale and bias broadcast to those."""
    no_statistics(node)
    x, scale, bias = ctx.operand(node, 0), ctx.optional(node, 1), ctx.optional(node, 2)
    epsilon, axis = attribute(node, "epsilon"), attribute(node, "axis")
    return norm(ctx, x, scale, bias, epsilon, centred=node.op_type == "LayerNormalization", axis=axis)


def norm(
    ctx: Context, x: Val, scale: Val | None, bias: Val | None, epsilon: float, *, centred: bool, axis: int = -1
) -> Val:
    """A layer norm (RMS norm if not `centred`) over the axes from `axis` on, scaled and shifted."""
    b, x = ctx.b, _float32(ctx, x)
    axis = normalized_axis(axis, len(x.shape))
    flat = b.flatten_from(x, axis) if axis < len(x.shape) - 1 else x
    if centred:
        result, *_ = _normalize(ctx, flat, epsilon)
    else:
        mean = b.reduce("reduce_mean", b.apply("Mul", flat, flat))
        result = b.apply("Mul", flat, b.apply("Reciprocal", b.apply("Sqrt", b.apply("Add", mean, epsilon))))
    for weight, op in ((scale, "Mul"), (bias, "Add")):
        if weight is not None:
            result = b.apply(op, result, _trailing_weight(ctx, weight, x, axis), dtype=x.dtype)
    return b.reshape(result, x.dims)


def _trailing_weight(ctx: Context, weight: Val, x: Val, axis: int) -> Val:
    """A weight of the normalised axes, made to fit them flattened into one."""
    if axis == len(x.shape) - 1:
        return weight
    if not ctx.b.sizes.same_shape(weight.shape, x.shape[axis:]):
        raise Unsupported(codes.UNPROVEN_SHAPE, "a weight of the normalised axes", str(list(map(str, weight.shape))))
    return ctx.b.flatten_from(weight, 0)


def _channels(ctx: Context, weight: Val, x: Val) -> Val:
    """A [C] vector so that it broadcasts over x [N, C, ...]."""
    return ctx.b.unsqueeze(weight, tuple(range(1, len(x.shape) - 1)))


def _batch_norm(ctx: Context, node: ir.Node) -> Val:
    if node.attributes.get_int("training_mode", 0) or not node.attributes.get_int("spatial", 1):
        raise Unsupported(codes.ATTRIBUTE, "BatchNormalization at inference", "training_mode or spatial=0")
    no_statistics(node)
    b, x = ctx.b, ctx.operand(node, 0)
    scale, bias, mean, variance = (_channels(ctx, ctx.operand(node, i), x) for i in range(1, 5))
    deviation = b.apply("Sqrt", b.apply("Add", variance, attribute(node, "epsilon")))
    centred = b.apply("Sub", x, mean)
    return b.apply("Add", b.apply("Mul", centred, b.apply("Div", scale, deviation)), bias)


def _group_norm(ctx: Context, node: ir.Node) -> Val:
    """InstanceNormalization (a group per channel) and GroupNormalization, as a norm of rows [N, groups, rest]."""
    b, x = ctx.b, _float32(ctx, ctx.operand(node, 0))
    scale, bias = ctx.operand(node, 1), ctx.operand(node, 2)
    instance = node.op_type == "InstanceNormalization"
    if ctx.region.channels_last and (found := norm_of_groups(ctx, node, x)) is not None:
        return found
    head = b.shapes.emit("slice", (x.dims,), (0, 2 if instance else 1, 1))
    groups = () if instance else (b.shapes.const((attribute(node, "num_groups"),)),)
    rows = b.shapes.emit("reshape", (x.dims, b.shapes.emit("concat", (head, *groups, b.shapes.const((-1,))))), (0,))
    normal, *_ = _normalize(ctx, b.reshape(x, rows), attribute(node, "epsilon"))
    if instance:
        scaled = b.apply("Mul", normal, b.unsqueeze(scale, (1,)))
        return b.reshape(b.apply("Add", scaled, b.unsqueeze(bias, (1,))), x.dims)
    if has_weights_by_group(node):
        raise Unsupported(codes.OPSET, "GroupNormalization of opset 21 (weights by channel)", "an earlier one")
    scaled = b.apply("Mul", b.reshape(normal, x.dims), _channels(ctx, scale, x))
    return b.apply("Add", scaled, _channels(ctx, bias, x))


def _global_pool(ctx: Context, node: ir.Node) -> Val:
    b, x = ctx.b, ctx.operand(node, 0)
    op = "reduce_max" if node.op_type == "GlobalMaxPool" else "reduce_mean"
    result = b.reduce(op, b.flatten_from(x, 2))
    return b.reshape(result, b.shapes.emit("reduce", (x.dims,), (1, *range(2, len(x.shape)))))


def _lp_norm(ctx: Context, node: ir.Node) -> Val:
    b, x = ctx.b, ctx.operand(node, 0)
    trailing((attribute(node, "axis"),), len(x.shape))
    if attribute(node, "p") == 1:
        total = b.reduce("reduce_sum", b.apply("Abs", x))
    else:
        total = b.apply("Sqrt", b.reduce("reduce_sum", b.apply("Mul", x, x)))
    return b.apply("Div", x, total)


RULES: dict[str, Rule] = {
    **dict.fromkeys(
        ("ReduceLogSum", "ReduceLogSumExp", "ReduceSum", *_BEFORE, *_REDUCE),
        _reduce,
    ),
    **dict.fromkeys(("Softmax", "LogSoftmax"), _softmax),
    **dict.fromkeys(("LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization"), _layer_norm),
    **dict.fromkeys(("InstanceNormalization", "GroupNormalization"), _group_norm),
    **dict.fromkeys(("GlobalAveragePool", "GlobalMaxPool"), _global_pool),
    "BatchNormalization": _batch_norm,
    "LpNormalization": _lp_norm,
}
