"""Shapes and types for a sketch: the operators are run one after the other, and what does not fit is tried again.

Each step's open inputs and attributes get values from a small family (lint has checked the text, so the rest is
arithmetic), the step is run, and the rule's conditions are asked as soon as all they speak of is known. Where a step
takes nothing, the search goes back to the last step that its inputs depend on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import islice
from typing import Any

import numpy as np

from fusion_cli.rulekit.candidates import input_candidates
from fusion_cli.rulekit.constraints import wanted_of
from fusion_cli.rulekit.execute import Executor, NoKernel, content_key
from fusion_cli.rulekit.families import Asked
from fusion_cli.rulekit.schemas import Schema, find_schema
from fusion_cli.rulekit.sketch import Sketch, Step
from fusion_cli.rulekit.steps import Places, State, attribute_choices, does_nothing, open_parameters, places_of, read_by
from fusion_cli.sessions import Array

MAX_TRIES, MORE_TRIES, LONG = 1500, 20_000, 30
"""Inputs tried before a sketch is given up: most need a few dozen, those of whole layers, of more than so many steps,
may need thousands."""
_PER_STEP = 1500


@dataclass(frozen=True, eq=False)
class Concrete:
    """A sketch with shapes: arrays for its graph inputs and constants, one for each value as it came out."""

    sketch: Sketch
    nodes: tuple[Step, ...]
    values: Mapping[str, Array]
    constants: frozenset[str]
    opsets: Mapping[str, int]
    runs: bool
    """Whether ONNX Runtime ran all of it here."""

    @property
    def folds(self) -> bool:
        """Whether some of it is computed from constants alone."""
        return any(self.constants >= {i for i in n.inputs if i} for n in self.nodes)


class Obstacle(IntEnum):
    """What keeps the search at a step, the more telling the later it comes up."""

    INPUTS = 0
    """Conditions on its inputs."""
    OPERATOR = 1
    """Inputs that meet them, and that the operator does not take."""
    RESULTS = 2
    """Conditions on its results."""


@dataclass(frozen=True)
class Stuck:
    """How far the search for shapes came: to which step, and what kept it there."""

    step: int
    reason: str


def realise(sketch: Sketch, executor: Executor, turn: int = 0, most: int = MAX_TRIES) -> Concrete | Stuck:
    """The first shapes with which the sketch runs and its conditions hold, or what is in the way of those tried.
    `turn` rotates which shapes are tried first; `most` inputs are tried."""
    solver = _Solver(sketch, executor, turn, most)
    if solver.solve(0) is not None:
        return solver.stuck()
    state = solver.state
    constants = frozenset(state.constants)
    return Concrete(sketch, tuple(state.nodes), dict(state.values), constants, executor.opsets, not state.opaque)


class _Solver:
    def __init__(self, sketch: Sketch, executor: Executor, turn: int, most: int) -> None:
        self.sketch = sketch
        self.executor = executor
        self.turn = turn
        self.tries = 0
        self.most = most
        self.furthest: tuple[int, Obstacle] = (0, Obstacle.INPUTS)
        self.unmet: dict[str, None] = {}
        """How far the search came, and the conditions that did not hold there."""
        self.state = State()
        for name, number in sketch.numbers.items():
            self.state.give(name, np.array(number, np.float32), -1, constant=True)
        conditions = [part for condition in sketch.conditions for part in condition.parts()]
        self.wanted = wanted_of(conditions)
        self.conditions = [(c, frozenset(c.names())) for c in conditions]
        """Each with the values and parameters that it speaks of."""
        self.about: dict[str, list[int]] = defaultdict(list)
        """The conditions that speak of a value or parameter, by their positions."""
        for i, (_, names) in enumerate(self.conditions):
            for name in names:
                self.about[name].append(i)
        used = {n: i for i, step in enumerate(sketch.steps) for n in read_by(step)}
        self.last_use = used | {n: len(sketch.steps) for _, names in self.conditions for n in names}
        """The last step that reads a value or parameter; a condition may read it at any time."""

    def stuck(self) -> Stuck:
        at = self.furthest[0]
        step = self.sketch.steps[at]
        if self.unmet:
            conditions = ", ".join(f"`{c}`" for c in self.unmet)
            return Stuck(at, f"no shapes that were tried meet {conditions}")
        said = self.executor.refusals.get((step.domain, step.op), "").strip().partition("\n")[0]
        return Stuck(at, f"{step.op} takes none of the inputs that were tried{': ' * bool(said)}{said}")

    def _note(self, i: int, obstacle: Obstacle, unmet: str = "") -> None:
        """Keep what is in the way at the furthest step."""
        if (i, obstacle) > self.furthest:
            self.furthest, self.unmet = (i, obstacle), {}
        if unmet and (i, obstacle) == self.furthest:
            self.unmet[unmet] = None

    def solve(self, i: int) -> set[int] | None:
        """Solve from step `i` on. None: solved. Otherwise the steps that the failure depends on."""
        if i == len(self.sketch.steps):
            return None
        step = self.sketch.steps[i]
        conflict = {self.state.owner[n] for n in read_by(step) if n in self.state.owner}
        mark = {name: copy(value) for name, value in vars(self.state).items()}
        seen: set[object] = set()
        for blamed in islice(self._ways(i, step), _PER_STEP):
            if blamed is None:
                outcome = self._outcome(i)
                if outcome in seen:
                    continue
                seen.add(outcome)
                blamed = self.solve(i + 1)
                if blamed is None:
                    return None
                if i not in blamed:
                    conflict = blamed
                    break
            conflict |= blamed
            if self.tries > self.most:
                break
        # In place: the steps before hold this state.
        vars(self.state).update(mark)
        return conflict - {i}

    def _outcome(self, i: int) -> object:
        """What the rest of the search can see of what step `i` did."""
        seen = [n for n, owner in self.state.owner.items() if owner == i and self.last_use.get(n, -1) > i]
        values, parameters = self.state.values, self.state.parameters
        return tuple((n, content_key(values[n]) if n in values else repr(parameters[n])) for n in seen)

    # ---- one step

    def _ways(self, i: int, step: Step) -> Iterator[set[int] | None]:
        """Ways to do the step: each leaves the state with it done (None), or says on which steps a condition that
        failed depends."""
        schema = find_schema(step.domain, step.op, self.executor.opsets)
        places = places_of(step, schema)
        for _ in self._assign(i, step, schema, places, 0):
            self._type_numbers(schema, places)
            data = [None if n is None else self.state.values[n] for _, n in places]
            for attributes in attribute_choices(step, schema, data, self.state, i, self.turn):
                made = set(self.state.values), self.state.opaque
                yield self._run(i, step, schema, places, attributes)
                self.state.undo(i, *made)

    def _assign(self, i: int, step: Step, schema: Schema, places: Places, at: int) -> Iterator[None]:
        """Give the step's open inputs values, one after the other."""
        while at < len(places) and (places[at][1] is None or places[at][1] in self.state.values):
            at += 1
        if at == len(places):
            yield
            return
        position, name = places[at]
        assert name is not None
        known = {p: self.state.values[n] for p, n in places if n is not None and n in self.state.values}
        seen = [v for n, v in self.state.values.items() if n not in self.sketch.numbers]
        wanted, kind = self.wanted[name], schema.kind(position)
        asked = Asked(step.op, position, known, seen, kind, wanted, self.turn, step.attributes)
        for array, constant in input_candidates(asked):
            self.tries += 1
            self.state.give(name, array, i, constant)
            if self._failing({name}, i, Obstacle.INPUTS) is None:
                yield from self._assign(i, step, schema, places, at + 1)
            if self.tries > self.most:
                break
        self.state.forget(name)

    def _type_numbers(self, schema: Schema, places: Places) -> None:
        """A rule's number is of the type that the operator wants there."""
        for position, name in places:
            if name in self.sketch.numbers and schema.kind(position) in ("int64", "int32"):
                self.state.values[name] = np.array(self.sketch.numbers[name], np.int64)

    def _run(
        self, i: int, step: Step, schema: Schema, places: Places, attributes: Mapping[str, Any]
    ) -> set[int] | None:
        self.tries += 1
        names = dict(places)
        plain = dict(attributes)
        for position, attribute in schema.moved.items():
            if attribute in plain:
                names[position] = name = f"{step.outputs[0]}_{attribute}"
                self.state.give(name, np.array(plain.pop(attribute), np.int64), i, constant=True)
        inputs = [names.get(p) for p in range(max(names, default=-1) + 1)]
        arrays = [None if n is None else self.state.values[n] for n in inputs]
        results = self._results(step, arrays, plain)
        self._note(i, Obstacle.OPERATOR)
        if results is None or (step.keeps_shape and arrays[0] is not None and results[0].shape != arrays[0].shape):
            return set()
        if any(r.size == 0 for r in results) or does_nothing(step, arrays, results):
            return set()
        for name, result in zip(step.outputs, results, strict=True):
            self.state.give(name, result, i, constant=False)
        self.state.nodes.append(replace(step, inputs=tuple(inputs), attributes=plain))
        return self._failing({*step.outputs, *(n for n in inputs if n), *open_parameters(step)}, i, Obstacle.RESULTS)

    def _results(
        self, step: Step, arrays: Sequence[Array | None], attributes: Mapping[str, Any]
    ) -> tuple[Array, ...] | None:
        # Operators of other domains check little: some end the process on inputs that a rule's `rest` leaves open.
        if not (step.domain and step.more):
            try:
                return self.executor.run(step.domain, step.op, arrays, attributes, len(step.outputs))
            except NoKernel:
                pass
        self.state.opaque = True
        shape = next(v.shape for v in arrays if v is not None)
        return (np.zeros(shape, np.float32),) * len(step.outputs)

    # ---- conditions

    def _failing(self, fresh: set[str], i: int, obstacle: Obstacle) -> set[int] | None:
        """The steps behind a condition that speaks of something fresh and is known not to hold; None if all may.
        Asked at step `i`, of its inputs or its results."""
        self._note(i, obstacle)
        for about in sorted({n for name in fresh for n in self.about.get(name, ())}):
            c, names = self.conditions[about]
            if not all(n in self.state.values or n in self.state.parameters for n in names):
                continue
            if not c.holds(self.state.values, self.state.constants, self.state.parameters):
                self._note(i, obstacle, c.text)
                return {self.state.owner[n] for n in names if n in self.state.owner}
        return None
