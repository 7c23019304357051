"""What stopped a pattern, in words: what it expected, what it found, and what would help.

The search only records where it stopped. Words are made for the misses that are kept.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import onnx_ir as ir

from fusion_cli.explain.advice import FIX_SIZES
from fusion_cli.explain.hints import FILTERS, around, is_weight, why_not_constant, why_not_shaped
from fusion_cli.graph.index import GraphIndex
from fusion_cli.language.pattern import Call, Pattern
from fusion_cli.language.predicates import (
    conjuncts,
    describe,
    holds,
    names_in,
    predicate_calls,
    unknown_sizes,
)
from fusion_cli.operators.registry import is_elementwise
from fusion_cli.sizes.dims import shown_shape
from fusion_cli.types import label

MISSING, ARITY, ATTRIBUTE, CONSTANT, DIFFERENT, CONDITION, FUNCTION, LIMIT, SIZES = (
    "FUS101",
    "FUS102",
    "FUS103",
    "FUS104",
    "FUS105",
    "FUS106",
    "FUS107",
    "FUS108",
    "FUS109",
)
PASSABLE = frozenset({ATTRIBUTE, CONSTANT, CONDITION})
"""Stops that a pattern can be compared on past, as if they were met."""
_IS_CONSTANT = re.compile(r"is_constant\((\w+)\)")


@dataclass(frozen=True, eq=False)
class Stop:
    """Where a pattern stopped; the miss may be that of another pattern, written with this one. `call` is the line of
    the rule, `value` and `node` what the model has there, `name` the rule's name of it (or of an attribute), `bound`
    the value that name stood for already."""

    pattern: Pattern
    code: str
    call: Call | None = None
    value: ir.Value | None = None
    node: ir.Node | None = None
    name: str = ""
    bound: ir.Value | None = None
    condition: int = -1
    bindings: Mapping[str, ir.Value] = field(default_factory=dict)
    attributes: Mapping[str, Any] = field(default_factory=dict)
    expected: object = ""
    found: object = ""
    """In words; of an attribute, as they are."""

    @property
    def is_about_growth(self) -> bool:
        """Whether a growing pattern found nothing to start with: what is there instead can be anything."""
        return self.code == MISSING and self.call is not None and self.call.is_growing


def closeness(code: str, value: ir.Value | None) -> int:
    """Among stops that got equally far, the one that says more is the one to tell: an operator that is there but for an
    attribute, rather than one that is not; of two orders of operands, that with the constant in place."""
    if code == CONSTANT and value is not None and value.const_value is not None:
        return 3
    return {MISSING: 0, ARITY: 1, DIFFERENT: 1}.get(code, 2)


@dataclass(frozen=True)
class Words:
    """What is told of a stop."""

    expected: str
    found: str
    hint: str = ""


def line_of(stop: Stop) -> int:
    """The line of the rule's file that was not met."""
    if 0 <= stop.condition < len(stop.pattern.where_lines):
        return stop.pattern.where_lines[stop.condition]
    return stop.call.line if stop.call is not None else stop.pattern.line


def explain(stop: Stop, index: GraphIndex) -> Words:
    """A stop in words."""
    if stop.code == CONDITION:
        return _condition(stop.pattern.where[stop.condition], stop, index)
    if stop.code == FUNCTION:
        mistyped = "another function: left as it is, unless a constant of it is mistyped"
        return Words(str(stop.expected), str(stop.found), mistyped)
    if stop.code == SIZES:
        lost = stop.value if stop.value is not None and stop.value.shape is None else None
        hint = FIX_SIZES if lost is None else why_not_shaped(lost, index)
        return Words(str(stop.expected), str(stop.found), hint)
    assert stop.call is not None
    if stop.code == ATTRIBUTE:
        return _attribute(stop, index)
    if stop.code == CONSTANT:
        return _constant(stop, index)
    if stop.code == DIFFERENT:
        reader = "" if stop.node is None else f" of {stop.node.op_type} {label(stop.node)}"
        expected = f"{named(stop.bound)} as an operand{reader} ({_line(stop.call)}, where it is {stop.name})"
        return Words(expected, named(stop.value))
    if stop.code == LIMIT:
        return Words(f"{_line(stop.call)} among the first candidates", "more candidates than are tried")
    if stop.code == ARITY:
        assert stop.node is not None
        there = f"{len(index.inputs(stop.node))} inputs and {len(stop.node.outputs)} outputs"
        return Words(str(stop.expected), there, around(stop.node))
    return _missing(stop.call, stop, index)


def _line(call: Call) -> str:
    """A line of the rule as its reader knows it."""
    return f"in the rule: {call}".replace("pattern.", "")


def named(value: ir.Value | None) -> str:
    return "nothing" if value is None else f"'{value.name}'"


def is_meant_otherwise(stop: Stop, index: GraphIndex) -> bool:
    """Whether all that is wrong is that a value is no constant, and that it could not be: the product of two computed
    values is no linear layer, nor near one."""
    if stop.code != CONDITION:
        return False
    for part in conjuncts(stop.pattern.where[stop.condition]):
        asked = _IS_CONSTANT.fullmatch(part)
        value = stop.bindings.get(asked[1]) if asked is not None else None
        if value is not None and not index.is_constant(value):
            return not why_not_constant(value, index) and not is_weight(value, index, FILTERS)
    return False


def is_of_other_sizes(stop: Stop, index: GraphIndex) -> bool:
    """Whether all that is wrong is that sizes, each of them known, are in another proportion: a third of a linear layer
    is a query, a ninth is not."""
    if stop.code != CONDITION:
        return False
    names = {**stop.attributes, **stop.bindings}
    first = next((p for p in conjuncts(stop.pattern.where[stop.condition]) if not holds(p, names, index)), "")
    asked = {predicate for predicate, _ in predicate_calls(first)} if first else set()
    return asked == {"dim"} and not unknown_sizes(first, names, index)


def _condition(condition: str, stop: Stop, index: GraphIndex) -> Words:
    names = {**stop.attributes, **stop.bindings}
    failed = [part for part in conjuncts(condition) if not holds(part, names, index)] or [condition]
    first = failed[0]
    return Words(first, describe(names, first, index), _advice(first, stop, index))


def _advice(condition: str, stop: Stop, index: GraphIndex) -> str:
    for predicate, names in predicate_calls(condition):
        for value in (stop.bindings[n] for n in names if n in stop.bindings):
            if predicate in ("is_constant", "value"):
                hint = why_not_constant(value, index)
                if hint:
                    return hint
            elif predicate in ("rank", "shape", "dim", "same_shape") and value.shape is None:
                return why_not_shaped(value, index)
            elif predicate == "dtype":
                return "convert the model to an element type that the rule takes"
    unknown = unknown_sizes(condition, {**stop.attributes, **stop.bindings}, index)
    if unknown:
        return f"sizes that are not known fail the condition ({', '.join(unknown)}): {FIX_SIZES}"
    if any(name in stop.attributes for name in names_in(condition)):
        lost = next((v for v in stop.bindings.values() if v.shape is None), None)
        return "" if lost is None else why_not_shaped(lost, index)
    return ""


def _attribute(stop: Stop, index: GraphIndex) -> Words:
    assert stop.call is not None
    operator = stop.node.op_type if stop.call.is_growing and stop.node is not None else stop.call.op
    expected = f"{operator} with {stop.name} = {short(stop.expected)}"
    source = stop.node.inputs[0] if stop.node is not None and stop.node.inputs else None
    if stop.name in ("axis", "axes") and source is not None and source.shape is None:
        # Axes are compared counted from the end.
        found = f"an {stop.name} of {named(source)}, whose rank is not known"
        return Words(expected, found, why_not_shaped(source, index))
    return Words(expected, f"no {stop.name}" if stop.found is None else f"{stop.name} = {short(stop.found)}")


def short(value: object) -> str:
    """An attribute's value as it is read in messages."""
    if isinstance(value, list):
        text = f"[{', '.join(str(v.name) if isinstance(v, ir.Value) else str(v) for v in value)}]"
    else:
        text = f"{value:g}" if isinstance(value, float) else str(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _constant(stop: Stop, index: GraphIndex) -> Words:
    assert stop.value is not None
    assert stop.call is not None
    expected = f"{stop.name} = {stop.pattern.constants[stop.name]:g} ({_line(stop.call)})"
    number = index.scalar(stop.value)
    if number is not None:
        return Words(expected, f"{named(stop.value)} = {number:g}", "another number makes another function")
    if index.is_constant(stop.value):
        return Words(expected, f"{named(stop.value)}, a constant of more than one element")
    return Words(expected, f"{named(stop.value)}, no constant", why_not_constant(stop.value, index))


def _missing(call: Call, stop: Stop, index: GraphIndex) -> Words:
    if stop.value is None:
        return Words(f"{call.op} ({_line(call)})", "no such operator in the model")
    if call.is_growing and stop.value.shape is None:
        return Words(
            f"{call.op} from or to {named(stop.value)} ({_line(call)})",
            f"{named(stop.value)} of unknown shape",
            why_not_shaped(stop.value, index),
        )
    if stop.name in call.outputs:
        node = index.producer(stop.value)
        found = f"{named(stop.value)} comes from " + (
            f"{node.op_type} {label(node)}" if node is not None else _origin(stop.value, index)
        )
        return Words(f"{call.op} that makes {named(stop.value)} ({_line(call)})", found, around(node))
    readers = index.readers(stop.value)
    what, there = named(stop.value), {n.op_type for n in readers}
    if call.is_growing and any(map(is_elementwise, readers)):
        # These fit in but for their shape.
        what += f", {shown_shape(stop.value)},"
        there = {f"{n.op_type} of {shown_shape(n.outputs[0])}" for n in readers}
    found = f"{what} goes to {', '.join(sorted(there)) or 'nothing in its graph'}"
    if stop.value in index.outputs:
        found += ", and is a graph output"
    elif index.escapes(stop.value):
        found += ", and to a control-flow body"
    return Words(f"{call.op} that reads {named(stop.value)} ({_line(call)})", found, around(*readers))


def _origin(value: ir.Value, index: GraphIndex) -> str:
    if value in index.graph_inputs:
        return "the caller: it is a graph input"
    return "an initializer" if index.is_constant(value) else "outside the graph"
