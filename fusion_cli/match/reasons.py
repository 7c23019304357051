"""What stopped a pattern, in words: what it expected, what it found, and what would help.

The search only records where it stopped. Words are made for the misses that are kept.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import onnx_ir as ir

from fusion_cli.match.graph import GraphIndex
from fusion_cli.match.pattern import Call, Pattern
from fusion_cli.match.predicates import conjuncts, describe, holds, predicate_calls
from fusion_cli.types import label

MISSING, ARITY, ATTRIBUTE, CONSTANT, DIFFERENT, CONDITION, FUNCTION, LIMIT = (
    "FUS101",
    "FUS102",
    "FUS103",
    "FUS104",
    "FUS105",
    "FUS106",
    "FUS107",
    "FUS108",
)
CONTROL_FLOW = frozenset({"If", "Loop", "Scan"})
_IS_CONSTANT = re.compile(r"is_constant\((\w+)\)")
_QUANTISED = frozenset({"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"})


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
    expected: str = ""
    found: str = ""

    @property
    def closeness(self) -> int:
        """Among stops that got equally far, the one that says more is the one to tell: an operator that is there but
        for an attribute, rather than one that is not; of two orders of operands, that with the constant in place."""
        if self.code == CONSTANT and self.value is not None and self.value.const_value is not None:
            return 3
        return {MISSING: 0, ARITY: 1, DIFFERENT: 1}.get(self.code, 2)


@dataclass(frozen=True)
class Words:
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
        return Words(stop.expected, stop.found, "another function: left as it is, unless a constant of it is mistyped")
    assert stop.call is not None
    if stop.code == ATTRIBUTE:
        return _attribute(stop)
    if stop.code == CONSTANT:
        return _constant(stop, index)
    if stop.code == DIFFERENT:
        name = f"{stop.call} with {stop.name} = {named(stop.bound)}"
        return Words(name, named(stop.value))
    if stop.code == LIMIT:
        return Words(f"{stop.call} among the first candidates", "more candidates than are tried")
    if stop.code == ARITY:
        assert stop.node is not None
        there = f"{len(index.inputs(stop.node))} inputs and {len(stop.node.outputs)} outputs"
        return Words(stop.expected, there)
    return _missing(stop.call, stop, index)


def named(value: ir.Value | None) -> str:
    return "nothing" if value is None else f"'{value.name}'"


def why_not_constant(value: ir.Value, index: GraphIndex) -> str:
    """How to make a value the constant that a rule needs; "" if it is one."""
    if index.is_constant(value):
        return ""
    if value in index.graph_inputs and value.const_value is not None:
        return (
            f"`{value.name}` is a graph input with an initializer, so callers may override it: "
            f"pass --assume-constant {value.name}"
        )
    if value in index.graph_inputs:
        if value.shape is None or not value.shape.is_static() or len(value.shape) > 2:
            return ""  # something computed with, rather than a weight
        return f"`{value.name}` is a graph input: export the model with it as an initializer"
    producer = index.producer(value)
    if producer is not None:
        inputs = [v for v in producer.inputs if v is not None]
        if inputs and all(index.is_constant(v) for v in inputs):
            return f"{producer.op_type} computes `{value.name}` from constants at run time: fold it into the model"
        if producer.op_type in _QUANTISED:
            return "the value is dequantized at run time: fuse the float model, and quantize what is left"
    return ""


def is_meant_otherwise(stop: Stop, index: GraphIndex) -> bool:
    """Whether all that is wrong is that a value is no constant, and that it could not be: the product of two computed
    values is no linear layer, nor near one."""
    if stop.code != CONDITION:
        return False
    for part in conjuncts(stop.pattern.where[stop.condition]):
        asked = _IS_CONSTANT.fullmatch(part)
        value = stop.bindings.get(asked[1]) if asked is not None else None
        if value is not None and not index.is_constant(value):
            return not why_not_constant(value, index)
    return False


def _condition(condition: str, stop: Stop, index: GraphIndex) -> Words:
    names = {**stop.attributes, **stop.bindings}
    failed = [part for part in conjuncts(condition) if not holds(part, names, index)] or [condition]
    first = failed[0]
    return Words(first, describe(stop.bindings, first, index), _advice(first, stop.bindings, index))


def _advice(condition: str, bindings: Mapping[str, ir.Value], index: GraphIndex) -> str:
    for predicate, names in predicate_calls(condition):
        for value in (bindings[n] for n in names if n in bindings):
            if predicate in ("is_constant", "value"):
                hint = why_not_constant(value, index)
                if hint:
                    return hint
            elif predicate in ("rank", "shape", "dim", "same_shape") and value.shape is None:
                return f"the shape of `{value.name}` is unknown: give those of the graph inputs with --shape"
            elif predicate in ("dim", "divisible", "same_shape"):
                symbols = [str(d.value) for d in value.shape or () if not isinstance(d, int) and d.value is not None]
                if symbols:
                    fixed = " ".join(f"--dim {s}=N" for s in dict.fromkeys(symbols) if s.isidentifier())
                    if fixed:
                        return f"sizes that are not known fail the condition: {fixed} or --shape may settle it"
            elif predicate == "dtype":
                return "convert the model to an element type that the rule takes"
    return ""


def _attribute(stop: Stop) -> Words:
    hint = ""
    source = stop.node.inputs[0] if stop.node is not None and stop.node.inputs else None
    if stop.name in ("axis", "axes") and source is not None and source.shape is None:
        hint = f"the rank of `{source.name}` is unknown, so axes cannot be counted from the end: give --shape"
    return Words(stop.expected, stop.found, hint)


def _constant(stop: Stop, index: GraphIndex) -> Words:
    assert stop.value is not None
    expected = f"{stop.call} with {stop.name} = {stop.pattern.constants[stop.name]:g}"
    number = index.scalar(stop.value)
    if number is not None:
        return Words(expected, f"{named(stop.value)} = {number:g}", "another number makes another function")
    if index.is_constant(stop.value):
        return Words(expected, f"{named(stop.value)}, a constant of more than one element")
    return Words(expected, f"{named(stop.value)}, no constant", why_not_constant(stop.value, index))


def _missing(call: Call, stop: Stop, index: GraphIndex) -> Words:
    what = f"pattern.{call.op}" if call.is_pattern else call.op
    if stop.value is None:
        return Words(f"{what}: {call}", "no such operator in the model")
    if stop.name in call.outputs:
        node = index.producer(stop.value)
        found = f"{named(stop.value)} comes from " + (
            f"{node.op_type} {label(node)}" if node is not None else _origin(stop.value, index)
        )
        return Words(f"{what} to make '{stop.name}' ({call})", found, _around(node))
    readers = index.readers(stop.value)
    shown = ", ".join(sorted({n.op_type for n in readers})) or "nothing in its graph"
    found = f"{named(stop.value)} goes to {shown}"
    if stop.value in index.outputs:
        found += ", and is a graph output"
    elif index.escapes(stop.value):
        found += ", and to a control-flow body"
    return Words(f"{what} to read '{stop.name}' ({call})", found, _around(*readers))


def _origin(value: ir.Value, index: GraphIndex) -> str:
    if value in index.graph_inputs:
        return "the caller: it is a graph input"
    return "an initializer" if index.is_constant(value) else "outside the graph"


def _around(*nodes: ir.Node | None) -> str:
    kinds = {n.op_type for n in nodes if n is not None}
    if kinds & CONTROL_FLOW:
        return "no rule reaches across the border of a control-flow body"
    if kinds & _QUANTISED:
        return "rules are about float operators: fuse the float model, and quantize what is left"
    return ""
