"""One attempt to find a pattern: from an anchor, grow along edges both ways, backtrack, remember how far it got."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import onnx_ir as ir

from fusion_cli.codes.match import ARITY, ATTRIBUTE, CONDITION, CONSTANT, DIFFERENT, MISSING, SIZES
from fusion_cli.language.pattern import Call, Parameter, Pattern
from fusion_cli.language.predicates import holds
from fusion_cli.match.choices import Candidate, Choices
from fusion_cli.match.found import Match, Miss
from fusion_cli.match.grow import Grown
from fusion_cli.match.progress import Progress
from fusion_cli.sizes.dims import shown_shape

MOST_STEPS = 1000
"""Candidates that one search looks at, and looks at again for another match than the one found."""
MOST_PROBING_STEPS = 100
"""The same of a search that only asks how near the pattern comes."""
_NO_NODES: Mapping[str, frozenset[ir.Node]] = {}
_TOLERANCE: Mapping[ir.DataType | None, float] = {ir.DataType.FLOAT16: 2e-3, ir.DataType.BFLOAT16: 8e-3}
"""Relative; constants are rounded to the model's type."""


class Search:
    """One attempt from one anchor. Of what it binds nothing is changed in place, so that it can step back."""

    def __init__(self, choices: Choices, pattern: Pattern, *, probing: bool = False, lenient: bool = False) -> None:
        self.choices = choices
        self.index = choices.index
        self.pattern = pattern
        self.progress = Progress(pattern, lenient)
        self.assigned = self.progress.assigned
        self.bindings: Mapping[str, ir.Value] = {}
        self.attributes: Mapping[str, Any] = {}
        self.passed = _NO_NODES
        """By name: the casts that were looked through to the value it is bound to."""
        self.probing = probing or lenient
        self.steps = 0
        self.last_step = MOST_PROBING_STEPS if self.probing else MOST_STEPS

    def matches(self, anchor: Call, candidate: Candidate) -> Iterator[Match]:
        """The first match at the anchor, and one for each other result it leads to: two norms can share what they
        subtract the mean from, two products the weights of one softmax."""
        nodes = candidate.nodes if isinstance(candidate, Match) else (candidate,)
        self.progress.anchor = max(nodes, key=self.index.position.__getitem__)
        results = set()
        for _ in self._assign(anchor, candidate):
            match = self._match()
            if match.outputs not in results:
                yield match
            results.add(match.outputs)
            if not self._is_shared(match):
                return
            self.last_step = self.steps + MOST_STEPS

    def all_but_one(self, anchor: Call, candidate: Candidate) -> Miss | None:
        """The miss of a pattern that matches but for one thing; None if more than that is wrong."""
        match = next(self.matches(anchor, candidate), None)
        return None if match is None else self.progress.all_but_one(match)

    def around(self, anchor: Call, near: Miss) -> Miss | None:
        """The same, starting from what is nearly the idiom that the anchor calls."""
        self.progress.forgiven = (anchor.index, near.stop)
        return None if near.match is None else self.all_but_one(anchor, near.match)

    def _match(self) -> Match:
        casts = [nodes for name, nodes in self.passed.items() if name not in self.pattern.inputs]
        parts = [*self.assigned.values(), *casts]
        nodes = parts[0] if len(parts) == 1 else frozenset().union(*parts)
        return Match.of(self.pattern, nodes, self.bindings, self.attributes)

    def _is_shared(self, match: Match) -> bool:
        """Whether a value that is made and read inside the match is read outside as well."""
        for value in self.bindings.values():
            readers = len(self.index.readers(value))
            if readers < 2 or value in match.inputs:
                continue
            if 0 < self.index.count_readers(value, match.nodes) < readers:
                return True
        return False

    # ---- one step: choose a call that touches what is bound, try everything it can be

    def _extend(self) -> Iterator[None]:
        if len(self.assigned) == len(self.pattern.calls):
            if self._conditions_hold():
                yield
            return
        nearest = self.choices.nearest(self.pattern, self.assigned, self.bindings)
        if not nearest:
            return
        # The one with the fewest candidates. One that has none comes last: a miss is reported with all that did match.
        tried = [(call, self.choices.of(call, self.bindings)) for call in nearest]
        call, candidates = min(tried, key=lambda c: len(c[1]) or math.inf)
        if call.is_growing:
            yield from self._grow(call)
        elif candidates:
            for candidate in candidates:
                if self._is_over(call):
                    return
                yield from self._assign(call, candidate)
        else:
            name = next(n for n in (*call.outputs, *call.inputs) if n in self.bindings)
            self.progress.goes_on(MISSING, call, value=self.bindings[name], name=name)
            if call.is_pattern and self.progress.may_forgive:
                yield from self._assign_nearly(call, self.bindings[name])

    def _conditions_hold(self) -> bool:
        names = {**self.attributes, **self.bindings}
        for i, condition in enumerate(self.pattern.where):
            if not holds(condition, names, self.index):
                bound, attributes = self.bindings, self.attributes
                if not self.progress.goes_on(CONDITION, held=i, condition=i, bindings=bound, attributes=attributes):
                    return False
        return True

    # ---- a call against a node or an idiom

    def _assign_nearly(self, call: Call, value: ir.Value) -> Iterator[None]:
        for near in self.choices.idioms.near_by_value.get((call.op, value), ()):
            if near.match is not None:
                self.progress.forgiven = (call.index, near.stop)
                yield from self._assign(call, near.match)
                self.progress.forgiven = None

    def _is_over(self, call: Call) -> bool:
        """Whether the search has looked at as many candidates as it may."""
        over = self.steps >= self.last_step
        if over and not self.probing:
            self.progress.give_up(call)
        return over

    def _assign(self, call: Call, candidate: Candidate) -> Iterator[None]:
        self.steps += 1
        nodes = candidate.nodes if isinstance(candidate, Match) else frozenset((candidate,))
        if not all(map(nodes.isdisjoint, self.assigned.values())):
            return
        attributes, forgiven = self.attributes, self.progress.forgiven
        if self._has_attributes(call, candidate) and self._has_arity(call, candidate):
            inputs = candidate.inputs if isinstance(candidate, Match) else self.index.inputs(candidate)
            bound = self.bindings, self.passed, self.progress.forgiven
            for order in call.orders:
                if self._unify(call, [inputs[i] for i in order], candidate.outputs):
                    self.assigned[call.index] = nodes
                    yield from self._extend()
                    del self.assigned[call.index]
                self.bindings, self.passed, self.progress.forgiven = bound
        self.attributes, self.progress.forgiven = attributes, forgiven

    def _has_arity(self, call: Call, candidate: Candidate) -> bool:
        least = len(call.named_inputs)
        if isinstance(candidate, Match):
            return len(candidate.inputs) >= least
        inputs, outputs = len(self.index.inputs(candidate)), len(call.outputs)
        if inputs < least or (inputs > least and not call.takes_more):
            return self.progress.goes_on(ARITY, call, node=candidate, expected=f"{call.op} with {least} inputs")
        if 1 < outputs != len(candidate.outputs):
            return self.progress.goes_on(ARITY, call, node=candidate, expected=f"{call.op} with {outputs} outputs")
        return True

    def _has_attributes(self, call: Call, candidate: Candidate) -> bool:
        """Whether attributes are what the call asks for; parameters are bound to what they are."""
        if not call.attributes:
            return True
        found = candidate.attributes if isinstance(candidate, Match) else self.index.attributes(candidate)
        for name, asked in call.attributes.items():
            there = found.get(name)
            wanted = self.attributes.get(asked.name, there) if isinstance(asked, Parameter) else asked
            if wanted is None or not _is_attribute(there, wanted):
                expected = asked if wanted is None else wanted
                node = candidate.outputs[0].producer()
                if not self.progress.goes_on(ATTRIBUTE, call, node=node, name=name, expected=expected, found=there):
                    return False
            if isinstance(asked, Parameter):
                self.attributes = {**self.attributes, asked.name: wanted}
        return True

    def _unify(self, call: Call, inputs: Sequence[ir.Value | None], outputs: Sequence[ir.Value]) -> bool:
        """Bind the names of a call to values, if none is bound to another one."""
        bindings = dict(self.bindings)
        self.bindings = bindings
        for name, output in zip(call.outputs, outputs, strict=False):
            if name and bindings.setdefault(name, output) is not output:
                return False
        constants = self.pattern.constants
        for name, value in zip(call.named_inputs, inputs, strict=False):
            if not name or value is None:
                if name or value is not None:
                    return False
            elif name in constants:
                found = self.index.scalar(value)
                if found is None or not is_number(found, constants[name], value.dtype):
                    node = outputs[0].producer()
                    if not self.progress.goes_on(CONSTANT, call, value=value, node=node, name=name):
                        return False
            else:
                root, casts = self.index.root(value)
                bound = bindings.setdefault(name, root)
                if bound is not root:
                    node = outputs[0].producer()
                    return self.progress.goes_on(DIFFERENT, call, value=root, node=node, name=name, bound=bound)
                if casts:
                    self.passed = {**self.passed, name: self.passed.get(name, frozenset()).union(casts)}
        return True

    # ---- growing regions

    def _grow(self, call: Call) -> Iterator[None]:
        source, target = call.inputs[0], call.outputs[0]
        tried = False
        for grown in self._regions(call, source, target):
            if self._is_over(call):
                return
            self.steps += 1
            tried = True
            bindings = self.bindings
            self.bindings = {**bindings, source: grown.source, target: grown.target}
            self.assigned[call.index] = grown.nodes
            yield from self._extend()
            if target in bindings:
                self._doubt(call)
            del self.assigned[call.index]
            self.bindings = bindings
        if not tried:
            name = target if target in self.bindings else source
            self.progress.goes_on(MISSING, call, value=self.bindings[name], name=name)

    def _doubt(self, call: Call) -> None:
        """Where a growing call ends at a reshape that it could go through, were sizes known: that is what stops it."""
        node = self.choices.grower.doubtful(call, self.bindings[call.outputs[0]])
        if node is not None:
            before, after = node.inputs[0], node.outputs[0]
            assert before is not None
            expected = f"a reshape that keeps the last axis of '{before.name}', {shown_shape(before)}"
            found = shown_shape(after).strip()
            self.progress.goes_on(SIZES, call, value=after, node=node, expected=expected, found=found)

    def _regions(self, call: Call, source: str, target: str) -> Iterator[Grown]:
        grower, taken = self.choices.grower, self.progress.nodes()
        if target in self.bindings:
            known = self.bindings.get(source)
            grown = grower.backward(call, self.bindings[target], known, taken, partial(self._fits, source))
            # Where nothing else says where the region starts, it starts as far up as it can.
            return reversed(list(grown)) if known is None and self.pattern.is_open(source) else grown
        if any(target in c.inputs for c in self.pattern.calls):
            return grower.forward(call, self.bindings[source], taken, partial(self._fits, target))
        return grower.maximal(call, self.bindings[source], taken)

    def _fits(self, name: str, value: ir.Value) -> bool:
        """Whether the calls that make and read a name are there, were it this value."""
        if self.progress.may_forgive:
            return True
        left = (c for c in self.pattern.calls if c.index not in self.assigned)
        return self.choices.fit(left, name, value)


def is_number(found: float, expected: float, dtype: ir.DataType | None) -> bool:
    """Whether a number is the expected one, as far as its type can hold it."""
    return math.isclose(found, expected, rel_tol=_TOLERANCE.get(dtype, 1e-4))


def _is_attribute(found: Any, expected: Any) -> bool:
    """Whether an attribute has the expected value; of several texts any will do."""
    if isinstance(expected, float) and isinstance(found, (int, float)):
        return math.isclose(found, expected, rel_tol=1e-4, abs_tol=1e-8)
    if isinstance(expected, list) and isinstance(found, str):
        return found in expected
    if isinstance(expected, list) and found is not None and not isinstance(found, (int, float)):
        return list(found) == expected
    return bool(found == expected)
