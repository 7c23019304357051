"""The conditions of a rule: sandboxed Jinja expressions over the values a pattern bound.

Within `# where: EXPRESSION`, each name of the rule's function is the value it matched. The predicates:

    rank(v)            number of dimensions, or none if unknown
    dim(v, i)          size of dimension i: a number, or a symbol (equal symbols are equal sizes)
    dtype(v)           "float32", "float16", ...
    shape(v)           list of all dimensions
    is_constant(v)     known at compile time (an initializer)
    value(v)           the number a one-element constant holds, or none
    consumers(v)       how many nodes read it
    is_graph_input(v), is_graph_output(v)
    same_shape(a, b)   provably equal shapes
    divisible(n, k)    n is a known number and a multiple of k
"""

from __future__ import annotations

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


def holds(expression: str, bindings: Mapping[str, ir.Value], index: GraphIndex) -> bool:
    """Whether the condition holds; one about names that this overload does not bind does not."""
    names = {**{d: d for d in DTYPES}, **_functions(index), **bindings}
    try:
        return bool(compile_predicate(expression)(**names))
    except (TemplateError, TypeError, ValueError, IndexError, ArithmeticError):
        return False


def describe(bindings: Mapping[str, ir.Value], expression: str) -> str:
    """The values a condition speaks of, for the message that it failed."""
    tree = _ENVIRONMENT.parse("{{ " + expression + " }}")
    mentioned = {n.name for n in tree.find_all(nodes.Name)}
    parts = [f"{name}: {_type_of(value)}" for name, value in bindings.items() if name in mentioned]
    return "; ".join(parts) or "nothing it speaks of"


def dims_of(value: ir.Value) -> list[int | str] | None:
    """A shape as numbers and symbols, or None; an unnamed unknown dimension is unequal to every other."""
    if value.shape is None:
        return None
    return [
        d if isinstance(d, int) else str(d.value) if d.value is not None else f"?{id(value)}:{i}"
        for i, d in enumerate(value.shape)
    ]


def dtype_of(value: ir.Value) -> str:
    """The element type by its common name, such as "float32"."""
    names = {ir.DataType.FLOAT: "float32", ir.DataType.DOUBLE: "float64"}
    return names.get(value.dtype, str(value.dtype).lower()) if value.dtype is not None else "unknown"


def _type_of(value: ir.Value) -> str:
    dims = dims_of(value)
    shape = "unknown shape" if dims is None else "[" + ",".join("?" if str(d)[0] == "?" else str(d) for d in dims) + "]"
    origin = " constant" if value.const_value is not None else ""
    return f"{str(value.dtype).lower()}{shape}{origin}"


def _functions(index: GraphIndex) -> dict[str, Callable[..., Any]]:
    return {
        "rank": lambda v: None if v.shape is None else len(v.shape),
        "dim": lambda v, i: (dims_of(v) or [])[i],
        "shape": dims_of,
        "dtype": dtype_of,
        "is_constant": index.is_constant,
        "value": index.scalar,
        "consumers": lambda v: len(index.consumers(v)),
        "is_graph_input": lambda v: v in index.graph.inputs,
        "is_graph_output": lambda v: v in index.outputs,
        "same_shape": lambda a, b: dims_of(a) is not None and dims_of(a) == dims_of(b),
        "divisible": lambda n, k: isinstance(n, int) and n % k == 0,
    }
