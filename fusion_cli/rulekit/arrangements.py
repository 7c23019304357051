"""Ways to write an elementwise function: what a rule that is a definition (`# match: values`) must recognise."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from math import pi, sqrt
from typing import Any

from fusion_cli.language.pattern import Pattern
from fusion_cli.rulekit.execute import Executor
from fusion_cli.rulekit.shapes import Concrete, realise
from fusion_cli.rulekit.sketch import Sketch, Step

WAYS = 12
_MOST_OPS = 14

Expression = Any
"""The input (the string "x"), a number, or a tuple: operator, attributes, arguments."""


def arrangements(pattern: Pattern, executor: Executor) -> list[Concrete]:
    """The definition as it is written, and up to WAYS - 1 other arrangements of it as graphs."""
    expression = _expression(pattern)
    rng = random.Random(pattern.rule)
    found = {repr(expression): expression}
    for _ in range(4 * WAYS):
        other = _arranged(expression, rng)
        if len(found) < WAYS and _size(other) <= _MOST_OPS:
            found.setdefault(repr(other), other)
    graphs = [realise(_sketch(pattern, e), executor, i) for i, e in enumerate(found.values())]
    return [g for g in graphs if isinstance(g, Concrete)]


def _call(op: str, *arguments: Expression, **attributes: Any) -> Expression:
    return (op, tuple(sorted(attributes.items())), arguments)


def _expression(pattern: Pattern) -> Expression:
    """The pattern's last value as one expression of its input."""
    known: dict[str, Expression] = {**pattern.constants, pattern.inputs[0]: "x"}
    for call in pattern.calls:
        arguments = [known[i] for i in call.inputs]
        op = f"{call.domain}.{call.op}".removeprefix(".")
        known[call.outputs[0]] = _call(op, *arguments, **call.attributes)
    return known[pattern.outputs[0]]


def _size(expression: Expression) -> int:
    return 1 + sum(map(_size, expression[2])) if isinstance(expression, tuple) else 0


# ---- the same function, written otherwise


def _arranged(expression: Expression, rng: random.Random) -> Expression:
    if not isinstance(expression, tuple):
        return expression
    op, attributes, arguments = expression
    if op in _MEANINGS and rng.random() < 0.7:
        return _arranged(_MEANINGS[op](dict(attributes), *arguments), rng)
    arguments = [_arranged(a, rng) for a in arguments]
    if op == "Div" and isinstance(arguments[1], float) and rng.random() < 0.5:
        op, arguments = "Mul", [arguments[0], 1.0 / arguments[1]]
    if op in ("Mul", "Add"):
        return _regrouped(op, [part for a in arguments for part in _parts(op, a)], rng)
    return (op, attributes, tuple(arguments))


def _parts(op: str, expression: Expression) -> list[Expression]:
    """The operands of a chain of one associative operator."""
    if isinstance(expression, tuple) and expression[0] == op:
        return [part for a in expression[2] for part in _parts(op, a)]
    return [expression]


def _regrouped(op: str, parts: Sequence[Expression], rng: random.Random) -> Expression:
    """The chain in another order and with other brackets; two numbers never meet, for they would be folded."""
    waiting = list(parts)
    rng.shuffle(waiting)
    while len(waiting) > 1:
        i = rng.randrange(len(waiting) - 1)
        left, right = waiting[i : i + 2]
        if isinstance(left, float) and isinstance(right, float):
            waiting[i : i + 2] = [left * right if op == "Mul" else left + right]
        elif op == "Mul" and isinstance(right, float) and rng.random() < 0.3:
            waiting[i : i + 2] = [_call("Div", left, 1.0 / right)]
        else:
            waiting[i : i + 2] = [_call(op, left, right)]
    return waiting[0]


def _gelu(attributes: Mapping[str, Any], x: Expression) -> Expression:
    if attributes.get("approximate") == "tanh":
        return _fast_gelu(attributes, x)
    half = _call("Mul", 0.5, x)
    return _call("Mul", half, _call("Add", _call("Erf", _call("Div", x, sqrt(2.0))), 1.0))


def _fast_gelu(_: Mapping[str, Any], x: Expression) -> Expression:
    cube = _call("Pow", x, 3.0)
    inner = _call("Mul", sqrt(2.0 / pi), _call("Add", x, _call("Mul", 0.044715, cube)))
    return _call("Mul", _call("Mul", 0.5, x), _call("Add", _call("Tanh", inner), 1.0))


def _swish(attributes: Mapping[str, Any], x: Expression) -> Expression:
    alpha = float(attributes.get("alpha", 1.0))
    return _call("Mul", x, _call("Sigmoid", x if alpha == 1.0 else _call("Mul", x, alpha)))


def _hard_swish(_: Mapping[str, Any], x: Expression) -> Expression:
    return _call("Div", _call("Mul", x, _call("Clip", _call("Add", x, 3.0), 0.0, 6.0)), 6.0)


_MEANINGS: Mapping[str, Callable[..., Expression]] = {
    "Gelu": _gelu,
    "com.microsoft.Gelu": _gelu,
    "com.microsoft.FastGelu": _fast_gelu,
    "Swish": _swish,
    "com.microsoft.QuickGelu": lambda a, x: _swish({"alpha": 1.702, **a}, x),
    "HardSwish": _hard_swish,
    "Mish": lambda a, x: _call("Mul", x, _call("Tanh", _call("Softplus", x))),
    "Softplus": lambda a, x: _call("Log", _call("Add", _call("Exp", x), 1.0)),
    "Sigmoid": lambda a, x: _call("Reciprocal", _call("Add", _call("Exp", _call("Neg", x)), 1.0)),
    "Neg": lambda a, x: _call("Mul", x, -1.0),
    "Pow": lambda a, x, n: _call("Mul", _call("Mul", x, x), x) if n == 3.0 else _call("Mul", x, x),
}
"""Operators as expressions of simpler ones."""


def _sketch(pattern: Pattern, expression: Expression) -> Sketch:
    sketch = Sketch(inputs=["x"])
    names = count(1)
    known: dict[str, str] = {}

    def add(part: Expression) -> str:
        if part == "x":
            return "x"
        if repr(part) not in known:
            known[repr(part)] = f"v{next(names)}"
            if isinstance(part, tuple):
                domain, _, op = part[0].rpartition(".")
                inputs = tuple(map(add, part[2]))
                opset = pattern.opsets.get(domain, 1)
                sketch.steps.append(Step(domain, op, inputs, (known[repr(part)],), dict(part[1]), opset))
            else:
                sketch.numbers[known[repr(part)]] = part
        return known[repr(part)]

    sketch.outputs = [add(expression)]
    return sketch
