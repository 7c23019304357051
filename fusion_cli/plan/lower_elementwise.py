"""Elementwise ONNX operators as primitives; activations become the arithmetic they stand for."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import onnx_ir as ir

from fusion_cli.codes import plan as codes
from fusion_cli.codes.advice import FOR_INFERENCE
from fusion_cli.errors import Unsupported
from fusion_cli.plan.context import Context, opset_version
from fusion_cli.plan.graph import FLOATS, Val
from fusion_cli.plan.lowering import Builder, dtype_name

Rule = Callable[[Context, ir.Node], Val | Sequence[Val | None]]
"""What a node's outputs are: of a node with several, those from the first on; None for one that is not computed."""

_UNARY = (
    "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Cos", "Cosh", "Erf", "Exp", "Floor", "IsNaN",
    "Log", "Neg", "Not", "Reciprocal", "Relu", "Round", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign",
    "Sqrt", "Tan", "Tanh",
)  # fmt: skip
_BINARY = (
    "Add", "And", "Div", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Mul", "Or", "Sub", "Xor",
)  # fmt: skip
_BOOL_RESULT = {"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "IsNaN", "And", "Or", "Xor", "Not"}


def _plain(ctx: Context, node: ir.Node) -> Val:
    if opset_version(node) < 7 and len(node.inputs) > 1:
        raise Unsupported(codes.OPSET, "opset 7 or later", f"{node.op_type} of opset {opset_version(node)}")
    args = ctx.operands(node)
    return ctx.b.apply(node.op_type, *args, dtype="bool" if node.op_type in _BOOL_RESULT else args[0].dtype)


def _identity(ctx: Context, node: ir.Node) -> Val:
    return ctx.operand(node, 0)


def _dropout(ctx: Context, node: ir.Node) -> Val:
    mode = node.inputs[2] if len(node.inputs) > 2 else None
    training = ctx.literal(mode)
    if mode is not None and (training is None or bool(training)):
        raise Unsupported(codes.ATTRIBUTE, "Dropout at inference", "training_mode", FOR_INFERENCE)
    return ctx.operand(node, 0)


def _cast(ctx: Context, node: ir.Node) -> Val:
    if node.op_type == "CastLike":
        return ctx.b.cast(ctx.operand(node, 0), ctx.operand(node, 1).dtype)
    return ctx.b.cast(ctx.operand(node, 0), dtype_name(ir.DataType(node.attributes.get_int("to", 0))))


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
    if node.attributes.get_int("fmod", 0) or args[0].dtype in FLOATS:
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
    positive, negative = (node.attributes.get_int(f"detect_{s}", 1) for s in ("positive", "negative"))
    if positive and negative:
        return ctx.b.compare("IsInf", x)
    return ctx.b.compare("Equal", x, math.inf if positive else -math.inf) if positive or negative else _never(ctx, x)


def _never(ctx: Context, x: Val) -> Val:
    return ctx.b.compare("And", ctx.b.compare("IsNaN", x), ctx.b.const(False, "bool"))


_LARGEST = {"float32": 3.4028234663852886e38, "float16": 65504.0, "bfloat16": 3.3895313892515355e38}


def _clip(ctx: Context, node: ir.Node) -> Val:
    """A bound that is not given is the largest finite number, so that infinities are clipped too."""
    result = ctx.operand(node, 0)
    for index, name, op, sign in ((1, "min", "Max", -1), (2, "max", "Min", 1)):
        old = opset_version(node) < 11
        bound = node.attributes.get_float(name) if old else ctx.optional(node, index)
        if bound is None and result.dtype in _LARGEST:
            bound = sign * _LARGEST[result.dtype]
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
    return gelu(ctx.b, ctx.operand(node, 0), node.attributes.get_string("approximate", "none"))


def swish(b: Builder, x: Val, alpha: float) -> Val:
    """x sigmoid(alpha x)."""
    return b.apply("Mul", x, b.apply("Sigmoid", x if alpha == 1.0 else b.apply("Mul", x, alpha)))


def _swish(ctx: Context, node: ir.Node) -> Val:
    return swish(ctx.b, ctx.operand(node, 0), node.attributes.get_float("alpha", 1.0))


def _hard_sigmoid_of(ctx: Context, x: Val, alpha: float, beta: float) -> Val:
    line = ctx.b.apply("Add", ctx.b.apply("Mul", x, alpha), beta)
    return ctx.b.apply("Min", ctx.b.apply("Max", line, 0.0), 1.0)


def _hard_sigmoid(ctx: Context, node: ir.Node) -> Val:
    get = node.attributes.get_float
    return _hard_sigmoid_of(ctx, ctx.operand(node, 0), get("alpha", 0.2), get("beta", 0.5))


def _hard_swish(ctx: Context, node: ir.Node) -> Val:
    x = ctx.operand(node, 0)
    return ctx.b.apply("Mul", x, _hard_sigmoid_of(ctx, x, 1 / 6, 0.5))


def _mish(ctx: Context, node: ir.Node) -> Val:
    x = ctx.operand(node, 0)
    return ctx.b.apply("Mul", x, ctx.b.apply("Tanh", ctx.b.apply("Softplus", x)))


def _negative_branch(ctx: Context, x: Val, negative: Val) -> Val:
    return ctx.b.where(ctx.b.compare("Less", x, 0.0), negative, x)


def _leaky(ctx: Context, node: ir.Node) -> Val:
    x = ctx.operand(node, 0)
    slope: Val | float = ctx.operand(node, 1) if node.op_type == "PRelu" else node.attributes.get_float("alpha", 0.01)
    return _negative_branch(ctx, x, ctx.b.apply("Mul", x, slope))


def _exponential(ctx: Context, node: ir.Node) -> Val:
    """Elu, Celu and Selu: gamma * alpha * (exp(x / c) - 1) below zero, gamma * x above."""
    b, x, get = ctx.b, ctx.operand(node, 0), node.attributes.get_float
    selu = node.op_type == "Selu"
    alpha = get("alpha", 1.67326319217681884765625 if selu else 1.0)
    gamma = get("gamma", 1.05070102214813232421875) if selu else 1.0
    inner = b.apply("Div", x, alpha) if node.op_type == "Celu" else x
    below = b.apply("Mul", b.apply("Sub", b.apply("Exp", inner), 1.0), alpha)
    result = _negative_branch(ctx, x, below)
    return b.apply("Mul", result, gamma) if selu else result


def _thresholded(ctx: Context, node: ir.Node) -> Val:
    x = ctx.operand(node, 0)
    above = ctx.b.compare("Greater", x, node.attributes.get_float("alpha", 1.0))
    return ctx.b.where(above, x, ctx.b.const(0.0, x.dtype))


RULES: dict[str, Rule] = {
    **dict.fromkeys((*_UNARY, *_BINARY), _plain),
    **dict.fromkeys(("Sum", "Mean", "Min", "Max"), _variadic),
    **dict.fromkeys(("Elu", "Celu", "Selu"), _exponential),
    **dict.fromkeys(("LeakyRelu", "PRelu"), _leaky),
    **dict.fromkeys(("Cast", "CastLike"), _cast),
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
