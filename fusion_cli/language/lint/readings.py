"""The overloads that one function stands for: other operators in the place of those it calls, steps left out.

`# any: Add, Max, Clip`: where the function calls the first, it means any of them. `# any: A B, C D`: those in the place
of A and B change together. `# optional: s, t`: the calls that make `s` and `t` are there, or none of them. The first
input of an absent one then stands for what it makes; inputs and conditions that only it needs go with it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Set
from dataclasses import replace
from itertools import product
from typing import TypeVar

import onnx

from fusion_cli.language.lint.tokens import CallText, Fault, FunctionText, Key, Token

_MOST = 64
_WORD = re.compile(r"[^\s,]+")
_Proto = TypeVar("_Proto", onnx.NodeProto, onnx.FunctionProto)


def readings(function: FunctionText) -> Iterator[FunctionText]:
    """All that the function stands for: the plainest first, which graphs that are made from rules have elsewhere."""
    choices = [_alternatives(k) for k in function.said("any")]
    groups = [frozenset(_WORD.findall(k.value)) for k in function.said("optional") if k.value]
    nothing: frozenset[str] = frozenset()
    for chosen in product(*choices):
        pairs = (zip(words[0], others, strict=True) for words, others in zip(choices, chosen, strict=True))
        names = {old: new for pair in pairs for old, new in pair}
        called = replace(function, calls=tuple(_renamed(c, names) for c in function.calls))
        for absent in product(*((group, nothing) for group in groups)):
            yield _without(called, nothing.union(*absent)) if any(absent) else called


def misread(function: FunctionText) -> Iterator[Fault]:
    """What keeps the header lines `any` and `optional` from having a meaning."""
    called = {c.op.text for c in function.calls}
    made = {name for c in function.calls if c.node.input for name in c.node.output}
    keys = [k for k in function.keys if k.name in ("any", "optional") and k.value]
    for key in keys:
        alternatives = _alternatives(key)
        named = alternatives[0] if key.name == "any" else _WORD.findall(key.value)
        known, what = (called, "calls no") if key.name == "any" else (made, "has no step that makes")
        for word in (w for w in named if w not in known):
            yield "FUS031", _place(key, word), f"the function {what} '{word}'"
        if key.name == "any" and (len(alternatives) < 2 or len({*map(len, alternatives)}) > 1):
            message = "alternatives stand between commas, each of as many operators as the first: # any: Add, Sub"
            yield "FUS031", _place(key), message
    count = math.prod(len(_alternatives(k)) if k.name == "any" else 2 for k in keys)
    if count > _MOST:
        yield "FUS031", _place(keys[0]), f"the function stands for {count} overloads; {_MOST} at most"


def _alternatives(key: Key) -> list[list[str]]:
    return [_WORD.findall(part) for part in key.value.split(",")]


def _place(key: Key, word: str = "") -> Token:
    return Token(word, key.line, key.column + key.value.index(word))


def _renamed(call: CallText, names: Mapping[str, str]) -> CallText:
    new = names.get(call.op.text)
    if new is None:
        return call
    domain, _, op = new.rpartition(".")
    return replace(call, node=_copy(call.node, domain=domain, op_type=op), op=replace(call.op, text=new))


def _without(function: FunctionText, absent: Set[str]) -> FunctionText:
    """The function without the calls that make these names."""
    stands: dict[str, str] = {}
    dropped: set[str] = set()
    calls: list[CallText] = []
    for call in function.calls:
        inputs = [stands.get(name, name) for name in call.node.input]
        if absent.isdisjoint(call.node.output):
            calls.append(replace(call, node=_copy(call.node, input=inputs)))
        else:
            stands |= dict.fromkeys(call.node.output, inputs[0])
            dropped.update(call.node.input)
    outputs = [stands.get(t.text, t.text) for t in function.outputs]
    dropped -= {*outputs, *(name for call in calls for name in call.node.input)}
    gone = dropped | stands.keys()
    inputs = [t for t in function.inputs if t.text not in gone]
    proto = _copy(function.proto, input=[t.text for t in inputs], output=outputs)
    return FunctionText(
        tuple(k for k in function.keys if k.name != "where" or gone.isdisjoint(re.findall(r"\w+", k.value))),
        proto,
        function.name,
        tuple(inputs),
        tuple(replace(t, text=name) for t, name in zip(function.outputs, outputs, strict=True)),
        tuple(c for c in calls if not gone.issuperset(c.node.output)),
    )


def _copy(proto: _Proto, **fields: str | list[str]) -> _Proto:
    copy = type(proto)()
    copy.CopyFrom(proto)
    for name, value in fields.items():
        copy.ClearField(name)
        if isinstance(value, str):
            setattr(copy, name, value)
        else:
            getattr(copy, name).extend(value)
    return copy
