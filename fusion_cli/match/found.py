"""What matching finds: matches, misses, and the idioms that later rules are written in."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import onnx_ir as ir

from fusion_cli.match.pattern import Pattern
from fusion_cli.match.reasons import Stop


@dataclass(frozen=True, eq=False)
class Match:
    """A pattern found: what each name and each parameter bound, and the nodes it covers."""

    pattern: Pattern
    bindings: Mapping[str, ir.Value]
    nodes: frozenset[ir.Node]
    attributes: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def outputs(self) -> tuple[ir.Value, ...]:
        return tuple(self.bindings[name] for name in self.pattern.outputs)

    @cached_property
    def inputs(self) -> tuple[ir.Value | None, ...]:
        return tuple(self.bindings.get(name) for name in self.pattern.inputs)


@dataclass(frozen=True, eq=False)
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
    """The idiom matches found so far, by name and by the values they produce and read.

    The larger reading comes first: an attention with its mask before the bare one inside it.
    """

    by_name: dict[str, list[Match]] = field(default_factory=lambda: defaultdict(list))
    by_output: dict[tuple[str, ir.Value], list[Match]] = field(default_factory=lambda: defaultdict(list))
    by_input: dict[tuple[str, ir.Value], list[Match]] = field(default_factory=lambda: defaultdict(list))
    places: dict[str, int] = field(default_factory=dict)
    """How many different values each idiom produces; several readings of one value count once."""

    nearly: dict[str, list[Miss]] = field(default_factory=lambda: defaultdict(list))
    """Misses that would have been matches but for one thing."""
    near_by_value: dict[tuple[str, ir.Value], list[Miss]] = field(default_factory=lambda: defaultdict(list))

    def add_nearly(self, name: str, miss: Miss) -> None:
        if miss.match is not None:
            self.nearly[name].append(miss)
            for value in (*miss.match.outputs, *miss.match.inputs):
                if value is not None:
                    self.near_by_value[name, value].append(miss)

    def add(self, matches: Iterable[Match]) -> None:
        """All matches of one idiom."""
        for match in sorted(matches, key=lambda m: -len(m.nodes)):
            name = match.pattern.rule
            self.by_name[name].append(match)
            self.places[name] = self.places.get(name, 0) + ((name, match.outputs[0]) not in self.by_output)
            for value in match.outputs:
                self.by_output[name, value].append(match)
            for bound in match.inputs:
                if bound is not None:
                    self.by_input[name, bound].append(match)
