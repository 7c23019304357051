"""How a step of a sketch becomes a node: its inputs' places, and the attributes that it leaves open."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fusion_cli.language.pattern import Parameter
from fusion_cli.rulekit.candidates import attribute_candidates
from fusion_cli.rulekit.schemas import Schema
from fusion_cli.rulekit.sketch import Step
from fusion_cli.rulekit.state import State
from fusion_cli.sessions import Array


def places_of(step: Step, schema: Schema, moved: Mapping[int, str]) -> list[tuple[int, str | None]]:
    """The operator's input positions and what the rule has there, with names for those that it must be given."""
    positions = (p for p in range(len(step.inputs) + len(moved)) if p not in moved)
    places = list(zip(positions, step.inputs, strict=False))
    taken = {p for p, _ in places}
    missing = [p for p in range(schema.least_inputs) if p not in taken and p not in moved]
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
    needed = [name for name, required in schema.moved_inputs.items() if required]
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
