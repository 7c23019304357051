"""Plain JSON values as the frozen dataclasses that they were made of."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints


def structured(kind: Any, value: Any) -> Any:
    """A plain value as one of the type `kind`: a dataclass, a tuple, a mapping from text, or what JSON has. A number
    that is null is infinite. Raises KeyError, TypeError, ValueError or AttributeError where it is none."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Literal:
        if value not in parts:
            raise ValueError(value)
        return value
    if origin in (Union, UnionType):
        return None if value is None else structured(next(p for p in parts if p is not NoneType), value)
    if origin is tuple:
        if len(parts) == 2 and parts[1] is Ellipsis:
            return tuple(structured(parts[0], item) for item in value)
        return tuple(structured(part, item) for part, item in zip(parts, value, strict=True))
    if origin is not None:  # a mapping: to what is text in JSON
        return {key: structured(parts[1], item) for key, item in value.items()}
    if isinstance(kind, type) and is_dataclass(kind):
        hints = _hints(kind)
        return kind(**{f.name: structured(hints[f.name], value[f.name]) for f in fields(kind) if f.name in value})
    return float("inf") if kind is float and value is None else kind(value)


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)
