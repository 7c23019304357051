"""What stopped a search, as data; explain/words.py puts it in words for those that are kept."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import onnx_ir as ir

from fusion_cli.codes.match import ARITY, ATTRIBUTE, CONDITION, CONSTANT, DIFFERENT, MISSING
from fusion_cli.graph.index import GraphIndex
from fusion_cli.graph.origins import FILTERS, origin_of
from fusion_cli.language.pattern import Call, Pattern
from fusion_cli.language.predicates import conjuncts, holds, predicate_calls, unknown_sizes

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

    @property
    def line(self) -> int:
        """The line of the rule's file that was not met."""
        if 0 <= self.condition < len(self.pattern.where_lines):
            return self.pattern.where_lines[self.condition]
        return self.call.line if self.call is not None else self.pattern.line

    @property
    def names(self) -> Mapping[str, Any]:
        """What the names of a condition stand for."""
        return {**self.attributes, **self.bindings}

    def failed(self, index: GraphIndex) -> list[str]:
        """The parts of the condition that do not hold."""
        return list(self._failing(index))

    def _failing(self, index: GraphIndex) -> Iterator[str]:
        """The same one by one, as working out each takes its time."""
        condition = self.pattern.where[self.condition]
        failing = (part for part in conjuncts(condition) if not holds(part, self.names, index))
        first = next(failing, condition)
        yield first
        yield from failing

    def is_meant_otherwise(self, index: GraphIndex) -> bool:
        """Whether all that is wrong is that a value is no constant, and that it could not be: the product of two
        computed values is no linear layer, nor near one."""
        if self.code != CONDITION:
            return False
        for asked in filter(None, map(_IS_CONSTANT.fullmatch, conjuncts(self.pattern.where[self.condition]))):
            value = self.bindings.get(asked[1])
            if value is not None and not index.is_constant(value):
                return origin_of(value, index) == "data" and index.weighted(value).isdisjoint(FILTERS)
        return False

    def is_of_other_sizes(self, index: GraphIndex) -> bool:
        """Whether all that is wrong is that sizes, each of them known, are in another proportion: a third of a linear
        layer is a query, a ninth is not."""
        if self.code != CONDITION:
            return False
        first = next(self._failing(index))
        is_about_sizes = {predicate for predicate, _ in predicate_calls(first)} == {"dim"}
        return is_about_sizes and not unknown_sizes(first, self.names, index)


def closeness(code: str, value: ir.Value | None) -> int:
    """Among stops that got equally far, the one to report says more: an operator that is there but for an attribute,
    rather than one that is not; of two orders of operands, that with the constant in place."""
    if code == CONSTANT and value is not None and value.const_value is not None:
        return 3
    return {MISSING: 0, ARITY: 1, DIFFERENT: 1}.get(code, 2)


def short(value: object) -> str:
    """An attribute's value as it is read in messages."""
    if isinstance(value, list):
        text = f"[{', '.join(str(v.name) if isinstance(v, ir.Value) else str(v) for v in value)}]"
    else:
        text = f"{value:g}" if isinstance(value, float) else str(value)
    return text if len(text) <= 60 else text[:57] + "..."


class NoRegion(Exception):
    """Matched nodes that cannot run as one operator: the reason's code, and the node or value that shows it."""

    def __init__(self, code: str, node: ir.Node | None = None, value: ir.Value | None = None) -> None:
        super().__init__(code)
        self.code = code
        self.node = node
        self.value = value
