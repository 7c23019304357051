"""Elementwise operators on float64 arrays: enough of them to say which function a stretch of nodes computes."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Arguments = Sequence[Any]
Attributes = Mapping[str, Any]

LINEAR = frozenset({"Add", "Sub", "Mul", "Div", "Neg", "Identity", "Cast", "Dropout", "Sum", "Pow", "Sqrt"})
"""Operators that alone make no activation; a stretch of nothing else is not looked at."""

_erf = np.vectorize(math.erf, otypes=[np.float64])


def _sigmoid(x: Array) -> Array:
    return np.asarray(np.exp(-np.logaddexp(0.0, -x)))


def _gelu(x: Array, attributes: Attributes) -> Array:
    if attributes.get("approximate", "none") == "tanh":
        gate = np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3))
    else:
        gate = _erf(x / math.sqrt(2.0))
    return np.asarray(0.5 * x * (1.0 + gate))


def _hard_sigmoid(x: Array, attributes: Attributes) -> Array:
    return np.asarray(np.clip(attributes.get("alpha", 0.2) * x + attributes.get("beta", 0.5), 0.0, 1.0))


def _clip(arguments: Arguments, attributes: Attributes) -> Array:
    x, low, high = (*arguments, None, None)[:3]
    low = attributes.get("min", -math.inf) if low is None else low
    return np.asarray(np.clip(x, low, attributes.get("max", math.inf) if high is None else high))


def _elu(x: Array, attributes: Attributes) -> Array:
    return np.where(x < 0, attributes.get("alpha", 1.0) * np.expm1(np.minimum(x, 0)), x)


_UNARY: Mapping[str, Callable[[Any], Array]] = {
    "Abs": np.abs,
    "Cast": np.asarray,
    "Ceil": np.ceil,
    "Erf": _erf,
    "Exp": np.exp,
    "Floor": np.floor,
    "HardSwish": lambda x: x * np.clip(x / 6.0 + 0.5, 0.0, 1.0),
    "Identity": np.asarray,
    "Log": np.log,
    "Mish": lambda x: x * np.tanh(np.logaddexp(0.0, x)),
    "Neg": np.negative,
    "Not": np.logical_not,
    "Reciprocal": lambda x: 1.0 / x,
    "Relu": lambda x: np.maximum(x, 0.0),
    "Sigmoid": _sigmoid,
    "Sign": np.sign,
    "Softplus": lambda x: np.logaddexp(0.0, x),
    "Softsign": lambda x: x / (1.0 + np.abs(x)),
    "Sqrt": np.sqrt,
    "Tanh": np.tanh,
}
_FOLDED: Mapping[str, Callable[[Any, Any], Array]] = {
    "Add": np.add,
    "And": np.logical_and,
    "Div": np.true_divide,
    "Equal": np.equal,
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
    "Less": np.less,
    "LessOrEqual": np.less_equal,
    "Max": np.maximum,
    "Min": np.minimum,
    "Mul": np.multiply,
    "Or": np.logical_or,
    "Pow": np.power,
    "PRelu": lambda x, slope: np.where(x < 0, slope * x, x),
    "Sub": np.subtract,
    "Sum": np.add,
}
_OTHER: Mapping[tuple[str, str], Callable[[Arguments, Attributes], Array]] = {
    ("", "Clip"): _clip,
    ("", "Dropout"): lambda v, a: np.asarray(v[0]),
    ("", "Elu"): lambda v, a: _elu(v[0], a),
    ("", "Gelu"): lambda v, a: _gelu(v[0], a),
    ("", "HardSigmoid"): lambda v, a: _hard_sigmoid(v[0], a),
    ("", "LeakyRelu"): lambda v, a: np.where(v[0] < 0, a.get("alpha", 0.01) * v[0], v[0]),
    ("", "Swish"): lambda v, a: v[0] * _sigmoid(a.get("alpha", 1.0) * v[0]),
    ("", "Where"): lambda v, a: np.where(*map(np.asarray, v)),
    ("com.microsoft", "BiasGelu"): lambda v, a: _gelu(v[0], {}),
    ("com.microsoft", "FastGelu"): lambda v, a: _gelu(v[0], {"approximate": "tanh"}),
    ("com.microsoft", "Gelu"): lambda v, a: _gelu(v[0], {}),
    ("com.microsoft", "QuickGelu"): lambda v, a: v[0] * _sigmoid(a.get("alpha", 1.702) * v[0]),
}


BIASED = frozenset({("com.microsoft", "BiasGelu"), ("com.microsoft", "FastGelu")})
"""Operators that add their second input, a bias, to the first one: the function is that of the sum."""


def is_known(domain: str, op: str) -> bool:
    return (domain, op) in _OTHER or (not domain and (op in _UNARY or op in _FOLDED))


def evaluate(domain: str, op: str, arguments: Arguments, attributes: Attributes) -> Array:
    """What a known operator makes of its arguments. An omitted argument is None."""
    if (domain, op) in _OTHER:
        return _OTHER[domain, op](arguments, attributes)
    if op in _UNARY:
        return _UNARY[op](arguments[0])
    return functools.reduce(_FOLDED[op], arguments)
