"""Kinds of what a condition speaks of: what predicates are asked about and answer, and which can be compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Kind = Literal["value", "number", "size", "type", "truth", "list", "text", "none", "any"]
"""What an expression stands for. A size is a number or a symbol; "any" is what only a match tells."""

FILTERS: Mapping[str, Kind] = {
    "abs": "number",
    "count": "number",
    "first": "any",
    "float": "number",
    "int": "number",
    "last": "any",
    "length": "number",
    "max": "any",
    "min": "any",
    "round": "number",
    "sum": "number",
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
    """What a predicate is asked about and answers; `least` arguments have to be there."""

    arguments: tuple[Kind, ...]
    result: Kind
    least: int


def _takes(result: Kind, *arguments: Kind, least: int = -1) -> Signature:
    return Signature(arguments, result, len(arguments) if least < 0 else least)


SIGNATURES: Mapping[str, Signature] = {
    "rank": _takes("number", "value"),
    "dim": _takes("size", "value", "number"),
    "shape": _takes("list", "value"),
    "size": _takes("number", "value", "number", least=1),
    "dtype": _takes("type", "value"),
    "is_constant": _takes("truth", "value"),
    "value": _takes("number", "value"),
    "consumers": _takes("number", "value"),
    "is_graph_input": _takes("truth", "value"),
    "is_graph_output": _takes("truth", "value"),
    "same_shape": _takes("truth", "value", "value"),
    "divisible": _takes("truth", "size", "number"),
    "summed": _takes("list", "text"),
}


def constant_kind(value: object) -> Kind:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "truth"
    return "text" if isinstance(value, str) else "number"


def fits(kind: Kind, wanted: Kind) -> bool:
    numbers = ("number", "size", "any")
    return kind in (wanted, "any") or (wanted in ("number", "size") and kind in numbers)


def may_be_equal(left: Kind, right: Kind) -> bool:
    """Whether two expressions of these kinds can be equal. A symbol's name is a text, and so is a type's."""
    if "any" in (left, right) or left == right:
        return True
    if "none" in (left, right):
        return not {"value", "truth"} & {left, right}
    pairs = ({"number", "size"}, {"size", "text"}, {"type", "text"})
    return {left, right} in pairs


def example(signature: Signature) -> str:
    """The arguments as an example has them."""
    examples: dict[Kind, str] = {"value": "x", "number": "0", "size": "dim(x, 0)", "text": "equation"}
    written = [examples[kind] for kind in signature.arguments]
    if signature.arguments == ("value", "value"):
        written[1] = "y"
    if signature.result == "truth" and signature.arguments[-1:] == ("number",):
        written[-1] = "8"
    return ", ".join(written)
