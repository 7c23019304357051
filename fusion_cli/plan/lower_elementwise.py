"""Elementwise ONNX operators as primitives; activations become the arithmetic they stand for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx_ir as ir

from fusion_cli.codes import plan as codes
from fusion_cli.codes.advice import FOR_INFERENCE
from fusion_cli.errors import Unsupported
from fusion_cli.operators.dtypes import DTYPES, FLOATS
from fusion_cli.operators.elementwise import ELEMENTWISE
from fusion_cli.operators.registry import OPERATORS
from fusion_cli.operators.versions import attribute, parameters, training_mode
from fusion_cli.plan.context import Context
from fusion_cli.plan.graph import Val
from fusion_cli.plan.lowering import dtype_name

Rule = Callable[[Context, ir.Node], Val | Sequence[Val | None]]
"""What a node's outputs are: of a node with several, those from the first on; None for one that is not computed."""


def _plain(ctx: Context, node: ir.Node) -> Val:
    return ctx.b.apply(node.op_type, *ctx.operands(node))


def composite(ctx: Context, node: ir.Node) -> Val:
    """An operator that is made of others."""
    operator = OPERATORS[node.domain, node.op_type]
    assert operator.made_of is not None
    result: Val = operator.made_of(ctx.b.apply, *ctx.operands(node), **parameters(node))
    return result


def _identity(ctx: Context, node: ir.Node) -> Val:
    return ctx.operand(node, 0)


def _dropout(ctx: Context, node: ir.Node) -> Val:
    mode = training_mode(node)
    training = ctx.literal(mode)
    if mode is not None and (training is None or bool(training)):
        raise Unsupported(codes.ATTRIBUTE, "Dropout at inference", "training_mode", FOR_INFERENCE)
    return ctx.operand(node, 0)


def _cast(ctx: Context, node: ir.Node) -> Val:
    return ctx.b.cast(ctx.operand(node, 0), dtype_name(ir.DataType(attribute(node, "to"))))


def _pow(ctx: Context, node: ir.Node) -> Val:
    base, exponent = ctx.operands(node)
    if exponent.op == "const" and exponent.value == 2 and len(exponent.shape) <= len(base.shape):
        return ctx.b.apply("Mul", base, base)
    return ctx.b.apply("Pow", base, ctx.b.cast(exponent, base.dtype) if base.dtype in FLOATS else exponent)


def _mod(ctx: Context, node: ir.Node) -> Val:
    args = ctx.operands(node)
    if attribute(node, "fmod") or args[0].dtype in FLOATS:
        raise Unsupported(codes.ATTRIBUTE, "Mod of integers", "fmod")
    return ctx.b.apply("Mod", *args)


def _clip(ctx: Context, node: ir.Node) -> Val:
    """A bound that is not given is the largest finite number, so that infinities are clipped too."""
    result = ctx.operand(node, 0)
    for index, name, op, sign in ((1, "min", "Max", -1), (2, "max", "Min", 1)):
        bound = node.attributes.get_float(name) if name in node.attributes else ctx.optional(node, index)
        if bound is None and result.dtype in FLOATS:
            bound = sign * DTYPES[result.dtype].largest
        result = result if bound is None else ctx.b.apply(op, result, bound)
    return result


RULES: dict[str, Rule] = {
    **{o.name: composite if o.made_of else _plain for o in ELEMENTWISE if not o.domain},
    "Cast": _cast,
    "Clip": _clip,
    "Dropout": _dropout,
    "Identity": _identity,
    "Mod": _mod,
    "Pow": _pow,
}
