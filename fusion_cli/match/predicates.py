"""The conditions of a rule: sandboxed Jinja expressions over the values a pattern bound.

Within `# where: EXPRESSION`, each name of the rule's function is the value it matched. The predicates:

    rank(v)            number of dimensions, or none if unknown
    dim(v, i)          size of dimension i: a number, or a symbol (equal symbols are equal sizes)
    dtype(v)           "float32", "float16", ...
    shape(v)           list of all dimensions
    size(v)            number of elements, or none if unknown
    is_constant(v)     known at compile time (an initializer)
    value(v)           the number a one-element constant holds, or none
    consumers(v)       how many nodes read it
    is_graph_input(v), is_graph_output(v)
    same_shape(a, b)   provably equal shapes
    divisible(n, k)    n is a known number and a multiple of k
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import onnx_ir as ir
from jinja2 import StrictUndefined, TemplateError, nodes
from jinja2.sandbox import SandboxedEnvironment

from fusion_cli.errors import RuleError
from fusion_cli.match.graph import GraphIndex

DTYPES = ("float16", "float32", "float64", "bfloat16", "int8", "int32", "int64", "uint8", "bool")
_ENVIRONMENT = SandboxedEnvironment(undefined=StrictUndefined)
PREDICATES = (
    "rank",
    "dim",
    "dtype",
    "shape",
    "size",
    "is_constant",
    "value",
    "consumers",
    "is_graph_input",
    "is_graph_output",
    "same_shape",
    "divisible",
)


@cache
def compile_predicate(expression: str) -> Callable[..., Any]:
    """The compiled expression. Raises RuleError if it does not parse or calls an unknown predicate."""
    try:
        tree = _ENVIRONMENT.parse("{{ " + expression + " }}")
        compiled = _ENVIRONMENT.compile_expression(expression, undefined_to_none=False)
    except TemplateError as e:
        raise RuleError(f"the condition does not parse: {e}") from e
    for call in tree.find_all(nodes.Call):
        if not isinstance(call.node, nodes.Name) or call.node.name not in PREDICATES:
            name = getattr(call.node, "name", "?")
            raise RuleError(f"no predicate '{name}'", hint=f"there are {', '.join(PREDICATES)}")
    return compiled


def holds(expression: str, bindings: Mapping[str, Any], index: GraphIndex) -> bool:
    """Whether the condition holds; one about names that this overload does not bind does not."""
    # Many patterns ask the same of the same values; an attribute may be a list.
    asked = tuple(tuple(v) if isinstance(v := bindings.get(name), list) else v for name in _names_in(expression))
    key = expression, asked
    if key not in index.conditions:
        names = {**{d: d for d in DTYPES}, **_functions(index), **bindings}
        try:
            index.conditions[key] = bool(compile_predicate(expression)(**names))
        except (TemplateError, TypeError, ValueError, IndexError, ArithmeticError):
            index.conditions[key] = False
    return index.conditions[key]


@cache
def _names_in(expression: str) -> tuple[str, ...]:
    tree = _ENVIRONMENT.parse("{{ " + expression + " }}")
    return tuple(sorted({n.name for n in tree.find_all(nodes.Name)}))


def describe(bindings: Mapping[str, ir.Value], expression: str, index: GraphIndex) -> str:
    """The values a condition speaks of, for the message that it failed."""
    mentioned = _names_in(expression)
    parts = [f"{name} is '{v.name}', {_type_of(v, index)}" for name, v in bindings.items() if name in mentioned]
    return "; ".join(parts) or "nothing it speaks of"


@cache
def conjuncts(expression: str) -> list[str]:
    """The parts of a condition that all have to hold: it is split at each `and` outside brackets."""
    parts, depth, start, loose = [], 0, 0, False
    for token in re.finditer(r"[()\[\]]|\b(?:and|or|if)\b|'[^']*'|\"[^\"]*\"", expression):
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(token[0], 0)
        loose = loose or (token[0] in ("or", "if") and not depth)
        if token[0] == "and" and not depth:
            parts.append(expression[start : token.start()].strip())
            start = token.end()
    # `a and b or c` is no list of conditions.
    return [expression] if loose else [*parts, expression[start:].strip()]


def predicate_calls(expression: str) -> list[tuple[str, list[str]]]:
    """The predicates that a condition calls, in order, each with the names it is asked about."""
    tree = _ENVIRONMENT.parse("{{ " + expression + " }}")
    calls = tree.find_all(nodes.Call)
    return [(c.node.name, [n.name for a in c.args for n in _names(a)]) for c in calls if isinstance(c.node, nodes.Name)]


def _names(node: nodes.Node) -> list[nodes.Name]:
    return [node] if isinstance(node, nodes.Name) else list(node.find_all(nodes.Name))


def dims_of(value: ir.Value) -> list[int | str] | None:
    """A shape as numbers and symbols, or None; an unnamed unknown dimension is unequal to every other."""
    if value.shape is None:
        return None
    return [
        d if isinstance(d, int) else str(d.value) if d.value is not None else f"?{id(value)}:{i}"
        for i, d in enumerate(value.shape)
    ]


def _size_of(value: ir.Value) -> int | None:
    dims = dims_of(value)
    known = [d for d in dims or () if isinstance(d, int)]
    return math.prod(known) if dims is not None and len(known) == len(dims) else None


def dtype_of(value: ir.Value) -> str:
    """The element type by its common name, such as "float32"."""
    names = {ir.DataType.FLOAT: "float32", ir.DataType.DOUBLE: "float64"}
    return names.get(value.dtype, str(value.dtype).lower()) if value.dtype is not None else "unknown"


def _type_of(value: ir.Value, index: GraphIndex) -> str:
    dims = dims_of(value)
    shape = "unknown shape" if dims is None else "[" + ",".join("?" if str(d)[0] == "?" else str(d) for d in dims) + "]"
    number = index.scalar(value)
    if value in index.graph_inputs:
        origin = ", a graph input"
    elif number is not None:
        origin = f", a constant {number:g}"
    else:
        origin = ", a constant" if index.is_constant(value) else ", computed at run time"
    return f"{dtype_of(value)}{shape}{origin}"


def _functions(index: GraphIndex) -> dict[str, Callable[..., Any]]:
    return {
        "rank": lambda v: None if v.shape is None else len(v.shape),
        "dim": lambda v, i: (dims_of(v) or [])[i],
        "shape": dims_of,
        "size": _size_of,
        "dtype": dtype_of,
        "is_constant": index.is_constant,
        "value": index.scalar,
        "consumers": lambda v: len(index.consumers(v)),
        "is_graph_input": index.graph_inputs.__contains__,
        "is_graph_output": index.outputs.__contains__,
        "same_shape": lambda a, b: dims_of(a) is not None and dims_of(a) == dims_of(b),
        "divisible": lambda n, k: isinstance(n, int) and n % k == 0,
    }
