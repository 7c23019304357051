"""Elementwise operators as arithmetic of simpler ones: plans compute it, matching evaluates it, rules are tried on it.

Each function is given `apply(operator, *operands)`, which makes a value of numbers and operands: numpy arrays, values
of a plan, or expressions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

Apply = Callable[..., Any]


def gelu(apply: Apply, x: Any, bias: Any = None, approximate: str = "none") -> Any:
    """x (plus a bias) times the normal distribution function of it, exact or ("tanh") by its usual approximation."""
    x = x if bias is None else apply("Add", x, bias)
    if approximate == "tanh":
        cubic = apply("Mul", apply("Mul", x, x), x)
        inner = apply("Mul", apply("Add", x, apply("Mul", cubic, 0.044715)), math.sqrt(2 / math.pi))
        gate = apply("Tanh", inner)
    else:
        gate = apply("Erf", apply("Mul", x, math.sqrt(0.5)))
    return apply("Mul", apply("Mul", x, 0.5), apply("Add", gate, 1.0))


def swish(apply: Apply, x: Any, alpha: float = 1.0) -> Any:
    """x sigmoid(alpha x)."""
    return apply("Mul", x, apply("Sigmoid", x if alpha == 1.0 else apply("Mul", x, alpha)))


def hard_sigmoid(apply: Apply, x: Any, alpha: float = 0.2, beta: float = 0.5) -> Any:
    return apply("Min", apply("Max", apply("Add", apply("Mul", x, alpha), beta), 0.0), 1.0)


def hard_swish(apply: Apply, x: Any) -> Any:
    return apply("Mul", x, hard_sigmoid(apply, x, 1 / 6))


def mish(apply: Apply, x: Any) -> Any:
    return apply("Mul", x, apply("Tanh", apply("Softplus", x)))


def leaky(apply: Apply, x: Any, alpha: Any = 0.01) -> Any:
    """LeakyRelu, and PRelu, whose slope is an operand."""
    return apply("Where", apply("Less", x, 0.0), apply("Mul", x, alpha), x)


def elu(apply: Apply, x: Any, alpha: float = 1.0, scale: float = 1.0) -> Any:
    """alpha (exp(x / scale) - 1) below zero, x above."""
    inner = x if scale == 1.0 else apply("Div", x, scale)
    below = apply("Mul", apply("Sub", apply("Exp", inner), 1.0), alpha)
    return apply("Where", apply("Less", x, 0.0), below, x)


def celu(apply: Apply, x: Any, alpha: float = 1.0) -> Any:
    return elu(apply, x, alpha, alpha)


def selu(
    apply: Apply, x: Any, alpha: float = 1.67326319217681884765625, gamma: float = 1.05070102214813232421875
) -> Any:
    return apply("Mul", elu(apply, x, alpha), gamma)


def thresholded(apply: Apply, x: Any, alpha: float = 1.0) -> Any:
    return apply("Where", apply("Greater", x, alpha), x, 0.0)


def is_inf(apply: Apply, x: Any, detect_negative: int = 1, detect_positive: int = 1) -> Any:
    if detect_negative and detect_positive:
        return apply("IsInf", x)
    if detect_negative or detect_positive:
        return apply("Equal", x, math.inf if detect_positive else -math.inf)
    return apply("Less", x, x)  # never


def fold(op: str) -> Callable[..., Any]:
    """An operator of two operands over any number of them."""
    return lambda apply, *operands: reduce(lambda a, b: apply(op, a, b), operands)


def mean(apply: Apply, *operands: Any) -> Any:
    return apply("Mul", fold("Add")(apply, *operands), 1.0 / len(operands))
