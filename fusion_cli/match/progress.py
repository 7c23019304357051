"""How far one search came: the furthest stop, and the one thing that a lenient search passes over."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import onnx_ir as ir

from fusion_cli.codes.match import CONSTANT, LIMIT
from fusion_cli.language.pattern import Call, Pattern
from fusion_cli.match.found import Match, Miss
from fusion_cli.match.stops import PASSABLE, Stop, closeness


class Progress:
    """The progress of a search for a pattern. `assigned` maps calls, by index, to the nodes that they matched."""

    def __init__(self, pattern: Pattern, lenient: bool) -> None:
        self.pattern = pattern
        self.lenient = lenient
        self.anchor: ir.Node | None = None
        self.assigned: dict[int, frozenset[ir.Node]] = {}
        self.forgiven: tuple[int, Stop] | None = None
        """The one thing that a lenient search has passed over, and the call it concerns; -1 for a condition."""
        self.miss: Miss | None = None
        self._rank = (-1, 0)

    @property
    def may_forgive(self) -> bool:
        """Whether the search goes on past one more stop, to learn whether it is the only one."""
        return self.lenient and self.forgiven is None

    def goes_on(self, code: str, call: Call | None = None, held: int = 0, **there: Any) -> bool:
        """Keep what stops the search if nothing got further, `held` conditions met; `there` is the rest of the Stop.
        Returns whether the search goes on all the same."""
        value: ir.Value | None = there.get("value")
        rank = len(self.assigned) + held, closeness(code, value)
        may_pass = self.may_forgive and code in PASSABLE
        if code == CONSTANT and (value is None or value.const_value is None):
            may_pass = False
        if rank > self._rank or may_pass:
            stop = Stop(self.pattern, code, call, **there)
            if rank > self._rank and self.anchor is not None:
                self._rank = rank
                self.miss = Miss(self.pattern, self.anchor, self.nodes(), frozenset(self.assigned), held, stop)
            if may_pass:
                self.forgiven = (-1 if call is None else call.index, stop)
        return may_pass

    def give_up(self, call: Call) -> None:
        """How far the search came still holds, but not that this was all there is."""
        if self.miss is not None:
            self.miss = replace(self.miss, stop=Stop(self.pattern, LIMIT, call))

    def nodes(self) -> frozenset[ir.Node]:
        """What has matched so far."""
        return frozenset().union(*self.assigned.values())

    def all_but_one(self, match: Match) -> Miss | None:
        """The miss of a pattern that matches but for the one thing that was forgiven; None if nothing was."""
        if self.forgiven is None or self.anchor is None:
            return None
        call, stop = self.forgiven
        held = len(self.pattern.where) - (call < 0)
        return Miss(self.pattern, self.anchor, match.nodes, frozenset(self.assigned) - {call}, held, stop, match)
