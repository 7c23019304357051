"""The elementwise operators. What they mean is said for float64; their functions in C++ are in
`templates/include/scalar.h` and `elementary.h`, whose versions for g++ vectorise and whose versions for nvcc use the
device's own."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from fusion_cli.operators import composites
from fusion_cli.operators.operator import Operator

Array = npt.NDArray[Any]


def _clip(x: Array, low: Array | None = None, high: Array | None = None, **bounds: float) -> Array:
    low = np.asarray(bounds.get("min", -math.inf)) if low is None else low
    return np.asarray(np.clip(x, low, np.asarray(bounds.get("max", math.inf)) if high is None else high))


def _mod(x: Array, y: Array, fmod: int = 0) -> Array:
    return np.asarray(np.fmod(x, y) if fmod else np.mod(x, y))


def _unary(name: str, meaning: Callable[..., Any], cost: int = 1) -> Operator:
    return Operator(name, "elementwise", meaning, f"fusion::{name.lower()}({{0}})", cost=cost)


def _arithmetic(name: str, meaning: Callable[..., Any], cpp: str, traits: str = "", cost: int = 1) -> Operator:
    return Operator(name, f"elementwise cheap {traits}", meaning, cpp, 2, cost)


def _fold(name: str, meaning: Callable[..., Any]) -> Operator:
    """An operator of any number of operands, in C++ of two."""
    traits, cpp = "elementwise commutative cheap counting", f"fusion::{name.lower()}({{0}}, {{1}})"
    return Operator(name, traits, meaning, cpp, None, made_of=composites.fold(name))


def _composite(
    name: str, made: Callable[..., Any], work: tuple[int, int], parameters: str = "", domain: str = "", arity: int = 1
) -> Operator:
    """An operator that is computed as others. A second input of one of ONNX Runtime's is a bias."""
    names = tuple(parameters.split())
    return Operator(name, "elementwise", arity=arity, parameters=names, domain=domain, work=work, made_of=made)


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
    _unary("Erf", np.vectorize(math.erf, otypes=[np.float64]), 20),
    _unary("Exp", np.exp, 10),
    _unary("Floor", np.floor),
    _unary("Log", np.log, 15),
    _unary("Reciprocal", np.reciprocal),
    _unary("Relu", lambda x: np.maximum(x, 0.0)),
    _unary("Round", np.round),
    _unary("Sigmoid", lambda x: np.exp(-np.logaddexp(0.0, -x)), 12),
    _unary("Sign", np.sign),
    _unary("Sin", np.sin, 40),
    _unary("Sinh", np.sinh, 40),
    _unary("Softplus", lambda x: np.logaddexp(0.0, x), 30),
    _unary("Softsign", lambda x: x / (1.0 + np.abs(x))),
    _unary("Tan", np.tan, 40),
    _unary("Tanh", np.tanh, 20),
    Operator("Sqrt", "elementwise linear", np.sqrt, "fusion::sqrt({0})"),
    Operator("Neg", "elementwise cheap linear", np.negative, "-{0}"),
    Operator("Not", "elementwise cheap bool", np.logical_not, "!{0}"),
    Operator("IsNaN", "elementwise bool", np.isnan, "fusion::is_nan({0})"),
    Operator(
        "IsInf",
        "elementwise bool",
        np.isinf,
        "fusion::is_inf({0})",
        parameters=("detect_negative", "detect_positive"),
        made_of=composites.is_inf,
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
    _fold("Max", np.maximum),
    _fold("Min", np.minimum),
    Operator("Sum", "elementwise commutative linear", arity=None, made_of=composites.fold("Add")),
    Operator("Mean", "elementwise commutative linear", arity=None, made_of=composites.mean),
    Operator("Cast", "elementwise cheap linear counting transparent", np.asarray, cost=0),
    Operator("Identity", "elementwise cheap linear counting transparent move reshape arranging", np.asarray, cost=0),
    Operator("Clip", "elementwise", _clip, arity=3, parameters=("min", "max"), work=(2, 0)),
    _composite("Celu", composites.celu, (3, 1), "alpha"),
    _composite("Elu", composites.elu, (2, 1), "alpha"),
    _composite("Gelu", composites.gelu, (4, 1), "approximate"),
    _composite("HardSigmoid", composites.hard_sigmoid, (3, 0), "alpha beta"),
    _composite("HardSwish", composites.hard_swish, (4, 0)),
    _composite("LeakyRelu", composites.leaky, (2, 0), "alpha"),
    _composite("Mish", composites.mish, (1, 2)),
    _composite("PRelu", composites.leaky, (2, 0), arity=2),
    _composite("Selu", composites.selu, (3, 1), "alpha gamma"),
    _composite("Swish", composites.swish, (1, 1), "alpha"),
    _composite("ThresholdedRelu", composites.thresholded, (2, 0), "alpha"),
    _composite("BiasGelu", composites.gelu, (5, 1), domain="com.microsoft"),
    _composite("FastGelu", partial(composites.gelu, approximate="tanh"), (7, 1), domain="com.microsoft"),
    _composite("Gelu", composites.gelu, (4, 1), domain="com.microsoft"),
    _composite("QuickGelu", partial(composites.swish, alpha=1.702), (2, 1), "alpha", "com.microsoft"),
)
