"""How far the search for shapes has come, and how a step becomes a node: its inputs, and the attributes left open."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fusion_cli.language.pattern import Parameter
from fusion_cli.rulekit.candidates import attribute_candidates
from fusion_cli.rulekit.schemas import Schema
from fusion_cli.rulekit.sketch import Step
from fusion_cli.sessions import Array

Places = Sequence[tuple[int, str | None]]
"""An operator's input positions, and the name of what is there, if anything."""


@dataclass
class State:
    """What is known after some steps. `owner` says which step gave a value or parameter; `nodes` are the steps with
    every input named (None for an omitted one) and every attribute known."""

    values: dict[str, Array] = field(default_factory=dict)
    constants: set[str] = field(default_factory=set)
    parameters: dict[str, Any] = field(default_factory=dict)
    owner: dict[str, int] = field(default_factory=dict)
    nodes: list[Step] = field(default_factory=list)
    opaque: bool = False

    def give(self, name: str, array: Array, owner: int, constant: bool) -> None:
        """A value for an open input of step `owner`, or a result of it."""
        self.values[name] = array
        self.owner[name] = owner
        (self.constants.add if constant else self.constants.discard)(name)

    def forget(self, name: str) -> None:
        """Take a value back."""
        self.values.pop(name, None)
        self.owner.pop(name, None)
        self.constants.discard(name)

    def undo(self, step: int, before: Collection[str], opaque: bool) -> None:
        """Take back what running a step added to the values there were before."""
        for name in self.values.keys() - set(before):
            self.forget(name)
        del self.nodes[step:]
        self.opaque = opaque


def places_of(step: Step, schema: Schema) -> Places:
    """The operator's input positions and what the rule has there, with names for those that it must be given."""
    positions = (p for p in range(len(step.inputs) + len(schema.moved)) if p not in schema.moved)
    places = list(zip(positions, step.inputs, strict=False))
    taken = {p for p, _ in places}
    missing = [p for p in range(schema.least_inputs) if p not in taken and p not in schema.moved]
    return places + [(p, f"{step.outputs[0]}_in{p}") for p in missing]


def open_parameters(step: Step) -> list[str]:
    return [v.name for v in step.attributes.values() if isinstance(v, Parameter)]


def read_by(step: Step) -> list[str]:
    """The values and parameters that a step depends on."""
    return [*filter(None, step.inputs), *open_parameters(step)]


def attribute_choices(
    step: Step, schema: Schema, data: Sequence[Array | None], state: State, number: int, turn: int
) -> Iterator[dict[str, Any]]:
    """Values for the attributes that step `number` leaves open; while one is out, its parameters are in the state."""
    fixed = {k: v for k, v in step.attributes.items() if not isinstance(v, (Parameter, list))}
    waiting: dict[str, Any] = {k: v for k, v in step.attributes.items() if k not in fixed}
    needed = [name for position, name in schema.moved.items() if position < schema.least_inputs]
    for name in (*schema.required_attributes, *_USUALLY_GIVEN.get(step.op, ()), *needed):
        if name not in step.attributes:
            waiting[name] = None

    def choose(chosen: dict[str, Any], names: Sequence[str]) -> Iterator[dict[str, Any]]:
        if not names:
            yield chosen
            return
        name, asked = names[0], waiting[names[0]]
        parameter = asked.name if isinstance(asked, Parameter) else ""
        if parameter in state.parameters:
            options: Sequence[Any] = [state.parameters[parameter]]
            parameter = ""
        elif isinstance(asked, list):
            texts = bool(asked) and isinstance(asked[0], str)
            options = [*asked[turn % len(asked) :], *asked[: turn % len(asked)]] if texts else [asked]
        else:
            options = attribute_candidates(step.op, name, schema.attributes.get(name), data, chosen, len(step.outputs))
        for value in options:
            if parameter:
                state.parameters[parameter], state.owner[parameter] = value, number
            yield from choose(chosen if value is None else {**chosen, name: value}, names[1:])
        if parameter:
            state.parameters.pop(parameter, None)
            state.owner.pop(parameter, None)

    yield from choose(fixed, list(waiting))


def does_nothing(step: Step, inputs: Sequence[Array | None], results: Sequence[Array]) -> bool:
    """Whether an operator that moves data leaves it where it is: clean-ups would take it away."""
    first = inputs[0] if inputs else None
    if step.op == "Cast" and first is not None:
        return first.dtype == results[0].dtype
    return step.op in _MOVING and first is not None and all(r.shape == first.shape for r in results)


_MOVING = frozenset({"Slice", "Reshape", "Expand", "Squeeze", "Unsqueeze", "Split"})
_USUALLY_GIVEN: Mapping[str, tuple[str, ...]] = {
    "Transpose": ("perm",),
    "Einsum": ("equation",),
    "FusedGemm": ("activation",),
    "Gather": ("axis",),
    "Slice": ("axes",),
    "Squeeze": ("axes",),
    "Unsqueeze": ("axes",),
    "Split": ("split",),
}
"""Attributes that are tried with several values though an operator does without them."""
