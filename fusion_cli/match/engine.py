"""Find a pattern in a graph: anchor on its rarest operator, grow along edges both ways, backtrack.

A pattern names operators and idioms. Idioms found earlier take part as if they were operators: their inputs are the
values their parameters bound. Several readings of the same nodes coexist; nothing is rewritten while matching.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any

import numpy as np
import onnx_ir as ir

from fusion_cli.match.graph import GraphIndex
from fusion_cli.match.grow import Grower
from fusion_cli.match.pattern import Call, Pattern
from fusion_cli.match.predicates import describe, holds

COMMUTATIVE = frozenset({"Add", "Mul", "And", "Or", "Xor", "Equal", "Max", "Min", "Sum", "Mean"})
_TOLERANCE = {ir.DataType.FLOAT16: 2e-3, ir.DataType.BFLOAT16: 8e-3}


@dataclass(frozen=True, eq=False)
class Match:
    """A pattern found: what each name bound, the nodes it covers, and the values of its outputs."""

    pattern: Pattern
    bindings: Mapping[str, ir.Value]
    nodes: frozenset[ir.Node]

    @property
    def outputs(self) -> tuple[ir.Value, ...]:
        return tuple(self.bindings[name] for name in self.pattern.outputs)

    @property
    def inputs(self) -> tuple[ir.Value | None, ...]:
        return tuple(self.bindings.get(name) for name in self.pattern.inputs)


@dataclass(frozen=True)
class Miss:
    """The furthest a pattern got from one anchor, and what stopped it."""

    rule: str
    node: ir.Node
    progress: float
    code: str
    expected: str
    found: str


@dataclass
class Idioms:
    """The idiom matches found so far, by name and by the value they produce."""

    by_name: dict[str, list[Match]] = field(default_factory=lambda: defaultdict(list))
    by_output: dict[tuple[str, ir.Value], list[Match]] = field(default_factory=lambda: defaultdict(list))
    by_input: dict[tuple[str, ir.Value], list[Match]] = field(default_factory=lambda: defaultdict(list))

    def add(self, match: Match) -> None:
        name = match.pattern.rule
        self.by_name[name].append(match)
        for value in match.outputs:
            self.by_output[name, value].append(match)
        for bound in match.inputs:
            if bound is not None:
                self.by_input[name, bound].append(match)


class Matcher:
    """Finds patterns in one graph."""

    def __init__(self, index: GraphIndex, idioms: Idioms) -> None:
        self.index = index
        self.idioms = idioms
        self.grower = Grower(index)

    def find(self, pattern: Pattern) -> tuple[list[Match], list[Miss]]:
        """All matches of a pattern, one per set of nodes, and the nearest misses."""
        fixed = [c for c in pattern.calls if not c.is_growing]
        if not fixed:
            return [], []
        anchor, *others = sorted(fixed, key=lambda c: len(self.candidates(c)))
        found, misses, silent = self._from(pattern, anchor)
        if silent and others:
            # The anchor itself was wrong, so nothing says how close the rest came: ask the next rarest operator.
            misses += self._from(pattern, others[0])[1]
        return found, misses

    def _from(self, pattern: Pattern, anchor: Call) -> tuple[list[Match], list[Miss], bool]:
        """Matches and misses from one anchor, and whether some candidate failed before anything was matched."""
        found: dict[frozenset[ir.Node], Match] = {}
        misses: list[Miss] = []
        silent = False
        for candidate in self.candidates(anchor):
            search = _Search(self, pattern)
            match = search.run(anchor, candidate)
            if match is not None:
                found.setdefault(match.nodes, match)
                continue
            missed = search.miss()
            misses += missed
            silent = silent or not missed
        return list(found.values()), misses, silent

    def candidates(self, call: Call) -> Sequence[ir.Node | Match]:
        if call.is_pattern:
            # The larger reading first: a linear layer with its bias before the bare product inside it.
            return sorted(self.idioms.by_name.get(call.op, ()), key=lambda m: -len(m.nodes))
        return self.index.by_op.get((call.domain, call.op), ())


class _Search:
    """One attempt from one anchor. `bindings` maps names to values, `assigned` calls to what they matched."""

    def __init__(self, matcher: Matcher, pattern: Pattern) -> None:
        self.matcher = matcher
        self.index = matcher.index
        self.pattern = pattern
        self.bindings: dict[str, ir.Value] = {}
        self.assigned: dict[int, frozenset[ir.Node]] = {}
        self.passed: dict[str, set[ir.Node]] = defaultdict(set)
        self.anchor: ir.Node | None = None
        self.best: tuple[int, str, str, str] = (0, "", "", "")

    def run(self, anchor: Call, candidate: ir.Node | Match) -> Match | None:
        self.anchor = (
            candidate if isinstance(candidate, ir.Node) else max(candidate.nodes, key=self.index.position.__getitem__)
        )
        for _ in self._assign(anchor, candidate):
            return self._finish()
        return None

    def miss(self) -> list[Miss]:
        depth, code, expected, found = self.best
        if not depth or self.anchor is None:
            return []
        return [Miss(self.pattern.rule, self.anchor, depth / len(self.pattern.calls), code, expected, found)]

    def _finish(self) -> Match:
        interior = set(self.bindings) - set(self.pattern.inputs)
        casts = frozenset().union(*(self.passed[name] for name in interior)) if interior else frozenset()
        return Match(self.pattern, dict(self.bindings), frozenset().union(*self.assigned.values()) | casts)

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
            tried = True
            yield from self._assign(call, candidate)
        if not tried:
            self._note("FUS101", str(call), self._what_is_there(call))

    def _next_call(self) -> Call | None:
        def rank(call: Call) -> int:
            outputs = any(o in self.bindings for o in call.outputs)
            inputs = any(i in self.bindings for i in call.inputs)
            if not outputs and not inputs:
                return 9
            return (0 if outputs else 2) + (1 if call.is_growing else 0)

        waiting = [c for c in self.pattern.calls if c.index not in self.assigned]
        call = min(waiting, key=rank)
        return call if rank(call) < 9 else None

    def _neighbours(self, call: Call) -> Iterator[ir.Node | Match]:
        for name in call.outputs:
            if name in self.bindings:
                value = self.bindings[name]
                if call.is_pattern:
                    found = self.matcher.idioms.by_output.get((call.op, value), ())
                    yield from sorted(found, key=lambda m: -len(m.nodes))
                elif (node := self.index.producer(value)) is not None and self._is(call, node):
                    yield node
                return
        name = next(i for i in call.inputs if i in self.bindings)
        if call.is_pattern:
            found = self.matcher.idioms.by_input.get((call.op, self.bindings[name]), ())
            yield from sorted(found, key=lambda m: -len(m.nodes))
        else:
            yield from (n for n in self.index.readers(self.bindings[name]) if self._is(call, n))

    def _is(self, call: Call, node: ir.Node) -> bool:
        return node.op_type == call.op and node.domain == call.domain

    # ---- a call against a node or an idiom

    def _assign(self, call: Call, candidate: ir.Node | Match) -> Iterator[None]:
        nodes = frozenset([candidate]) if isinstance(candidate, ir.Node) else candidate.nodes
        if any(nodes & taken for taken in self.assigned.values()):
            return
        if isinstance(candidate, ir.Node):
            wrong = self._wrong_attribute(call, candidate)
            if wrong:
                self._note("FUS103", *wrong)
                return
            inputs: Sequence[ir.Value | None] = self.index.inputs(candidate)
            outputs: Sequence[ir.Value] = candidate.outputs
            least = len(call.named_inputs)
            if len(inputs) < least or (len(inputs) > least and not call.takes_more):
                self._note("FUS102", f"{call} with {least} inputs", f"{len(inputs)} inputs")
                return
        else:
            inputs, outputs = candidate.inputs, candidate.outputs
            if len(inputs) < len(call.named_inputs):
                return
        commutes = isinstance(candidate, ir.Node) and call.op in COMMUTATIVE and not call.domain
        places = tuple(range(len(call.named_inputs)))
        orders = permutations(places) if commutes else [places]
        for order in orders:
            mark = dict(self.bindings)
            if self._unify(call, [inputs[i] for i in order], outputs):
                self.assigned[call.index] = nodes
                yield from self._extend()
                del self.assigned[call.index]
            self.bindings = mark

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
                    shown = self.index.scalar(value)
                    self._note(
                        "FUS104",
                        f"{call} with {name} = {self.pattern.constants[name]:g}",
                        f"'{value.name}'" + ("" if shown is None else f" = {shown:g}"),
                    )
                    return False
            else:
                root, casts = self.index.root(value)
                if self.bindings.setdefault(name, root) is not root:
                    self._note("FUS105", f"{call} with {name} = '{self.bindings[name].name}'", f"'{root.name}'")
                    return False
                self.passed[name].update(casts)
        return True

    def _is_number(self, value: ir.Value, number: float) -> bool:
        found = self.index.scalar(value)
        if found is None:
            return False
        tolerance = _TOLERANCE.get(value.dtype, 1e-4) if value.dtype is not None else 1e-4
        return bool(np.isclose(found, number, rtol=tolerance, atol=0.0))

    def _wrong_attribute(self, call: Call, node: ir.Node) -> tuple[str, str] | None:
        found = self.index.attributes(node)
        for name, expected in call.attributes.items():
            if not _same(found.get(name), expected):
                return f"{call.op} with {name} = {expected}", f"{name} = {found.get(name)}"
        return None

    # ---- growing regions

    def _grow(self, call: Call) -> Iterator[None]:
        source, target = call.inputs[0], call.outputs[0]
        taken = frozenset().union(*self.assigned.values())
        if target in self.bindings:
            options = self.matcher.grower.backward(call, self.bindings[target], self.bindings.get(source), taken)
            if source not in self.bindings and self.pattern.is_open(source):
                # Nothing else says where the region starts, so it starts as far up as it can.
                options = iter(list(options)[::-1])
        elif any(target in c.inputs for c in self.pattern.calls):
            options = self.matcher.grower.forward(call, self.bindings[source], taken)
        else:
            grown = self.matcher.grower.maximal(call, self.bindings[source], taken)
            options = iter([] if grown is None else [grown])
        for grown in options:
            mark = dict(self.bindings)
            self.bindings[source] = grown.source
            self.bindings[target] = grown.target
            self.assigned[call.index] = grown.nodes
            yield from self._extend()
            del self.assigned[call.index]
            self.bindings = mark

    # ---- why not

    def _conditions_hold(self) -> bool:
        for condition in self.pattern.where:
            if not holds(condition, self.bindings, self.index):
                self._note("FUS106", condition, describe(self.bindings, condition))
                return False
        return True

    def _note(self, code: str, expected: str, found: str) -> None:
        if len(self.assigned) >= self.best[0]:
            self.best = (len(self.assigned), code, expected, found)

    def _what_is_there(self, call: Call) -> str:
        for name in call.outputs:
            if name in self.bindings:
                node = self.index.producer(self.bindings[name])
                return f"'{self.bindings[name].name}' comes from " + (node.op_type if node else "outside the graph")
        name = next(i for i in call.inputs if i in self.bindings)
        readers = sorted({n.op_type for n in self.index.readers(self.bindings[name])})
        return f"'{self.bindings[name].name}' goes to {', '.join(readers) or 'a graph output only'}"


def _same(found: Any, expected: Any) -> bool:
    if isinstance(expected, float) and isinstance(found, (int, float)):
        return bool(np.isclose(found, expected, rtol=1e-4))
    if isinstance(expected, list) and isinstance(found, str):
        return found in expected
    if isinstance(expected, list) and found is not None and not isinstance(found, (int, float)):
        return list(found) == expected
    return bool(found == expected)
