"""Ways to write an elementwise function: what a rule that is a definition (`# match: values`) must recognise."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any

from fusion_cli.language.pattern import Pattern
from fusion_cli.operators.registry import OPERATORS
from fusion_cli.rulekit.execute import Executor
from fusion_cli.rulekit.realise import Concrete, realise
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
    graphs = [realise(_sketch(e), executor, i) for i, e in enumerate(found.values())]
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
    meaning = _meaning(op)
    if meaning is not None and rng.random() < 0.7:
        return _arranged(meaning(dict(attributes), *arguments), rng)
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
        elif op == "Mul" and left == right and rng.random() < 0.5:
            waiting[i : i + 2] = [_call("Pow", left, 2.0)]
        else:
            waiting[i : i + 2] = [_call(op, left, right)]
    return waiting[0]


def _meaning(op: str) -> Callable[..., Expression] | None:
    """The operator as an expression of simpler ones, given its attributes and its arguments."""
    domain, _, name = op.rpartition(".")
    known = OPERATORS.get((domain, name))
    if op in _MEANINGS or known is None or known.made_of is None or known.cpp:
        return _MEANINGS.get(op)
    made_of = known.made_of
    return lambda attributes, *arguments: made_of(_call, *arguments, **attributes)


_MEANINGS: Mapping[str, Callable[..., Expression]] = {
    "Softplus": lambda a, x: _call("Log", _call("Add", _call("Exp", x), 1.0)),
    "Sigmoid": lambda a, x: _call("Reciprocal", _call("Add", _call("Exp", _call("Neg", x)), 1.0)),
    "Neg": lambda a, x: _call("Mul", x, -1.0),
    "Pow": lambda a, x, n: _call("Mul", _call("Mul", x, x), x) if n == 3.0 else _call("Mul", x, x),
}
"""Those that people write otherwise than plans do."""


def _sketch(expression: Expression) -> Sketch:
    sketch = Sketch()
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
                sketch.steps.append(Step(domain, op, inputs, (known[repr(part)],), dict(part[1])))
            else:
                sketch.numbers[known[repr(part)]] = part
        return known[repr(part)]

    sketch.outputs = [add(expression)]
    return sketch
