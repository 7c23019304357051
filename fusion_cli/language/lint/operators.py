"""Calls of operators against ONNX's own description of them, in the form in which they are matched."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import onnx
from onnx.defs import OpSchema

from fusion_cli.language.lint.source import Finding, RuleFile
from fusion_cli.language.lint.tokens import CallText, FunctionText, nearest
from fusion_cli.language.pattern import GROWING_ATTRIBUTES, PATTERN_DOMAIN, REST
from fusion_cli.operators.registry import CONTRIBUTED
from fusion_cli.operators.versions import INPUT_ATTRIBUTES, first_opset

_BOUNDS = ("min_ops", "max_ops")
_KINDS: dict[int, str] = {
    onnx.AttributeProto.FLOAT: "a number with a point",
    onnx.AttributeProto.INT: "an integer",
    onnx.AttributeProto.STRING: "a string, or a list to have one of",
    onnx.AttributeProto.FLOATS: "a list of numbers with a point",
    onnx.AttributeProto.INTS: "a list of integers",
    onnx.AttributeProto.STRINGS: "a list of strings",
}


def check_operators(file: RuleFile, function: FunctionText) -> Iterator[Finding]:
    """Unknown operators and attributes, values of another kind, and numbers of inputs that no node has."""
    for call in function.calls:
        domain = call.node.domain
        for token in call.repeated:
            yield file.finding("FUS011", token, f"attribute '{token.text}' is there twice")
        if domain == PATTERN_DOMAIN:
            if call.node.op_type in GROWING_ATTRIBUTES:
                yield from _growing(file, call)
        elif domain == "" and function.opsets.get("", 0) > 0 and not call.is_constant:
            yield from _standard(file, call, function.opsets[""])


def _standard(file: RuleFile, call: CallText, opset: int) -> Iterator[Finding]:
    op = call.node.op_type
    if op in CONTRIBUTED or not onnx.defs.has(op):
        return
    if not onnx.defs.has(op, max_inclusive_version=opset):
        message = f"'{op}' came with opset {first_opset(op)}, the rule's is {opset}"
        yield file.finding("FUS024", call.op, message, "warning")
        schema = onnx.defs.get_schema(op)
    elif (schema := onnx.defs.get_schema(op, opset)).deprecated:
        yield file.finding("FUS024", call.op, f"opset {opset} no longer has '{op}'", "warning")
        schema = onnx.defs.get_schema(op, schema.since_version - 1)
    yield from check_call(file, call, schema)


def check_call(file: RuleFile, call: CallText, schema: OpSchema) -> Iterator[Finding]:
    """One call against the schema of its operator."""
    op = call.node.op_type
    moved = {} if call.node.domain else {i: name for (of, i), name in INPUT_ATTRIBUTES.items() if of == op}
    known = {n: attribute_kind(a) for n, a in schema.attributes.items()}
    known |= dict.fromkeys(moved.values(), int(onnx.AttributeProto.INTS))
    inputs = [i.name for i in schema.inputs]
    for attribute in call.node.attribute:
        name, token = attribute.name, call.attributes[attribute.name]
        integers = [attribute.i] if attribute.type == onnx.AttributeProto.INT else list(attribute.ints)
        if name not in known and name in inputs:
            message = f"'{name}' is an input of {op}, not an attribute: {op} ({', '.join(inputs)})"
            yield file.finding("FUS021", token, message)
        elif name not in known:
            yield file.finding("FUS021", token, f"{op} has no attribute '{name}'{nearest(name, known)}")
        elif not attribute.ref_attr_name and not _takes(known[name], attribute.type):
            wanted = _KINDS.get(known[name], "another value")
            yield file.finding("FUS022", token, f"'{name}' of {op} is {wanted}{_meant(known[name], attribute)}")
        elif name in ("axis", "axes") and (front := [a for a in integers if a >= 0]):
            message = f"axes are matched counted from the end, -1 for the last: {front[0]} is never found"
            yield file.finding("FUS028", token, message)
    yield from _counts(file, call, schema, moved)


def attribute_kind(attribute: Any) -> int:
    """The type of a schema's attribute as a value of onnx.AttributeProto.AttributeType."""
    return int(attribute.type.value)


def _meant(kind: int, attribute: onnx.AttributeProto) -> str:
    """The integer as the attribute has it, where only its form is another."""
    if attribute.type != onnx.AttributeProto.INT:
        return ""
    forms = {int(onnx.AttributeProto.FLOAT): f": {attribute.i}.0", int(onnx.AttributeProto.INTS): f": [{attribute.i}]"}
    return forms.get(kind, "")


def _takes(kind: int, found: int) -> bool:
    """A list of strings where the operator has one string means any of them."""
    return found == kind or (kind == onnx.AttributeProto.STRING and found == onnx.AttributeProto.STRINGS)


def _counts(file: RuleFile, call: CallText, schema: OpSchema, moved: dict[int, str]) -> Iterator[Finding]:
    op, names = call.node.op_type, list(call.node.input)
    open_ended = names[-1:] == [REST]
    found = len(names) - open_ended
    least, most = schema.min_input, schema.max_input
    while least - 1 in moved:
        least -= 1
    while most - 1 in moved:
        most -= 1
    if found > most and len(names) - 1 in moved:
        token, name = call.inputs[-1], moved[len(names) - 1]
        yield file.finding("FUS023", token, f"'{name}' of {op} is matched as an attribute: write <{name} = ...>")
    elif found > most or (found < least and not open_ended):
        few = f"{least} inputs" if least == most else f"{least} to {most} inputs"
        more = "; a last input named 'rest' stands for all further ones" if found < least else ""
        yield file.finding("FUS023", call.op, f"{op} takes {few}, not {found}{more}")
    outputs = len(call.node.output)
    if outputs > schema.max_output:
        yield file.finding("FUS023", call.outputs[-1], f"{op} has {schema.max_output} outputs, not {outputs}")


def _growing(file: RuleFile, call: CallText) -> Iterator[Finding]:
    op = call.node.op_type
    known = GROWING_ATTRIBUTES[op]
    bounds: dict[str, int] = {}
    for attribute in call.node.attribute:
        name, token = attribute.name, call.attributes[attribute.name]
        integer = -1 if attribute.type != onnx.AttributeProto.INT or attribute.ref_attr_name else attribute.i
        if name not in known:
            yield file.finding("FUS021", token, f"pattern.{op} has no attribute '{name}'{nearest(name, known)}")
        elif name not in _BOUNDS:
            if integer not in (0, 1):
                yield file.finding("FUS022", token, f"'{name}' is 0 or 1")
        elif integer < 0:
            yield file.finding("FUS022", token, f"'{name}' of pattern.{op} is an integer, 0 or more")
        else:
            bounds[name] = integer
    if "max_ops" in bounds and bounds["max_ops"] < max(bounds.get("min_ops", 0), 1):
        yield file.finding("FUS022", call.attributes["max_ops"], "'max_ops' leaves room for no operator")
    if len(call.node.input) != 1 or len(call.node.output) != 1:
        yield file.finding("FUS023", call.op, f"pattern.{op} goes from one value to one value")
