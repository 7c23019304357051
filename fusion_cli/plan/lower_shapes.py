"""Shape nodes of ONNX as operations of the host's shape program."""

from __future__ import annotations

import onnx_ir as ir

from fusion_cli.codes import plan as codes
from fusion_cli.errors import Unsupported
from fusion_cli.plan.context import Context, HostRule


def _arg(ctx: Context, node: ir.Node, index: int) -> int:
    value = node.inputs[index]
    if value is None:
        raise Unsupported(codes.SHAPE_PROGRAM, f"input {index} of {node.op_type}", "none")
    return ctx.shape_value(value)


def _shape(ctx: Context, node: ir.Node) -> int:
    value = node.inputs[0]
    assert value is not None
    dims = ctx.tensor(value).dims
    rank = len(ctx.b.shapes.values[dims])
    start, end = node.attributes.get_int("start", 0), node.attributes.get_int("end", rank)
    return dims if (start, end) == (0, rank) else ctx.b.shapes.emit("slice", (dims,), (start, end, 1))


def _size(ctx: Context, node: ir.Node) -> int:
    return ctx.b.shapes.emit("prod", (_shape(ctx, node),))


def _gather(ctx: Context, node: ir.Node) -> int:
    return ctx.b.shapes.emit("take", (_arg(ctx, node, 0),), ctx.known(_arg(ctx, node, 1), "indices of Gather"))


def _slice(ctx: Context, node: ir.Node) -> int:
    starts, ends, steps = (ctx.ints(node, name) for name in ("starts", "ends", "steps"))
    if not starts or not ends:
        raise Unsupported(codes.SHAPE_PROGRAM, "starts and ends of Slice", "none")
    return ctx.b.shapes.emit("slice", (_arg(ctx, node, 0),), (starts[0], ends[0], steps[0] if steps else 1))


def _concat(ctx: Context, node: ir.Node) -> int:
    return ctx.b.shapes.emit("concat", [_arg(ctx, node, i) for i in range(len(node.inputs))])


def _same_elements(ctx: Context, node: ir.Node) -> int:
    if node.op_type == "Cast" and node.attributes.get_int("to") not in (6, 7, 9):
        raise Unsupported(codes.SHAPE_PROGRAM, "integer shape arithmetic", "a Cast to another type")
    return _arg(ctx, node, 0)


def _elementwise(ctx: Context, node: ir.Node) -> int:
    args = [_arg(ctx, node, i) for i in range(len(node.inputs))]
    lengths = {len(ctx.b.shapes.values[a]) for a in args} - {1}
    if len(lengths) > 1:
        raise Unsupported(codes.SHAPE_PROGRAM, "vectors of one length", f"lengths {sorted(lengths)}")
    return ctx.b.shapes.emit(node.op_type.lower(), args)


def _filled(ctx: Context, node: ir.Node) -> int:
    tensor = node.attributes.get_tensor("value")
    value = 0 if tensor is None else int(tensor.numpy().reshape(-1)[0])
    count = _arg(ctx, node, 0)
    if not ctx.b.shapes.values[count]:
        return ctx.b.shapes.const((value,))
    if len(ctx.b.shapes.values[count]) > 1 or ctx.b.sizes.norm(ctx.b.shapes.values[count][0]).known is None:
        raise Unsupported(codes.SHAPE_PROGRAM, "a vector of fixed length", "ConstantOfShape of a dynamic length")
    return ctx.b.shapes.emit("fill", (count,), (value,))


def _product(ctx: Context, node: ir.Node) -> int:
    return ctx.b.shapes.emit("prod", (_arg(ctx, node, 0),))


HOST_RULES: dict[str, HostRule] = {
    "Shape": _shape,
    "Size": _size,
    "Gather": _gather,
    "Slice": _slice,
    "Concat": _concat,
    **dict.fromkeys(("Identity", "Cast", "Unsqueeze", "Squeeze", "Reshape"), _same_elements),
    **dict.fromkeys(("Add", "Sub", "Mul", "Div", "Mod", "Min", "Max", "Equal", "Where"), _elementwise),
    "ConstantOfShape": _filled,
    "ReduceProd": _product,
}
