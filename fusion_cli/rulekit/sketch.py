"""From a rule to graphs that it describes: idioms expanded, growing patterns written out, shapes still open.

A sketch is a list of operators over named values. Idioms are expanded to their first overload, and growing patterns
that they call to the shortest chain, with one call of the rule varied at a time: so every overload comes up at every
place where a rule calls it, and everything else is plain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, zip_longest
from typing import Any

from fusion_cli.language.pattern import REST, Call, Parameter, Pattern, Rule
from fusion_cli.rulekit.constraints import Condition

_UNARY = ("Tanh", "Sigmoid", "Relu", "Softplus", "Abs", "Neg")
_MOST_DEPTH = 24


@dataclass(frozen=True)
class Step:
    """One operator of a sketch. An input of None is omitted; `more` inputs may follow; `Parameter`s among the
    attributes are open, equal names meaning equal values. `keeps_shape`: the first output has the first input's."""

    domain: str
    op: str
    inputs: tuple[str | None, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    keeps_shape: bool = False
    more: bool = False


@dataclass(eq=False)
class Sketch:
    """A graph that a rule describes, up to shapes."""

    steps: list[Step] = field(default_factory=list)
    numbers: dict[str, float] = field(default_factory=dict)
    conditions: list[Condition] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    choices: list[str] = field(default_factory=list)
    """What was chosen, for people: "Linear 2" is the second overload of Linear."""


class Impossible(Exception):
    """A choice of overloads that does not fit together."""


class Sketcher:
    """Makes sketches of rules written in these idioms."""

    def __init__(self, idioms: Mapping[str, Rule]) -> None:
        self.idioms = idioms
        self._names = count(1)
        self._variation: Mapping[int, int] = {}
        self._shift = 0

    def variations(self, pattern: Pattern) -> list[dict[int, int]]:
        """What `sketch` can vary: nothing, then each other choice at each call of the overload, by turns."""
        called = [c for c in pattern.calls if c.is_pattern]
        options = [len(_chains(c)) if c.is_growing else len(self._fitting(c)) for c in called]
        others = [[{c.index: n} for n in range(1, size)] for c, size in zip(called, options, strict=True)]
        return [{}, *(v for turn in zip_longest(*others) for v in turn if v is not None)]

    def sketch(self, pattern: Pattern, variation: Mapping[int, int], shift: int = 0) -> Sketch:
        """One overload, with the choices of `variation` at its calls and number `shift` wherever idioms call others.
        Raises Impossible where they do not fit."""
        self._variation, self._shift = variation, shift
        sketch = Sketch()
        names = {name: self._new(name) for name in pattern.inputs if name != REST}
        parameters = {name: Parameter(self._new(name)) for name in pattern.parameters}
        bound = self._expand(sketch, pattern, names, parameters, 0)
        if not sketch.steps:
            raise Impossible("there is no operator in it")
        sketch.outputs = [bound[name] for name in pattern.outputs]
        return sketch

    def _new(self, name: str) -> str:
        return f"{name}_{next(self._names)}"

    def _fitting(self, call: Call) -> list[int]:
        """The overloads that the matcher could take for this call: as many inputs and outputs, and its parameters."""
        return [
            i
            for i, overload in enumerate(self.idioms[call.op].patterns)
            if len([n for n in overload.inputs if n != REST]) >= len(call.named_inputs)
            and len(overload.outputs) >= len(call.outputs)
            and set(call.attributes) <= set(overload.parameters)
        ]

    def _choose(self, call: Call, depth: int, options: int) -> int:
        return self._variation.get(call.index, 0) % options if depth == 0 else self._shift % options

    def _expand(
        self, sketch: Sketch, pattern: Pattern, names: dict[str, str], parameters: Mapping[str, Any], depth: int
    ) -> dict[str, str]:
        """Add the operators of a pattern whose inputs are `names`; returns what all its names stand for."""
        if depth > _MOST_DEPTH:
            raise Impossible("idioms are nested too deeply")
        for name, number in pattern.constants.items():
            names[name] = self._new(name)
            sketch.numbers[names[name]] = number
        for call in pattern.calls:
            attributes = {
                k: parameters.get(v.name, v) if isinstance(v, Parameter) else v for k, v in call.attributes.items()
            }
            if call.is_growing:
                self._grow(sketch, call, names, depth)
            elif call.is_pattern:
                self._idiom(sketch, call, names, attributes, depth)
            else:
                outputs = [self._new(name) for name in call.outputs]
                names |= dict(zip(call.outputs, outputs, strict=True))
                inputs = tuple(names[i] if i else None for i in call.named_inputs)
                step = Step(call.domain, call.op, inputs, tuple(outputs), attributes, more=call.takes_more)
                sketch.steps.append(step)
        values = {k: v for k, v in names.items() if k not in pattern.constants}
        sketch.conditions += [Condition(text, values, parameters) for text in pattern.where]
        return names

    # ---- idioms

    def _idiom(
        self, sketch: Sketch, call: Call, names: dict[str, str], attributes: Mapping[str, Any], depth: int
    ) -> None:
        fitting = self._fitting(call)
        if not fitting:
            raise Impossible(f"no overload of {call.op} fits '{call}'")
        choice = fitting[self._choose(call, depth, len(fitting))]
        sketch.choices.append(f"{call.op} {choice + 1}")
        overload = self.idioms[call.op].patterns[choice]
        given = dict(zip(overload.inputs, (names[i] for i in call.named_inputs), strict=False))
        inner = {n: given.get(n) or self._new(n) for n in overload.inputs if n != REST}
        parameters = {n: attributes.get(n, Parameter(self._new(n))) for n in overload.parameters}
        bound = self._expand(sketch, overload, inner, parameters, depth + 1)
        names |= dict(zip(call.outputs, (bound[o] for o in overload.outputs), strict=False))

    # ---- growing patterns

    def _grow(self, sketch: Sketch, call: Call, names: dict[str, str], depth: int) -> None:
        chains = _chains(call) if depth == 0 else sorted(_chains(call), key=len)
        chain = chains[self._choose(call, depth, len(chains))]
        sketch.choices += [f"{call.op} {'-'.join(chain)}"] if chain else []
        value = names[call.inputs[0]]
        for op in chain:
            result = self._new(op.lower())
            operands = (value, self._new("operand")) if op in _TAKES_OPERAND else (value,)
            if op == "Conv":
                sketch.conditions.append(Condition("is_constant(w)", {"w": operands[-1]}, {}))
            attributes: Mapping[str, Any] = {"axis": -1} if op == "Softmax" else {}
            sketch.steps.append(Step("", op, operands, (result,), attributes, keeps_shape=call.op in _KEEPS_SHAPE))
            value = result
        names[call.outputs[0]] = value


_KEEPS_SHAPE = frozenset({"Pointwise", "Rowwise"})
_TAKES_OPERAND = frozenset({"Add", "Mul", "Sub", "Reshape", "Conv"})
_CHAINS: Mapping[str, Sequence[Sequence[str]]] = {
    "Pointwise": (("Mul", "Add"), (), ("Tanh",), ("Add", "Sigmoid", "Mul"), ("Relu", "Sub")),
    "Rowwise": (("Mul", "Softmax"), ("Softmax", "Add"), (), ("Softmax",), ("Tanh", "Softmax", "Mul")),
    "Convolutions": (("Conv", "Relu", "Conv", "Add", "Relu"), ("Conv", "Conv"), ("Sigmoid", "Conv", "Mul", "Conv")),
    "Move": (("Reshape", "Transpose"), (), ("Transpose", "Reshape"), ("Transpose",), ("Reshape",)),
}
_RESTRICTED: Mapping[str, Sequence[Sequence[str]]] = {
    "factors": (("Mul",), (), ("Mul", "Mul")),
    "closed": (("Tanh",), (), ("Sigmoid", "Relu")),
}
"""What takes no operand is closed, whatever the graph's other inputs are."""


def _chains(call: Call) -> list[Sequence[str]]:
    """The chains of as many operators as the call asks for."""
    least, most = int(call.attributes.get("min_ops", 0)), int(call.attributes.get("max_ops", 64))
    restricted = (chains for name, chains in _RESTRICTED.items() if call.attributes.get(name))
    chains = next(restricted, _CHAINS[call.op])
    return [c for c in chains if least <= len(c) <= most] or [_longer(call.op, least)]


def _longer(op: str, least: int) -> Sequence[str]:
    if op == "Move":
        return ("Transpose",) * least
    rest = tuple(_UNARY[i % len(_UNARY)] for i in range(least - 1))
    return ("Softmax" if op == "Rowwise" else "Add", *rest)
