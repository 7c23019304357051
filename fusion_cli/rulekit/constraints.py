"""What a rule's conditions say of the values of a sketch, as far as arrays can answer."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir

from fusion_cli.graph.index import GraphIndex
from fusion_cli.language.pattern import Parameter
from fusion_cli.language.predicates import DTYPES, conjuncts, holds, predicate_calls
from fusion_cli.rulekit.sketch import Condition
from fusion_cli.sessions import Array

_STATIC = frozenset(
    {"rank", "dim", "dtype", "shape", "size", "is_constant", "value", "same_shape", "divisible", "summed"}
)


@dataclass(frozen=True)
class Conjunct:
    """One condition that can be asked of arrays: its text, and what its names stand for."""

    text: str
    values: Mapping[str, str]
    parameters: Mapping[str, str]
    literals: Mapping[str, Any]

    def names(self) -> list[str]:
        """The values and open parameters that have to be known."""
        return [*self.values.values(), *self.parameters.values()]

    def holds(self, known: Mapping[str, Array], constants: Collection[str], parameters: Mapping[str, Any]) -> bool:
        """Whether the condition holds for these arrays."""
        values = {n: _value(n, known[v], v in constants) for n, v in self.values.items()}
        inputs = [v for v in values.values() if v.const_value is None]
        index = GraphIndex(ir.Graph(inputs, [], nodes=[]))
        bound = {n: parameters[p] for n, p in self.parameters.items()}
        return holds(self.text, {**values, **bound, **self.literals}, index)


@dataclass
class Wanted:
    """What conditions ask of one value before any shape is known."""

    constant: bool | None = None
    number: bool = False
    dtypes: tuple[str, ...] = ()


def split(condition: Condition) -> list[Conjunct]:
    """The parts of a condition that arrays can answer; the matcher asks the others."""
    found = []
    for text in conjuncts(condition.text):
        if any(name not in _STATIC for name, _ in predicate_calls(text)):
            continue
        words = set(re.findall(r"(?<![\w.|\"'])[A-Za-z_]\w*", text))
        values = {n: v for n, v in condition.values.items() if n in words}
        parameters = {n: p for n, p in condition.parameters.items() if n in words}
        open_ = {n: p.name for n, p in parameters.items() if isinstance(p, Parameter)}
        literals = {n: p for n, p in parameters.items() if not isinstance(p, Parameter)}
        found.append(Conjunct(text, values, open_, literals))
    return found


def wanted_of(conditions: Sequence[Conjunct]) -> Mapping[str, Wanted]:
    wanted: dict[str, Wanted] = defaultdict(Wanted)
    for c in conditions:
        for name, value in c.values.items():
            said = wanted[value]
            if c.text == f"is_constant({name})":
                said.constant = True
            elif c.text == f"not is_constant({name})":
                said.constant = False
            if re.search(rf"\bvalue\({name}\)", c.text):
                said.number = True
            if f"dtype({name})" in c.text:
                said.dtypes += tuple(d for d in DTYPES if re.search(rf"\b{d}\b", c.text))
    return wanted


def _value(name: str, array: Array, constant: bool) -> ir.Value:
    dtype = ir.DataType.from_numpy(array.dtype)
    const = ir.tensor(array) if constant else None
    return ir.Value(name=name, type=ir.TensorType(dtype), shape=ir.Shape(array.shape), const_value=const)
