"""What matching finds: matches, misses, and the idioms that later rules are written in."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import onnx_ir as ir

from fusion_cli.language.pattern import Pattern
from fusion_cli.match.stops import Stop

_NONE: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, eq=False, slots=True)
class Match:
    """A pattern found: the nodes it covers, and what the names and parameters of its header bound."""

    pattern: Pattern
    nodes: frozenset[ir.Node]
    inputs: tuple[ir.Value | None, ...]
    outputs: tuple[ir.Value, ...]
    attributes: Mapping[str, Any]

    @classmethod
    def of(
        cls,
        pattern: Pattern,
        nodes: frozenset[ir.Node],
        bindings: Mapping[str, ir.Value],
        attributes: Mapping[str, Any] = _NONE,
    ) -> Match:
        """The match in which these names are bound."""
        inputs = tuple(map(bindings.get, pattern.inputs))
        outputs = tuple(map(bindings.__getitem__, pattern.outputs))
        return cls(pattern, nodes, inputs, outputs, dict(attributes) if attributes else _NONE)


@dataclass(frozen=True, eq=False, slots=True)
class Miss:
    """The furthest a pattern got from one anchor: the nodes and calls that had matched, how many conditions held, and
    what stopped it. Where that was all that did, `match` is the match it would have been. `nearness` (0 to 1) takes
    the place of calls for rules that are not matched by them."""

    pattern: Pattern
    anchor: ir.Node
    nodes: frozenset[ir.Node]
    calls: frozenset[int]
    held: int
    stop: Stop
    match: Match | None = None
    nearness: float = 0.0


@dataclass
class Idioms:
    """The idiom matches found so far, by name, and by the values that they make and read.

    The larger reading comes first: an attention with its mask before the bare one inside it.
    """

    by_name: dict[str, Sequence[Match]] = field(default_factory=dict)
    places: dict[str, int] = field(default_factory=dict)
    """How many different values each idiom makes; several readings of one value count once."""
    nearly: dict[str, list[Miss]] = field(default_factory=lambda: defaultdict(list))
    """Misses that would have been matches but for one thing."""
    near_by_value: dict[tuple[str, ir.Value], list[Miss]] = field(default_factory=lambda: defaultdict(list))
    _producers: dict[tuple[str, ir.Value], list[Match]] = field(default_factory=lambda: defaultdict(list))
    _consumers: dict[tuple[str, ir.Value | None], list[Match]] = field(default_factory=lambda: defaultdict(list))

    def add(self, name: str, matches: Iterable[Match]) -> None:
        """All matches of one idiom."""
        ranked = tuple(sorted(matches, key=lambda m: -len(m.nodes)))
        if ranked:
            self.by_name[name] = ranked
            self.places[name] = len({m.outputs[0] for m in ranked})
        for match in ranked:
            for made in match.outputs:
                self._producers[name, made].append(match)
            for read in match.inputs:
                self._consumers[name, read].append(match)

    def add_nearly(self, name: str, miss: Miss) -> None:
        """A miss of an idiom, if it is but for one thing a match."""
        if miss.match is not None:
            self.nearly[name].append(miss)
            for value in (*miss.match.outputs, *miss.match.inputs):
                if value is not None:
                    self.near_by_value[name, value].append(miss)

    def meanings(self, node: ir.Node, names: Iterable[str]) -> tuple[str, ...]:
        """Those of these idioms that the node is part of."""
        return tuple(name for name in names if any(node in m.nodes for m in self.by_name.get(name, ())))

    def producers(self, name: str, value: ir.Value) -> Sequence[Match]:
        """The matches of an idiom that produce a value."""
        return self._producers.get((name, value), ())

    def consumers(self, name: str, value: ir.Value) -> Sequence[Match]:
        """The matches of an idiom that consume a value."""
        return self._consumers.get((name, value), ())
