"""The elementwise operators. What they mean is said for float64; their functions in C++ are in
`templates/include/scalar.h`, whose versions for g++ vectorise and whose versions for nvcc use the device's own."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from fusion_cli.operators.operator import Operator

Array = npt.NDArray[Any]

_erf = np.vectorize(math.erf, otypes=[np.float64])


def _sigmoid(x: Array) -> Array:
    return np.asarray(np.exp(-np.logaddexp(0.0, -x)))


def _softplus(x: Array) -> Array:
    return np.asarray(np.logaddexp(0.0, x))


def _gelu(x: Array, approximate: str = "none") -> Array:
    if approximate == "tanh":
        gate = np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3))
    else:
        gate = _erf(x / math.sqrt(2.0))
    return np.asarray(0.5 * x * (1.0 + gate))


def _swish(x: Array, alpha: float = 1.0) -> Array:
    return x * _sigmoid(alpha * x)


def _hard_sigmoid(x: Array, alpha: float = 0.2, beta: float = 0.5) -> Array:
    return np.asarray(np.clip(alpha * x + beta, 0.0, 1.0))


def _clip(x: Array, low: Array | None = None, high: Array | None = None, **bounds: float) -> Array:
    low = np.asarray(bounds.get("min", -math.inf)) if low is None else low
    return np.asarray(np.clip(x, low, np.asarray(bounds.get("max", math.inf)) if high is None else high))


def _leaky(x: Array, alpha: float | Array = 0.01) -> Array:
    return np.where(x < 0, alpha * x, x)


def _elu(x: Array, alpha: float = 1.0, scale: float = 1.0) -> Array:
    """alpha (exp(x / scale) - 1) below zero."""
    return np.where(x < 0, alpha * np.expm1(np.minimum(x, 0) / scale), x)


def _selu(x: Array, alpha: float = 1.67326319217681884765625, gamma: float = 1.05070102214813232421875) -> Array:
    return gamma * _elu(x, alpha)


def _is_inf(x: Array, detect_negative: int = 1, detect_positive: int = 1) -> Array:
    return (np.isposinf(x) & bool(detect_positive)) | (np.isneginf(x) & bool(detect_negative))


def _mod(x: Array, y: Array, fmod: int = 0) -> Array:
    return np.asarray(np.fmod(x, y) if fmod else np.mod(x, y))


def _function(name: str, arity: int = 1) -> str:
    return f"fusion::{name}({', '.join(f'{{{i}}}' for i in range(arity))})"


def _unary(name: str, meaning: Callable[..., Any], cost: int = 1, cpp: str = "") -> Operator:
    return Operator(name, "elementwise", meaning, _function(cpp or name.lower()), cost=cost)


def _arithmetic(name: str, meaning: Callable[..., Any], cpp: str, traits: str = "", cost: int = 1) -> Operator:
    return Operator(name, f"elementwise cheap {traits}", meaning, cpp, 2, cost)


def _fold(name: str, function: Callable[..., Any], cpp: str = "", traits: str = "") -> Operator:
    """An operator of any number of operands, in C++ of two."""
    return Operator(name, f"elementwise commutative {traits}", lambda *x: reduce(function, x), cpp, None)


def _contributed(name: str, meaning: Callable[..., Any], work: tuple[int, int], parameters: str = "") -> Operator:
    """One of ONNX Runtime's. A second input is a bias, and the meaning is of the sum."""
    return replace(_activation(name, meaning, parameters, work), domain="com.microsoft")


def _activation(
    name: str, meaning: Callable[..., Any], parameters: str = "", work: tuple[int, int] = (2, 0)
) -> Operator:
    """An operator that is computed as arithmetic."""
    return Operator(name, "elementwise", meaning, parameters=tuple(parameters.split()), work=work)


ELEMENTWISE = (
    _unary("Abs", np.abs),
    _unary("Acos", np.arccos, 40),
    _unary("Acosh", np.arccosh, 40),
    _unary("Asin", np.arcsin, 40),
    _unary("Asinh", np.arcsinh, 40),
    _unary("Atan", np.arctan, 40),
    _unary("Atanh", np.arctanh, 40),
    _unary("Ceil", np.ceil),
    _unary("Cos", np.cos, 40),
    _unary("Cosh", np.cosh, 40),
    _unary("Erf", _erf, 20),
    _unary("Exp", np.exp, 10),
    _unary("Floor", np.floor),
    _unary("Log", np.log, 15),
    _unary("Reciprocal", np.reciprocal),
    _unary("Relu", lambda x: np.maximum(x, 0.0)),
    _unary("Round", np.round),
    _unary("Sigmoid", _sigmoid, 12),
    _unary("Sign", np.sign),
    _unary("Sin", np.sin, 40),
    _unary("Sinh", np.sinh, 40),
    _unary("Softplus", _softplus, 30),
    _unary("Softsign", lambda x: x / (1.0 + np.abs(x))),
    _unary("Tan", np.tan, 40),
    _unary("Tanh", np.tanh, 20),
    Operator("Sqrt", "elementwise linear", np.sqrt, "fusion::sqrt({0})"),
    Operator("Neg", "elementwise cheap linear", np.negative, "-{0}"),
    Operator("Not", "elementwise cheap bool", np.logical_not, "!{0}"),
    Operator("IsNaN", "elementwise bool", np.isnan, "fusion::is_nan({0})"),
    Operator(
        "IsInf", "elementwise bool", _is_inf, "fusion::is_inf({0})", parameters=("detect_negative", "detect_positive")
    ),
    _arithmetic("Add", np.add, "{0} + {1}", "commutative linear counting"),
    _arithmetic("Sub", np.subtract, "{0} - {1}", "linear counting"),
    _arithmetic("Mul", np.multiply, "{0} * {1}", "commutative linear counting"),
    _arithmetic("Div", np.true_divide, "fusion::div({0}, {1})", "linear counting", cost=4),
    _arithmetic("Equal", np.equal, "{0} == {1}", "commutative bool counting"),
    _arithmetic("Less", np.less, "{0} < {1}", "bool"),
    _arithmetic("LessOrEqual", np.less_equal, "{0} <= {1}", "bool"),
    _arithmetic("Greater", np.greater, "{0} > {1}", "bool"),
    _arithmetic("GreaterOrEqual", np.greater_equal, "{0} >= {1}", "bool"),
    # Bitwise forms of the logical operators have no branches, so loops over them vectorise.
    _arithmetic("And", np.logical_and, "{0} & {1}", "commutative bool"),
    _arithmetic("Or", np.logical_or, "{0} | {1}", "commutative bool"),
    Operator("Xor", "elementwise commutative bool", np.logical_xor, "{0} ^ {1}", 2),
    Operator("Mod", "elementwise counting", _mod, "fusion::mod({0}, {1})", 2, parameters=("fmod",)),
    Operator("Pow", "elementwise linear", np.power, "fusion::pow({0}, {1})", 2, 40),
    Operator("Where", "elementwise cheap counting", np.where, "{0} ? {1} : {2}", 3),
    _fold("Max", np.maximum, "fusion::max({0}, {1})", "cheap counting"),
    _fold("Min", np.minimum, "fusion::min({0}, {1})", "cheap counting"),
    _fold("Sum", np.add, traits="linear"),
    Operator("Mean", "elementwise commutative linear", lambda *x: reduce(np.add, x) / len(x), arity=None),
    Operator("Cast", "elementwise cheap linear counting transparent", np.asarray, cost=0),
    Operator("Identity", "elementwise cheap linear counting transparent move reshape arranging", np.asarray, cost=0),
    Operator("Clip", "elementwise", _clip, arity=3, parameters=("min", "max"), work=(2, 0)),
    Operator("PRelu", "elementwise", _leaky, arity=2),
    _activation("Celu", lambda x, alpha=1.0: _elu(x, alpha, alpha), "alpha", (3, 1)),
    _activation("Elu", _elu, "alpha", (2, 1)),
    _activation("Gelu", _gelu, "approximate", (4, 1)),
    _activation("HardSigmoid", _hard_sigmoid, "alpha beta", (3, 0)),
    _activation("HardSwish", lambda x: x * _hard_sigmoid(x, 1 / 6), work=(4, 0)),
    _activation("LeakyRelu", _leaky, "alpha"),
    _activation("Mish", lambda x: x * np.tanh(_softplus(x)), work=(1, 2)),
    _activation("Selu", _selu, "alpha gamma", (3, 1)),
    _activation("Swish", _swish, "alpha", (1, 1)),
    _activation("ThresholdedRelu", lambda x, alpha=1.0: np.where(x > alpha, x, 0.0), "alpha"),
    _contributed("BiasGelu", _gelu, (5, 1)),
    _contributed("FastGelu", lambda x: _gelu(x, "tanh"), (7, 1)),
    _contributed("Gelu", _gelu, (4, 1)),
    _contributed("QuickGelu", lambda x, alpha=1.702: _swish(x, alpha), (2, 1), "alpha"),
)
