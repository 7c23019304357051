"""Kinds of what a condition speaks of: what predicates are asked about and answer, and which can be compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Kind = Literal["value", "number", "size", "type", "truth", "list", "text", "none", "any"]
"""What an expression stands for. A size is a number or a symbol; "any" is what only a match tells."""

FILTERS: Mapping[str, Kind] = {
    **dict.fromkeys(("abs", "count", "float", "int", "length", "round", "sum"), "number"),
    **dict.fromkeys(("first", "last", "max", "min"), "any"),
}
SHOWN: Mapping[Kind, str] = {
    "value": "a value of the rule",
    "number": "a number",
    "size": "a size",
    "type": "an element type",
    "truth": "a truth value",
    "list": "a list",
    "text": "a text",
    "none": "none",
}


@dataclass(frozen=True)
class Signature:
    """What a predicate answers and is asked about, with an example; `least` arguments have to be there."""

    result: Kind
    arguments: tuple[Kind, ...]
    example: str
    least: int


SIGNATURES: Mapping[str, Signature] = {
    "rank": Signature("number", ("value",), "x", 1),
    "dim": Signature("size", ("value", "number"), "x, 0", 2),
    "shape": Signature("list", ("value",), "x", 1),
    "size": Signature("number", ("value", "number"), "x, 0", 1),
    "dtype": Signature("type", ("value",), "x", 1),
    "is_constant": Signature("truth", ("value",), "x", 1),
    "value": Signature("number", ("value",), "x", 1),
    "consumers": Signature("number", ("value",), "x", 1),
    "is_graph_input": Signature("truth", ("value",), "x", 1),
    "is_graph_output": Signature("truth", ("value",), "x", 1),
    "same_shape": Signature("truth", ("value", "value"), "x, y", 2),
    "divisible": Signature("truth", ("size", "number"), "dim(x, 0), 8", 2),
    "summed": Signature("list", ("text",), "equation", 1),
}


_CONSTANTS: Mapping[type, Kind] = {type(None): "none", bool: "truth", str: "text"}


def constant_kind(value: object) -> Kind:
    return _CONSTANTS.get(type(value), "number")


def fits(kind: Kind, wanted: Kind) -> bool:
    return kind in (wanted, "any") or {kind, wanted} == {"number", "size"}


def may_be_equal(left: Kind, right: Kind) -> bool:
    """Whether two expressions of these kinds can be equal. A symbol's name is a text, and so is a type's."""
    if "any" in (left, right) or left == right:
        return True
    if "none" in (left, right):
        return not {"value", "truth"} & {left, right}
    pairs = ({"number", "size"}, {"size", "text"}, {"type", "text"})
    return {left, right} in pairs
