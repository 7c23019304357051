"""Operators that only rename, reorder or repeat elements."""

from __future__ import annotations

import onnx_ir as ir

from fusion_cli.codes import plan as codes
from fusion_cli.errors import Unsupported
from fusion_cli.plan.context import Context
from fusion_cli.plan.graph import Val
from fusion_cli.plan.lower_elementwise import Rule


def _shape_operand(ctx: Context, node: ir.Node) -> int:
    shape = ctx.vector(node, "shape")
    if shape is None:
        raise Unsupported(codes.OPSET, f"the shape of {node.op_type}", "none")
    return shape


def _reshape(ctx: Context, node: ir.Node) -> Val:
    b, x = ctx.b, ctx.operand(node, 0)
    target = _shape_operand(ctx, node)
    dims = b.shapes.emit("reshape", (x.dims, target), (node.attributes.get_int("allowzero", 0),))
    return b.reshape(x, dims)


def _transpose(ctx: Context, node: ir.Node) -> Val:
    x = ctx.operand(node, 0)
    perm = node.attributes.get_ints("perm") or tuple(reversed(range(len(x.shape))))
    return ctx.b.transpose(x, perm)


def _with_axes(ctx: Context, node: ir.Node) -> Val:
    axes = ctx.ints(node, "axes")
    if axes is None:
        raise Unsupported(codes.ATTRIBUTE, f"the axes of {node.op_type}", "none")
    change = ctx.b.unsqueeze if node.op_type == "Unsqueeze" else ctx.b.squeeze
    return change(ctx.operand(node, 0), axes)


def _flatten(ctx: Context, node: ir.Node) -> Val:
    x = ctx.operand(node, 0)
    return ctx.b.reshape(x, ctx.b.shapes.emit("flatten", (x.dims,), (node.attributes.get_int("axis", 1),)))


def _expand(ctx: Context, node: ir.Node) -> Val:
    return ctx.b.expand(ctx.operand(node, 0), _shape_operand(ctx, node))


RULES: dict[str, Rule] = {
    "Reshape": _reshape,
    "Transpose": _transpose,
    "Unsqueeze": _with_axes,
    "Squeeze": _with_axes,
    "Flatten": _flatten,
    "Expand": _expand,
}
