"""One attempt to find a pattern: from an anchor, grow along edges both ways, backtrack, remember how far it got."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import permutations
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from fusion_cli.match.found import Match, Miss
from fusion_cli.match.pattern import Call, Parameter, Pattern
from fusion_cli.match.predicates import holds
from fusion_cli.match.reasons import ARITY, ATTRIBUTE, CONDITION, CONSTANT, DIFFERENT, LIMIT, MISSING, Stop

if TYPE_CHECKING:
    from fusion_cli.match.engine import Matcher

COMMUTATIVE = frozenset({"Add", "Mul", "And", "Or", "Xor", "Equal", "Max", "Min", "Sum", "Mean"})
MOST_STEPS = 1000
"""Candidates that one search looks at, and looks at again for another match than the one found."""
MOST_PROBING_STEPS = 100
"""The same of a search that only asks whether one thing is missing."""
_TOLERANCE = {ir.DataType.FLOAT16: 2e-3, ir.DataType.BFLOAT16: 8e-3}


class Search:
    """One attempt from one anchor. `bindings` maps names to values, `assigned` calls to what they matched."""

    def __init__(self, matcher: Matcher, pattern: Pattern, *, lenient: bool = False) -> None:
        self.matcher = matcher
        self.index = matcher.index
        self.pattern = pattern
        self.bindings: dict[str, ir.Value] = {}
        self.attributes: dict[str, Any] = {}
        self.assigned: dict[int, frozenset[ir.Node]] = {}
        self.passed: dict[str, set[ir.Node]] = defaultdict(set)
        self.anchor: ir.Node | None = None
        self.lenient = lenient
        self.forgiven: tuple[int, Stop] | None = None
        """The one thing that a lenient search has passed over, and the call it concerns."""
        self.steps = 0
        self.last_step = MOST_PROBING_STEPS if lenient else MOST_STEPS
        self.best: tuple[tuple[int, int], Miss] | None = None

    def matches(self, anchor: Call, candidate: ir.Node | Match) -> Iterator[Match]:
        """The first match at the anchor, and one for each other result it leads to: two norms can share what they
        subtract the mean from, two products the weights of one softmax."""
        self.anchor = (
            max(candidate.nodes, key=self.index.position.__getitem__) if isinstance(candidate, Match) else candidate
        )
        results = set()
        for _ in self._assign(anchor, candidate):
            match = self._finish()
            if match.outputs not in results:
                yield match
            results.add(match.outputs)
            if not self._is_shared(match):
                return
            self.last_step = self.steps + MOST_STEPS

    def _is_shared(self, match: Match) -> bool:
        """Whether a value that is made and read inside the match is read outside as well."""
        for value in self.bindings.values():
            readers = len(self.index.readers(value))
            if readers < 2 or value in match.inputs:
                continue
            if 0 < self.index.count_readers(value, match.nodes) < readers:
                return True
        return False

    def run(self, anchor: Call, candidate: ir.Node | Match) -> Match | None:
        return next(self.matches(anchor, candidate), None)

    def all_but_one(self, anchor: Call, candidate: ir.Node | Match) -> Miss | None:
        """The miss of a pattern that matches but for one thing; None if more than that is wrong."""
        match = self.run(anchor, candidate)
        if match is None or self.forgiven is None or self.anchor is None:
            return None
        call, stop = self.forgiven
        calls = frozenset(self.assigned) - {call}
        held = len(self.pattern.where) - (call < 0)
        return Miss(self.pattern, self.anchor, match.nodes, calls, held, stop, match)

    def around(self, anchor: Call, near: Miss) -> Miss | None:
        """The same, starting from what is nearly the idiom that the anchor calls."""
        self.forgiven = (anchor.index, near.stop)
        return None if near.match is None else self.all_but_one(anchor, near.match)

    @property
    def miss(self) -> Miss | None:
        return None if self.best is None else self.best[1]

    def _finish(self) -> Match:
        interior = set(self.bindings) - set(self.pattern.inputs)
        casts = frozenset().union(*(self.passed[name] for name in interior)) if interior else frozenset()
        nodes = frozenset().union(*self.assigned.values()) | casts
        return Match.of(self.pattern, nodes, self.bindings, self.attributes)

    # ---- one step: choose a call that touches what is bound, try everything it can be

    def _extend(self) -> Iterator[None]:
        if len(self.assigned) == len(self.pattern.calls):
            if self._conditions_hold():
                yield
            return
        call = self._next_call()
        if call is None:
            return
        if call.is_growing:
            yield from self._grow(call)
            return
        tried = False
        for candidate in self._neighbours(call):
            if self.steps >= self.last_step:
                self._give_up(call)
                return
            tried = True
            yield from self._assign(call, candidate)
        if not tried:
            name = next(n for n in (*call.outputs, *call.inputs) if n in self.bindings)
            if self._is_further(0):
                self._note(Stop(self.pattern, MISSING, call, self.bindings[name], name=name))
            if self.lenient and self.forgiven is None:
                for near in self.matcher.idioms.near_by_value.get((call.op, self.bindings[name]), ()):
                    if call.is_pattern and near.match is not None:
                        self.forgiven = (call.index, near.stop)
                        yield from self._assign(call, near.match)
                        self.forgiven = None

    def _next_call(self) -> Call | None:
        """The call to look at next: one that is fixed by what is bound rather than one that grows, with a result rather
        than an operand bound, and among those the one with the fewest candidates."""
        key = self.pattern, frozenset(self.assigned)
        if key not in self.matcher.order:
            self.matcher.order[key] = self._nearest_calls()
        nearest = self.matcher.order[key]
        return min(nearest, key=self._choices) if len(nearest) > 1 else next(iter(nearest), None)

    def _choices(self, call: Call) -> float:
        """How many candidates a call has. One that has none comes last: a miss is told of with all that did match."""
        return len(self._neighbours(call)) or math.inf

    def _nearest_calls(self) -> tuple[Call, ...]:
        def rank(call: Call) -> int:
            outputs = any(o in self.bindings for o in call.outputs)
            inputs = any(i in self.bindings for i in call.inputs)
            if not outputs and not inputs:
                return 9
            return (0 if outputs else 2) + (1 if call.is_growing else 0)

        ranks = {c: rank(c) for c in self.pattern.calls if c.index not in self.assigned}
        least = min(ranks.values())
        return tuple(c for c, r in ranks.items() if r == least < 9)

    def _neighbours(self, call: Call) -> Sequence[ir.Node | Match]:
        """What a call can be, told from one of its names that is bound. (A growing call has no such list.)"""
        if call.is_growing:
            return ()
        for name in call.outputs:
            if name in self.bindings:
                return self._makers(call, self.bindings[name])
        return self._readers(call, self.bindings[next(i for i in call.inputs if i in self.bindings)])

    def _makers(self, call: Call, value: ir.Value) -> Sequence[ir.Node | Match]:
        if call.is_pattern:
            return self.matcher.idioms.by_output.get((call.op, value), ())
        node = self.index.producer(value)
        return () if node is None or not self._is(call, node) else (node,)

    def _readers(self, call: Call, value: ir.Value) -> Sequence[ir.Node | Match]:
        if call.is_pattern:
            return self.matcher.idioms.reading(call.op, value)
        return self.index.readers_by_op(value, call.domain, call.op)

    def _fits(self, name: str, value: ir.Value) -> bool:
        """Whether the calls that make and read a name are there, were it this value."""
        fixed = [c for c in self.pattern.calls if c.index not in self.assigned and not c.is_growing]
        return self.lenient or (
            all(self._makers(c, value) for c in fixed if name in c.outputs)
            and all(self._readers(c, value) for c in fixed if name in c.named_inputs)
        )

    def _is(self, call: Call, node: ir.Node) -> bool:
        return node.op_type == call.op and node.domain == call.domain

    # ---- a call against a node or an idiom

    def _assign(self, call: Call, candidate: ir.Node | Match) -> Iterator[None]:
        self.steps += 1
        nodes = candidate.nodes if isinstance(candidate, Match) else frozenset([candidate])
        if not all(map(nodes.isdisjoint, self.assigned.values())):
            return
        forgiven = self.forgiven
        attributes = self._with_attributes(call, candidate)
        if attributes is None or not self._has_arity(call, candidate):
            self.forgiven = forgiven
            return
        inputs: Sequence[ir.Value | None] = (
            candidate.inputs if isinstance(candidate, Match) else self.index.inputs(candidate)
        )
        outputs: Sequence[ir.Value] = candidate.outputs
        commutes = call.op in COMMUTATIVE and not call.domain
        places = tuple(range(len(call.named_inputs)))
        orders = permutations(places) if commutes else [places]
        for order in orders:
            mark = dict(self.bindings), self.attributes, self.forgiven
            if self._unify(call, [inputs[i] for i in order], outputs):
                self.attributes = attributes
                self.assigned[call.index] = nodes
                yield from self._extend()
                del self.assigned[call.index]
            self.bindings, self.attributes, self.forgiven = mark
        self.forgiven = forgiven

    def _has_arity(self, call: Call, candidate: ir.Node | Match) -> bool:
        least = len(call.named_inputs)
        if isinstance(candidate, Match):
            return len(candidate.inputs) >= least
        inputs, outputs = len(self.index.inputs(candidate)), len(call.outputs)
        wanted = ""
        if inputs < least or (inputs > least and not call.takes_more):
            wanted = f"{call.op} with {least} inputs"
        elif 1 < outputs != len(candidate.outputs):
            wanted = f"{call.op} with {outputs} outputs"
        if wanted:
            self._note(Stop(self.pattern, ARITY, call, node=candidate, expected=wanted))
        return not wanted

    def _unify(self, call: Call, inputs: Sequence[ir.Value | None], outputs: Sequence[ir.Value]) -> bool:
        for name, output in zip(call.outputs, outputs, strict=False):
            if name and self.bindings.setdefault(name, output) is not output:
                return False
        for name, value in zip(call.named_inputs, inputs, strict=False):
            if not name or value is None:
                if name or value is not None:
                    return False
            elif name in self.pattern.constants:
                if not self._is_number(value, self.pattern.constants[name]):
                    stop = Stop(self.pattern, CONSTANT, call, value, outputs[0].producer(), name)
                    if value.const_value is None or not self._forgive(stop):
                        self._note(stop)
                        return False
            else:
                root, casts = self.index.root(value)
                bound = self.bindings.setdefault(name, root)
                if bound is not root:
                    if self._is_further(1):
                        self._note(Stop(self.pattern, DIFFERENT, call, root, outputs[0].producer(), name, bound))
                    return False
                self.passed[name].update(casts)
        return True

    def _is_number(self, value: ir.Value, number: float) -> bool:
        found = self.index.scalar(value)
        if found is None:
            return False
        tolerance = _TOLERANCE.get(value.dtype, 1e-4) if value.dtype is not None else 1e-4
        return bool(np.isclose(found, number, rtol=tolerance, atol=0.0))

    def _with_attributes(self, call: Call, candidate: ir.Node | Match) -> dict[str, Any] | None:
        """The parameters with those that the call binds, or None if an attribute is not what it asks for."""
        if not call.attributes:
            return self.attributes
        bound = self.attributes
        found = candidate.attributes if isinstance(candidate, Match) else self.index.attributes(candidate)
        for name, asked in call.attributes.items():
            expected = bound.get(asked.name, found.get(name)) if isinstance(asked, Parameter) else asked
            if expected is None or not _same(found.get(name), expected):
                wanted = asked if expected is None else expected
                if not self._forgive(_attribute_stop(self.pattern, call, candidate, name, wanted, found)):
                    return None
            if isinstance(asked, Parameter):
                bound = {**bound, asked.name: expected}
        return bound

    # ---- growing regions

    def _grow(self, call: Call) -> Iterator[None]:
        source, target = call.inputs[0], call.outputs[0]
        taken = frozenset().union(*self.assigned.values())
        if target in self.bindings:
            known = self.bindings.get(source)
            fits = partial(self._fits, source)
            options = self.matcher.grower.backward(call, self.bindings[target], known, taken, fits)
            if source not in self.bindings and self.pattern.is_open(source):
                # Nothing else says where the region starts, so it starts as far up as it can.
                options = iter(list(options)[::-1])
        elif any(target in c.inputs for c in self.pattern.calls):
            options = self.matcher.grower.forward(call, self.bindings[source], taken, partial(self._fits, target))
        else:
            grown = self.matcher.grower.maximal(call, self.bindings[source], taken)
            options = iter([] if grown is None else [grown])
        tried = False
        for grown in options:
            tried = True
            mark = dict(self.bindings)
            self.bindings[source] = grown.source
            self.bindings[target] = grown.target
            self.assigned[call.index] = grown.nodes
            yield from self._extend()
            del self.assigned[call.index]
            self.bindings = mark
        if not tried and self._is_further(0):
            name = target if target in self.bindings else source
            self._note(Stop(self.pattern, MISSING, call, self.bindings[name], name=name))

    # ---- why not

    def _conditions_hold(self) -> bool:
        for i, condition in enumerate(self.pattern.where):
            if not holds(condition, {**self.attributes, **self.bindings}, self.index):
                bound = dict(self.bindings)
                stop = Stop(self.pattern, CONDITION, condition=i, bindings=bound, attributes=self.attributes)
                if not self._forgive(stop, held=i):
                    return False
        return True

    def _note(self, stop: Stop, held: int = 0) -> None:
        """Remember a stop if nothing got further; `held` counts the conditions that were met."""
        if self._is_further(stop.closeness, held) and self.anchor is not None:
            rank = (len(self.assigned) + held, stop.closeness)
            nodes = frozenset().union(*self.assigned.values())
            self.best = (rank, Miss(self.pattern, self.anchor, nodes, frozenset(self.assigned), held, stop))

    def _give_up(self, call: Call) -> None:
        """How far the search came still holds, but not that this was all there is."""
        if self.best is not None:
            rank, miss = self.best
            self.best = rank, replace(miss, stop=Stop(self.pattern, LIMIT, call))

    def _is_further(self, closeness: int, held: int = 0) -> bool:
        return self.best is None or (len(self.assigned) + held, closeness) > self.best[0]

    def _forgive(self, stop: Stop, held: int = 0) -> bool:
        """Note a stop; whether to go on past it all the same, to learn whether it is the only one."""
        self._note(stop, held)
        if not self.lenient or self.forgiven is not None:
            return False
        self.forgiven = (-1 if stop.call is None else stop.call.index, stop)
        return True


def _same(found: Any, expected: Any) -> bool:
    if isinstance(expected, float) and isinstance(found, (int, float)):
        return bool(np.isclose(found, expected, rtol=1e-4))
    if isinstance(expected, list) and isinstance(found, str):
        return found in expected
    if isinstance(expected, list) and found is not None and not isinstance(found, (int, float)):
        return list(found) == expected
    return bool(found == expected)


def _attribute_stop(
    pattern: Pattern, call: Call, candidate: ir.Node | Match, name: str, expected: object, attributes: Mapping[str, Any]
) -> Stop:
    node = candidate.outputs[0].producer() if isinstance(candidate, Match) else candidate
    there = attributes.get(name)
    shown = f"no {name}" if there is None else f"{name} = {_short(there)}"
    return Stop(
        pattern,
        ATTRIBUTE,
        call,
        node=node,
        name=name,
        expected=f"{call.op} with {name} = {_short(expected)}",
        found=shown,
    )


def _short(value: object) -> str:
    if isinstance(value, list):
        text = f"[{', '.join(str(v.name) if isinstance(v, ir.Value) else str(v) for v in value)}]"
    else:
        text = f"{value:g}" if isinstance(value, float) else str(value)
    return text if len(text) <= 60 else text[:57] + "..."
