"""The conditions of a rule: sandboxed Jinja expressions over the values a pattern bound.

Within `# where: EXPRESSION`, each name of the rule's function is the value it matched. The predicates:

    rank(v)            number of dimensions, or none if unknown
    dim(v, i)          size of dimension i: a number, or a symbol (equal symbols are equal sizes)
    dtype(v)           "float32", "float16", ...
    shape(v)           list of all dimensions
    size(v), size(v, i)  number of elements, or of those in the axes from i on; none if unknown
    is_constant(v)     known at compile time (an initializer)
    value(v)           the number a one-element constant holds, or none
    consumers(v)       how many nodes read it
    is_graph_input(v), is_graph_output(v)
    same_shape(a, b)   provably equal shapes
    divisible(n, k)    n is a known number and a multiple of k
    summed(equation)   where in each of two operands of an Einsum the one label stands that it sums over, counted from
                       the end, or none if it sums over another number of labels
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any

import onnx_ir as ir
from jinja2 import StrictUndefined, TemplateError, nodes
from jinja2.sandbox import SandboxedEnvironment

from fusion_cli.errors import RuleError
from fusion_cli.graph.index import GraphIndex
from fusion_cli.sizes.algebra import product
from fusion_cli.sizes.dims import dims_of, dtype_of, shape_of

DTYPES = ("float16", "float32", "float64", "bfloat16", "int8", "int32", "int64", "uint8", "bool")
ENVIRONMENT = SandboxedEnvironment(undefined=StrictUndefined)
_FAILURES = (TemplateError, TypeError, ValueError, IndexError, ArithmeticError)
"""What evaluating a condition raises where it speaks of what is not there."""


def _size(value: ir.Value, start: int = 0) -> int | None:
    shape = shape_of(value)
    return None if shape is None else product(shape[start:]).known


def _summed(equation: str) -> list[int] | None:
    terms, _, result = equation.partition("->")
    operands = terms.split(",")
    summed = [label for label in dict.fromkeys(terms) if label.isalpha() and label not in result]
    if (
        len(operands) != 2
        or len(summed) != 1
        or any(o.count(summed[0]) != 1 or "." in o[1:].strip(".") for o in operands)
    ):
        return None
    return [o.index(summed[0]) - len(o) for o in operands]


PREDICATES: Mapping[str, Callable[..., Any]] = {
    "rank": lambda index, v: None if v.shape is None else len(v.shape),
    "dim": lambda index, v, i: (dims_of(v) or ())[i],
    "shape": lambda index, v: None if v.shape is None else list(dims_of(v) or ()),
    "size": lambda index, *asked: _size(*asked),
    "dtype": lambda index, v: dtype_of(v),
    "is_constant": GraphIndex.is_constant,
    "value": GraphIndex.scalar,
    "consumers": lambda index, v: len(index.consumers(v)),
    "is_graph_input": lambda index, v: v in index.graph_inputs,
    "is_graph_output": lambda index, v: v in index.outputs,
    "same_shape": lambda index, a, b: a.shape is not None and dims_of(a) == dims_of(b),
    "divisible": lambda index, n, k: isinstance(n, int) and n % k == 0,
    "summed": lambda index, equation: _summed(equation),
}
"""By name: each takes the graph, and what the condition asks it about."""


@cache
def compile_predicate(expression: str) -> Callable[..., Any]:
    """The compiled expression. Raises RuleError if it does not parse or calls an unknown predicate."""
    try:
        tree = _tree(expression)
        compiled = ENVIRONMENT.compile_expression(expression, undefined_to_none=False)
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
    asked = (tuple(v) if isinstance(v := bindings.get(name), list) else v for name in names_in(expression))
    key = expression, *asked
    if key not in index.conditions:
        index.conditions[key] = bool(_evaluate(expression, bindings, index))
    return index.conditions[key]


def _evaluate(
    expression: str,
    bindings: Mapping[str, Any],
    index: GraphIndex,
    predicates: Mapping[str, Callable[..., Any]] = PREDICATES,
) -> Any:
    """The value of a condition; None if it speaks of what is not there."""
    named: dict[str, Any] = {}
    for name in names_in(expression):
        if name in bindings:
            named[name] = bindings[name]
        elif name in predicates:
            named[name] = partial(predicates[name], index)
        elif name in DTYPES:
            named[name] = name
    try:
        return compile_predicate(expression)(**named)
    except _FAILURES:
        return None


@cache
def names_in(expression: str) -> tuple[str, ...]:
    """The names that a condition speaks of, predicates and types included."""
    return tuple(sorted({n.name for n in _tree(expression).find_all(nodes.Name)}))


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


def unknown_sizes(expression: str, bindings: Mapping[str, Any], index: GraphIndex) -> list[str]:
    """The symbols among the sizes that the condition looks at, in order."""
    seen: dict[str, None] = {}

    def noted(dims: Sequence[int | str]) -> list[int | str]:
        seen.update({d: None for d in dims if isinstance(d, str) and d[0] != "?"})
        return list(dims)

    looking: dict[str, Callable[..., Any]] = {
        "dim": lambda index, v, i: noted([(dims_of(v) or ())[i]])[0],
        "shape": lambda index, v: noted(dims_of(v) or ()),
        "same_shape": lambda index, a, b: noted(dims_of(a) or ()) == noted(dims_of(b) or ()),
    }
    _evaluate(expression, bindings, index, {**PREDICATES, **looking})
    return list(seen)


@cache
def predicate_calls(expression: str) -> list[tuple[str, list[str]]]:
    """The predicates that a condition calls, in order, each with the names it is asked about."""
    calls = ([n.name for n in call.find_all(nodes.Name)] for call in _tree(expression).find_all(nodes.Call))
    return [(name, asked) for name, *asked in calls]


def _tree(expression: str) -> nodes.Template:
    return ENVIRONMENT.parse("{{ " + expression + " }}")
