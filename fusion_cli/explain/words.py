"""What stopped a pattern or a region, in words: what was expected, what is there, and what would help."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from fusion_cli.codes import match as codes
from fusion_cli.codes.advice import FIX_SIZES
from fusion_cli.explain.hints import around, not_of_the_opset, why_not_constant, why_not_shaped
from fusion_cli.graph.index import GraphIndex
from fusion_cli.language.pattern import Call
from fusion_cli.language.predicates import names_in, predicate_calls, unknown_sizes
from fusion_cli.match.stops import NoRegion, Stop, short
from fusion_cli.operators.registry import is_elementwise
from fusion_cli.sizes.dims import dtype_of, shown_shape
from fusion_cli.types import label


@dataclass(frozen=True)
class Words:
    """What is said of a stop."""

    expected: str
    found: str
    hint: str = ""


def why_no_region(reason: NoRegion, index: GraphIndex) -> Words:
    """Why nodes that matched make no region, in words."""
    if reason.code == codes.NO_WORK:
        return Words("at least one node that computes", "nodes that only move data or count")
    if reason.code == codes.OPSET:
        assert reason.node is not None
        why, hint = not_of_the_opset(reason.node, index)
        return Words("operators of the imported operator sets", f"{reason.node.op_type}, {why}", hint)
    if reason.code == codes.NOT_CONVEX:
        assert reason.node is not None
        hint = "a rule that takes in the nodes on that path would not need them twice"
        return Words("a region that no path leaves and re-enters", f"a path through '{label(reason.node)}'", hint)
    assert reason.value is not None
    hint = why_not_shaped(reason.value, index)
    return Words("values of known type and rank", f"{_named(reason.value)} of unknown type or rank", hint)


def in_words(stop: Stop, index: GraphIndex) -> Words:
    """A stop in words."""
    if stop.code == codes.CONDITION:
        return _condition(stop, index)
    if stop.code == codes.FUNCTION:
        mistyped = "another function: left as it is, unless a constant of it is mistyped"
        return Words(str(stop.expected), str(stop.found), mistyped)
    if stop.code == codes.SIZES:
        lost = stop.value if stop.value is not None and stop.value.shape is None else None
        hint = FIX_SIZES if lost is None else why_not_shaped(lost, index)
        return Words(str(stop.expected), str(stop.found), hint)
    assert stop.call is not None
    if stop.code == codes.ATTRIBUTE:
        return _attribute(stop, index)
    if stop.code == codes.CONSTANT:
        return _constant(stop, index)
    if stop.code == codes.DIFFERENT:
        reader = "" if stop.node is None else f" of {stop.node.op_type} {label(stop.node)}"
        expected = f"{_named(stop.bound)} as an operand{reader} ({_line(stop.call)}, where it is {stop.name})"
        return Words(expected, _named(stop.value))
    if stop.code == codes.LIMIT:
        return Words(f"{_line(stop.call)} among the first that are tried", "more than are tried")
    if stop.code == codes.ARITY:
        assert stop.node is not None
        there = f"{len(index.inputs(stop.node))} inputs and {len(stop.node.outputs)} outputs"
        return Words(str(stop.expected), there, around(stop.node))
    return _missing(stop.call, stop, index)


def _line(call: Call) -> str:
    """A line of the rule as its reader knows it."""
    return f"in the rule: {call}".replace("pattern.", "")


def _named(value: ir.Value | None) -> str:
    return "nothing" if value is None else f"'{value.name}'"


def _condition(stop: Stop, index: GraphIndex) -> Words:
    first = stop.failed(index)[0]
    mentioned = names_in(first)
    bound = [f"{name} is {_described(b, index)}" for name, b in stop.names.items() if name in mentioned]
    return Words(first, "; ".join(bound) or "nothing it speaks of", _advice(first, stop, index))


def _described(bound: object, index: GraphIndex) -> str:
    """What a name of a condition stands for: a value, or an attribute."""
    if not isinstance(bound, ir.Value):
        return str(bound)
    number = index.scalar(bound)
    if bound in index.graph_inputs:
        origin = "a graph input"
    elif number is not None:
        origin = f"a constant {number:g}"
    else:
        origin = "a constant" if index.is_constant(bound) else "computed at run time"
    return f"{_named(bound)}, {dtype_of(bound)}{shown_shape(bound)}, {origin}"


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
    unknown = unknown_sizes(condition, stop.names, index)
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
        found = f"an {stop.name} of {_named(source)}, whose rank is not known"
        return Words(expected, found, why_not_shaped(source, index))
    return Words(expected, f"no {stop.name}" if stop.found is None else f"{stop.name} = {short(stop.found)}")


def _constant(stop: Stop, index: GraphIndex) -> Words:
    assert stop.value is not None
    assert stop.call is not None
    expected = f"{stop.name} = {stop.pattern.constants[stop.name]:g} ({_line(stop.call)})"
    number = index.scalar(stop.value)
    if number is not None:
        return Words(expected, f"{_named(stop.value)} = {number:g}", "another number makes another function")
    if index.is_constant(stop.value):
        return Words(expected, f"{_named(stop.value)}, a constant of more than one element")
    return Words(expected, f"{_named(stop.value)}, no constant", why_not_constant(stop.value, index))


def _missing(call: Call, stop: Stop, index: GraphIndex) -> Words:
    if stop.value is None:
        return Words(f"{call.op} ({_line(call)})", "no such operator in the model")
    if call.is_growing and stop.value.shape is None:
        return Words(
            f"{call.op} from or to {_named(stop.value)} ({_line(call)})",
            f"{_named(stop.value)} of unknown shape",
            why_not_shaped(stop.value, index),
        )
    if stop.name in call.outputs:
        node = index.producer(stop.value)
        found = f"{_named(stop.value)} comes from " + (
            f"{node.op_type} {label(node)}" if node is not None else _origin(stop.value, index)
        )
        return Words(f"{call.op} that makes {_named(stop.value)} ({_line(call)})", found, around(node))
    readers = index.readers(stop.value)
    what, there = _named(stop.value), {n.op_type for n in readers}
    if call.is_growing and any(map(is_elementwise, readers)):
        # These fit in but for their shape.
        what += f", {shown_shape(stop.value)},"
        there = {f"{n.op_type} of {shown_shape(n.outputs[0])}" for n in readers}
    found = f"{what} goes to {', '.join(sorted(there)) or 'nothing in its graph'}"
    if stop.value in index.outputs:
        found += ", and is a graph output"
    elif index.escapes(stop.value):
        found += ", and to a control-flow body"
    return Words(f"{call.op} that reads {_named(stop.value)} ({_line(call)})", found, around(*readers))


def _origin(value: ir.Value, index: GraphIndex) -> str:
    if value in index.graph_inputs:
        return "the caller: it is a graph input"
    return "an initializer" if index.is_constant(value) else "outside the graph"
