"""Faults within one function that ONNX's parser lets through: names, constants, and calls that lead nowhere."""

from __future__ import annotations

from collections.abc import Iterator

import onnx

from fusion_cli.language.lint.source import USUAL_OPSET, Finding, RuleFile
from fusion_cli.language.lint.tokens import CallText, FunctionText, nearest
from fusion_cli.language.pattern import GROWING, PATTERN_DOMAIN, REST
from fusion_cli.operators.registry import is_known

_DOMAINS = ("com.microsoft", "ai.onnx.ml", "com.ms.internal.nhwc")
"""Domains whose names are often mistyped."""
_MOST_CALLS = 100
"""A search goes as deep as a rule has calls."""


def check_body(file: RuleFile, function: FunctionText) -> Iterator[Finding]:
    """Names, constants, imports and connections of one function."""
    yield from _names(file, function)
    yield from _imports(file, function)
    yield from _parameters(file, function)
    yield from _constants(file, function)
    yield from _connections(file, function)
    if any(k.name == "match" and k.value == "values" for k in file.keys_for(function)):
        yield from _definition(file, function)


def _names(file: RuleFile, function: FunctionText) -> Iterator[Finding]:
    defined: set[str] = set()
    for token in function.inputs:
        if token.text in defined:
            yield file.finding("FUS011", token, f"'{token.text}' is defined twice")
        defined.add(token.text)
    read: set[str] = set()
    made: set[str] = set()
    for call in function.calls:
        yield from _rest(file, call)
        for name, token in zip(call.node.input, call.inputs, strict=True):
            if name and name not in defined:
                yield file.finding("FUS010", token, f"'{name}' is not defined{nearest(name, defined)}")
            read.add(name)
        for name, token in zip(call.node.output, call.outputs, strict=False):
            if name in defined:
                yield file.finding("FUS011", token, f"'{name}' is defined twice")
            elif name:
                made.add(name)
                defined.add(name)
    outputs = [t.text for t in function.outputs]
    if not function.outputs:
        yield file.finding("FUS012", function.name, "the rule has no output")
    for i, token in enumerate(function.outputs):
        if token.text in outputs[:i]:
            yield file.finding("FUS011", token, f"output '{token.text}' is there twice")
        elif token.text in function.numbers:
            yield file.finding("FUS012", token, f"output '{token.text}' is a number of the rule, not a result")
        elif token.text not in made:
            known = ", but it is an input" if token.text in defined else nearest(token.text, made)
            yield file.finding("FUS012", token, f"output '{token.text}' is never produced{known}")
    for token in function.inputs:
        if token.text not in read:
            message = f"no call reads the input '{token.text}'; a form without it is an overload of its own"
            yield file.finding("FUS013", token, message)
    for call in function.calls:
        if call.node.output and not any(name in read or name in outputs for name in call.node.output):
            message = f"nothing reads the result of this {call.node.op_type}"
            yield file.finding("FUS014", call.outputs[0], message, "warning")


def _rest(file: RuleFile, call: CallText) -> Iterator[Finding]:
    """`rest` is no value, so it stands at one place only."""
    places = list(zip(call.node.input, call.inputs, strict=True))
    if call.node.domain != PATTERN_DOMAIN:
        places = places[:-1]
    for name, token in (*places, *zip(call.node.output, call.outputs, strict=False)):
        if name == REST:
            message = f"'{REST}' stands for further inputs of an operator, as its last one; a value needs another name"
            yield file.finding("FUS019", token, message)


def _imports(file: RuleFile, function: FunctionText) -> Iterator[Finding]:
    newest = onnx.defs.onnx_opset_version()
    if not 1 <= function.opsets.get("", newest) <= newest:
        yield file.finding("FUS017", function.name, f"no opset {function.opsets['']}: the newest is {newest}")
    known = {PATTERN_DOMAIN, *_DOMAINS}
    for domain in function.opsets:
        if domain and domain not in known and (hint := nearest(domain, known)):
            yield file.finding(
                "FUS017", function.name, f"no operators of a domain '{domain}' are known{hint}", "warning"
            )
    for domain in dict.fromkeys(c.node.domain for c in function.calls):
        if domain not in function.opsets:
            call = next(c for c in function.calls if c.node.domain == domain)
            message = f"domain '{domain}' is missing from opset_import" if domain else "opset_import lacks ONNX itself"
            meant = "" if domain in known else nearest(domain, known | function.opsets.keys())
            example = f' (write opset_import: ["{domain}": {1 if domain else USUAL_OPSET}])'
            yield file.finding("FUS017", call.op, f"{message}{meant or example}")


def _parameters(file: RuleFile, function: FunctionText) -> Iterator[Finding]:
    name = function.name.text
    for typed in function.proto.attribute_proto:
        message = f"a parameter has no type and no default: write '{name} <{typed.name}> (...)'"
        yield file.finding("FUS016", function.name, message)
    declared = {*function.proto.attribute, *(a.name for a in function.proto.attribute_proto)}
    used: set[str] = set()
    for call in function.calls:
        for attribute in call.node.attribute:
            parameter = attribute.ref_attr_name
            used.add(parameter)
            if parameter and parameter not in declared:
                message = f"'@{parameter}' is not declared: write '{name} <{parameter}> (...)'"
                place = call.attributes[attribute.name]
                line = file.text.split("\n")[place.line - 1]
                offset = max(line.find(f"@{parameter}", place.column - 1) + 1 - place.column, 0)
                yield file.finding("FUS016", place, f"{message}{nearest(parameter, declared)}", offset=offset)
    for parameter in sorted(declared - used):
        yield file.finding("FUS016", function.name, f"no call reads the parameter '{parameter}'")


def _constants(file: RuleFile, function: FunctionText) -> Iterator[Finding]:
    for call in (c for c in function.calls if c.is_constant):
        known = list(onnx.defs.get_schema("Constant").attributes)
        unknown = [a.name for a in call.node.attribute if a.name not in known]
        for name in unknown:
            message = f"Constant has no attribute '{name}'{nearest(name, known)}"
            yield file.finding("FUS021", call.attributes[name], message)
        if unknown:
            continue
        values = [v for v in map(_number, call.node.attribute) if v is not None]
        if len(call.node.attribute) != 1 or values != [1]:
            message = "a Constant of a rule is one number, such as <value_float = 0.5>"
            if values and values[0] != 1:
                message += f", not {values[0]}; make it an input of the rule, with a condition"
            yield file.finding("FUS005", call.op, message)


def _number(attribute: onnx.AttributeProto) -> int | None:
    """How many numbers the attribute holds; None for what is no number."""
    if attribute.type == onnx.AttributeProto.TENSOR:
        if attribute.t.data_type == onnx.TensorProto.STRING:
            return None
        return int(onnx.numpy_helper.to_array(attribute.t).size)
    single = {onnx.AttributeProto.FLOAT: 1, onnx.AttributeProto.INT: 1}
    lists = {onnx.AttributeProto.FLOATS: len(attribute.floats), onnx.AttributeProto.INTS: len(attribute.ints)}
    return (single | lists).get(attribute.type)


def _connections(file: RuleFile, function: FunctionText) -> Iterator[Finding]:
    """Matching goes from call to call along values, from one that is an operator or an idiom."""
    calls = [c for c in function.calls if not c.is_constant]
    if len(calls) > _MOST_CALLS:
        message = f"a rule of {len(calls)} calls; {_MOST_CALLS} at most are matched: make its parts idioms"
        yield file.finding("FUS008", calls[_MOST_CALLS].op, message)
    if not calls:
        yield file.finding("FUS015", function.name, "the rule has no call to match")
        return
    growing = [c for c in calls if c.node.domain == PATTERN_DOMAIN and c.node.op_type in GROWING]
    if len(growing) == len(calls) and (len(calls) > 1 or file.kind == "idiom"):
        message = f"pattern.{growing[0].node.op_type} has to start somewhere: the rule needs an operator or an idiom"
        yield file.finding("FUS015", growing[0].op, message)
    names = [{*c.node.input, *c.node.output} - {*function.numbers, REST, ""} for c in calls]
    reached = set(names[0])
    waiting = list(range(1, len(calls)))
    while joined := [i for i in waiting if names[i] & reached]:
        reached.update(*(names[i] for i in joined))
        waiting = [i for i in waiting if i not in joined]
    if waiting:
        message = (
            f"this {calls[waiting[0]].node.op_type} shares no value with the calls before, so it is never looked for"
        )
        yield file.finding("FUS015", calls[waiting[0]].op, message)


def _definition(file: RuleFile, function: FunctionText) -> Iterator[Finding]:
    """What `# match: values` asks of a rule: an elementwise function of one value."""
    if len(function.inputs) != 1 or len(function.outputs) != 1:
        yield file.finding("FUS037", function.name, "a definition by value has one input and one output")
    for call in function.calls:
        if not call.is_constant and not is_known(call.node.domain, call.node.op_type):
            message = f"'{call.op.text}' cannot be part of a definition by value: elementwise operators only"
            yield file.finding("FUS037", call.op, message)
    for key in function.said("where"):
        yield file.finding("FUS037", key, "a definition by value takes no conditions")
