"""Elementwise ONNX operators as primitives; activations become the arithmetic they stand for."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import onnx_ir as ir

from fusion_cli.codes import plan as codes
from fusion_cli.errors import Unsupported
from fusion_cli.explain.advice import FOR_INFERENCE
from fusion_cli.operators.dtypes import DTYPES, FLOATS
from fusion_cli.operators.elementwise import ELEMENTWISE
from fusion_cli.operators.versions import attribute, training_mode
from fusion_cli.plan.context import Context
from fusion_cli.plan.graph import Val
from fusion_cli.plan.lowering import Builder, dtype_name

Rule = Callable[[Context, ir.Node], Val | Sequence[Val | None]]
"""What a node's outputs are: of a node with several, those from the first on; None for one that is not computed."""


def _plain(ctx: Context, node: ir.Node) -> Val:
    return ctx.b.apply(node.op_type, *ctx.operands(node))


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


def _where(ctx: Context, node: ir.Node) -> Val:
    cond, a, b = ctx.operands(node)
    return ctx.b.where(cond, a, b)


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


def _variadic(ctx: Context, node: ir.Node) -> Val:
    op = {"Sum": "Add", "Mean": "Add"}.get(node.op_type, node.op_type)
    first, *rest = ctx.operands(node)
    result = first
    for arg in rest:
        result = ctx.b.apply(op, result, arg)
    return ctx.b.apply("Mul", result, 1.0 / len(node.inputs)) if node.op_type == "Mean" else result


def _is_inf(ctx: Context, node: ir.Node) -> Val:
    x = ctx.operand(node, 0)
    positive, negative = (attribute(node, f"detect_{s}") for s in ("positive", "negative"))
    if positive and negative:
        return ctx.b.apply("IsInf", x)
    return ctx.b.apply("Equal", x, math.inf if positive else -math.inf) if positive or negative else _never(ctx, x)


def _never(ctx: Context, x: Val) -> Val:
    return ctx.b.apply("And", ctx.b.apply("IsNaN", x), ctx.b.const(False, "bool"))


def _clip(ctx: Context, node: ir.Node) -> Val:
    """A bound that is not given is the largest finite number, so that infinities are clipped too."""
    result = ctx.operand(node, 0)
    for index, name, op, sign in ((1, "min", "Max", -1), (2, "max", "Min", 1)):
        bound = node.attributes.get_float(name) if name in node.attributes else ctx.optional(node, index)
        if bound is None and result.dtype in FLOATS:
            bound = sign * DTYPES[result.dtype].largest
        result = result if bound is None else ctx.b.apply(op, result, bound)
    return result


def gelu(b: Builder, x: Val, approximate: str = "none") -> Val:
    """x times the normal distribution function of x, exact or ("tanh") by its usual approximation."""
    if approximate == "tanh":
        cubic = b.apply("Mul", b.apply("Mul", x, x), x)
        inner = b.apply("Mul", b.apply("Add", x, b.apply("Mul", cubic, 0.044715)), math.sqrt(2 / math.pi))
        gate = b.apply("Tanh", inner)
    else:
        gate = b.apply("Erf", b.apply("Mul", x, math.sqrt(0.5)))
    return b.apply("Mul", b.apply("Mul", x, 0.5), b.apply("Add", gate, 1.0))


def _gelu(ctx: Context, node: ir.Node) -> Val:
    return gelu(ctx.b, ctx.operand(node, 0), attribute(node, "approximate"))


def swish(b: Builder, x: Val, alpha: float) -> Val:
    """x sigmoid(alpha x)."""
    return b.apply("Mul", x, b.apply("Sigmoid", x if alpha == 1.0 else b.apply("Mul", x, alpha)))


def _swish(ctx: Context, node: ir.Node) -> Val:
    return swish(ctx.b, ctx.operand(node, 0), attribute(node, "alpha"))


def _hard_sigmoid_of(ctx: Context, x: Val, alpha: float, beta: float) -> Val:
    line = ctx.b.apply("Add", ctx.b.apply("Mul", x, alpha), beta)
    return ctx.b.apply("Min", ctx.b.apply("Max", line, 0.0), 1.0)


def _hard_sigmoid(ctx: Context, node: ir.Node) -> Val:
    return _hard_sigmoid_of(ctx, ctx.operand(node, 0), attribute(node, "alpha"), attribute(node, "beta"))


def _hard_swish(ctx: Context, node: ir.Node) -> Val:
    x = ctx.operand(node, 0)
    return ctx.b.apply("Mul", x, _hard_sigmoid_of(ctx, x, 1 / 6, 0.5))


def _mish(ctx: Context, node: ir.Node) -> Val:
    x = ctx.operand(node, 0)
    return ctx.b.apply("Mul", x, ctx.b.apply("Tanh", ctx.b.apply("Softplus", x)))


def _negative_branch(ctx: Context, x: Val, negative: Val) -> Val:
    return ctx.b.where(ctx.b.apply("Less", x, 0.0), negative, x)


def _leaky(ctx: Context, node: ir.Node) -> Val:
    x = ctx.operand(node, 0)
    slope: Val | float = ctx.operand(node, 1) if node.op_type == "PRelu" else attribute(node, "alpha")
    return _negative_branch(ctx, x, ctx.b.apply("Mul", x, slope))


def _exponential(ctx: Context, node: ir.Node) -> Val:
    """Elu, Celu and Selu: gamma * alpha * (exp(x / c) - 1) below zero, gamma * x above."""
    b, x, alpha = ctx.b, ctx.operand(node, 0), attribute(node, "alpha")
    inner = b.apply("Div", x, alpha) if node.op_type == "Celu" else x
    below = b.apply("Mul", b.apply("Sub", b.apply("Exp", inner), 1.0), alpha)
    result = _negative_branch(ctx, x, below)
    return b.apply("Mul", result, attribute(node, "gamma")) if node.op_type == "Selu" else result


def _thresholded(ctx: Context, node: ir.Node) -> Val:
    x = ctx.operand(node, 0)
    above = ctx.b.apply("Greater", x, attribute(node, "alpha"))
    return ctx.b.where(above, x, ctx.b.const(0.0, x.dtype))


RULES: dict[str, Rule] = {
    **dict.fromkeys((o.name for o in ELEMENTWISE if o.cpp), _plain),
    **dict.fromkeys(("Sum", "Mean", "Min", "Max"), _variadic),
    **dict.fromkeys(("Elu", "Celu", "Selu"), _exponential),
    **dict.fromkeys(("LeakyRelu", "PRelu"), _leaky),
    "Cast": _cast,
    "Identity": _identity,
    "Dropout": _dropout,
    "Where": _where,
    "Pow": _pow,
    "Mod": _mod,
    "IsInf": _is_inf,
    "Clip": _clip,
    "Gelu": _gelu,
    "Swish": _swish,
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": _hard_swish,
    "Mish": _mish,
    "ThresholdedRelu": _thresholded,
}
