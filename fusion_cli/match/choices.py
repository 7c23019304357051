"""What a call of a pattern can be, anywhere or given a name that is bound, and which call to look at next."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import onnx_ir as ir

from fusion_cli.graph.index import GraphIndex
from fusion_cli.language.pattern import Call, Pattern
from fusion_cli.match.found import Idioms, Match
from fusion_cli.match.grow import Grower

Candidate = ir.Node | Match


class Choices:
    """Answers for all searches in one graph, with the idioms found so far."""

    def __init__(self, index: GraphIndex, idioms: Idioms) -> None:
        self.index = index
        self.idioms = idioms
        self.grower = Grower(index)
        self._nearest: dict[tuple[Pattern, frozenset[int]], tuple[Call, ...]] = {}

    def count(self, call: Call) -> int:
        """How many places of the model a call can stand for."""
        return self.idioms.places.get(call.op, 0) if call.is_pattern else len(self.all_of(call))

    def all_of(self, call: Call) -> Sequence[Candidate]:
        """Every place that a call can stand for; of an idiom, every reading."""
        if call.is_pattern:
            return self.idioms.by_name.get(call.op, ())
        return self.index.by_op.get((call.domain, call.op), ())

    def nearest(self, pattern: Pattern, assigned: Collection[int], bound: Collection[str]) -> Sequence[Call]:
        """The calls to choose from when those `assigned` are found, which bind the names `bound`: calls fixed by these
        rather than calls that grow, and with a result rather than an operand bound."""
        key = pattern, frozenset(assigned)
        if key not in self._nearest:
            ranks = {c: _distance(c, bound) for c in pattern.calls if c.index not in assigned}
            known = [r for r in ranks.values() if r is not None]
            self._nearest[key] = tuple(c for c, r in ranks.items() if known and r == min(known))
        return self._nearest[key]

    def of(self, call: Call, bindings: Mapping[str, ir.Value]) -> Sequence[Candidate]:
        """What a call can be, given one of its names that is bound. (A growing call has no such list.)"""
        if call.is_growing:
            return ()
        for name in call.outputs:
            if name in bindings:
                return self._producers(call, bindings[name])
        return self._consumers(call, bindings[next(i for i in call.inputs if i in bindings)])

    def fit(self, calls: Iterable[Call], name: str, value: ir.Value) -> bool:
        """Whether those of the calls that make and read a name are there, were it this value."""
        fixed = [c for c in calls if not c.is_growing]
        produced = all(self._producers(c, value) for c in fixed if name in c.outputs)
        return produced and all(self._consumers(c, value) for c in fixed if name in c.named_inputs)

    def _producers(self, call: Call, value: ir.Value) -> Sequence[Candidate]:
        if call.is_pattern:
            return self.idioms.producers(call.op, value)
        node = self.index.producer(value)
        return () if node is None or node.op_type != call.op or node.domain != call.domain else (node,)

    def _consumers(self, call: Call, value: ir.Value) -> Sequence[Candidate]:
        if call.is_pattern:
            return self.idioms.consumers(call.op, value)
        return self.index.readers_by_op(value, call.domain, call.op)


def _distance(call: Call, bound: Collection[str]) -> int | None:
    if any(o in bound for o in call.outputs):
        return 1 if call.is_growing else 0
    if any(i in bound for i in call.inputs):
        return 3 if call.is_growing else 2
    return None
