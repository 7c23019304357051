"""Sizes in writing, as models, exporters and shape inference have them: names, numbers, and what is computed of both.

    2*heads*seq   past + 1   floor((samples - 1)/2)   (height - 1)//2   Max(4, s0)   Mod(s0, 8)   s0**2

What is no such expression, or too large a one, is a name.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from functools import cache

from fusion_cli.sizes.algebra import ONE, QUOTIENTS, Size, product
from fusion_cli.sizes.operations import operation

LONGEST, DEEPEST, LARGEST, MOST_FACTORS = 1000, 50, 1 << 63, 16
"""Bounds of an expression: characters, operations within each other, numbers, and factors of a product, so also powers.
A model can hold anything, such as 9**9**9**9."""

_NAME = re.compile(r"\??[^\W\d][\w.]*|\?[\w.]+")
_EXPRESSION = re.compile(r"[\w.?*/+%(), -]+", re.ASCII)
_TO_LETTERS, _TO_SIGNS = str.maketrans("?.", "\u0294\ua78f"), str.maketrans("\u0294\ua78f", "?.")
"""What names have of signs, as letters to Python and back."""
_PREFIX = "named_"
_SPELLED_OUT = re.compile(rf"\b{_PREFIX}(\w+)")
_FUNCTIONS = {"min": "Min", "max": "Max", "mod": "Mod"}
_Ratio = tuple[Size, Size]
"""A numerator and a denominator: quotients that are not rounded may cancel."""
_OPERATORS: Mapping[type[ast.operator], Callable[[Size, Size, Size, Size], _Ratio]] = {
    ast.Add: lambda a, b, c, d: (a * d + c * b, b * d),
    ast.Sub: lambda a, b, c, d: (a * d - c * b, b * d),
    ast.Mult: lambda a, b, c, d: (a * c, b * d),
    ast.Div: lambda a, b, c, d: (a * d, b * c),
    ast.FloorDiv: lambda a, b, c, d: (a * d // (b * c), ONE),
    ast.Mod: lambda a, b, c, d: (_exact(a, b) % _exact(c, d), ONE),
}


@cache
def parse(text: int | str) -> Size:
    """The size that is written so."""
    if isinstance(text, int):
        return Size(text)
    return expression(text) or Size(1, (spelled_out(text),))


def expression(text: str) -> Size | None:
    """The size that an expression describes; None for what is none, or too large."""
    if _NAME.fullmatch(text):
        return Size(1, (text,))
    if len(text) > LONGEST or text.count("(") > DEEPEST or not _EXPRESSION.fullmatch(text):
        return None
    try:
        a, b = _ratio(ast.parse(text.strip().translate(_TO_LETTERS), mode="eval").body, 0)
    except (SyntaxError, ValueError, TypeError):
        return None
    return a // b


def spelled_out(text: str) -> str:
    """Any text as a name."""
    return _PREFIX + re.sub(r"\W", lambda c: f"_u{ord(c[0]):x}_", text)


def written(text: str) -> str:
    """The size, a name or an expression, as the model has it in writing."""
    return _SPELLED_OUT.sub(lambda m: re.sub("_u([0-9a-f]+)_", lambda c: chr(int(c[1], 16)), m[1]), text)


def _ratio(tree: ast.expr, depth: int) -> _Ratio:
    """The value of an expression. Raises ValueError, or TypeError for the wrong number of arguments."""
    found = _value(tree, depth + 1) if depth < DEEPEST else (ONE, Size(0))
    if found[1].coef == 0 or any(_is_large(size) for size in found):
        raise ValueError(tree)
    return found


def _value(tree: ast.expr, depth: int) -> _Ratio:
    match tree:
        case ast.Constant(value=int(number)) if type(number) is int:
            return Size(number), ONE
        case ast.Name(id=name):
            return Size(1, (name.translate(_TO_SIGNS),)), ONE
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            a, b = _ratio(operand, depth)
            return Size(-1) * a, b
        case ast.BinOp(left=left, op=ast.Pow(), right=ast.Constant(value=int(times))) if 0 < times <= MOST_FACTORS:
            a, b = _ratio(left, depth)
            return product([a] * times), product([b] * times)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](*_ratio(left, depth), *_ratio(right, depth))
        case ast.Call(func=ast.Name(id="floor" | "trunc" | "ceiling" as function), args=[argument], keywords=[]):
            a, b = _ratio(argument, depth)
            return (a + b - ONE) // b if function == "ceiling" else operation(function, (a, b)), ONE
        case ast.Call(func=ast.Name(id=function), args=args, keywords=[]) if function not in QUOTIENTS:
            return operation(_FUNCTIONS.get(function, function), [_exact(*_ratio(a, depth)) for a in args]), ONE
    raise ValueError(tree)


def _exact(a: Size, b: Size) -> Size:
    if a // b * b != a:
        raise ValueError(a, b)
    return a // b


def _is_large(size: Size) -> bool:
    return abs(size.coef) >= LARGEST or len(size.factors) > MOST_FACTORS or sum(map(len, size.factors)) > LONGEST
