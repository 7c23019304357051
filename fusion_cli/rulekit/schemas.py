"""What operators take: ONNX's descriptions of its own, ONNX Runtime's of those of its domains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, get_args

import onnx.defs

from fusion_cli.language.lint.operators import attribute_kind
from fusion_cli.operators.versions import INPUT_ATTRIBUTES
from fusion_cli.sessions import CannotRun, onnx_runtime

Kind = Literal["float32", "int64", "uint8", "int8", "int32", "bool"]
"""The element type to try an input with: the first of these that it takes."""


@dataclass(frozen=True)
class Schema:
    """One operator: the kind of each input, and which attributes it has. `moved` are the inputs that are matched as
    attributes, by position."""

    kinds: tuple[Kind, ...]
    least_inputs: int
    attributes: Mapping[str, int]
    """By name: the type, a value of onnx.AttributeProto.AttributeType."""
    required_attributes: tuple[str, ...]
    moved: Mapping[int, str]

    def kind(self, position: int) -> Kind:
        """What the input takes; the last one's kind holds for any after it."""
        return self.kinds[min(position, len(self.kinds) - 1)] if self.kinds else "float32"


def find_schema(domain: str, op: str, opsets: Mapping[str, int]) -> Schema:
    """The operator's schema; one of unknown inputs for an operator that nobody here knows."""
    return _schema(domain, op, opsets.get(domain, 1))


@cache
def _schema(domain: str, op: str, opset: int) -> Schema:
    found: Any = None
    if not domain and onnx.defs.has(op):
        found = onnx.defs.get_schema(op, opset) if onnx.defs.has(op, opset) else onnx.defs.get_schema(op)
    else:
        found = contributed().get(domain, {}).get(op)
    if found is None:
        return Schema((), 0, {}, (), {})
    moved = {p: a for (of, p), a in INPUT_ATTRIBUTES.items() if of == op and not domain}
    attributes = {name: attribute_kind(a) for name, a in found.attributes.items()}
    return Schema(
        tuple(_kind(i.types) for i in found.inputs),
        found.min_input,
        attributes,
        tuple(name for name, a in found.attributes.items() if a.required),
        {p: a for p, a in moved.items() if a not in attributes},
    )


def _kind(types: set[str]) -> Kind:
    names = {name.replace("(float)", "(float32)") for name in types}
    return next((kind for kind in get_args(Kind) if f"tensor({kind})" in names), "float32")


@cache
def contributed() -> Mapping[str, Mapping[str, Any]]:
    """ONNX Runtime's operators by domain and name; none where it is not installed. (Some lie in ONNX's own domain.)"""
    try:
        found = onnx_runtime().capi.onnxruntime_pybind11_state.get_all_operator_schema()
    except (CannotRun, AttributeError):
        return {}
    schemas: dict[str, dict[str, Any]] = {}
    for schema in found:
        schemas.setdefault(schema.domain.removeprefix("ai.onnx"), {})[schema.name] = schema
    return schemas
