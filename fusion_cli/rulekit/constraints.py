"""What a rule's conditions say of the values of a sketch, as far as arrays can answer."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import onnx_ir as ir

from fusion_cli.graph.index import GraphIndex
from fusion_cli.language.pattern import Parameter
from fusion_cli.language.predicates import DTYPES, conjuncts, holds, names_in, predicate_calls
from fusion_cli.sessions import Array

_STATIC = frozenset(
    {"rank", "dim", "dtype", "shape", "size", "is_constant", "value", "same_shape", "divisible", "summed"}
)


@dataclass(frozen=True)
class Condition:
    """A rule's condition, and the values and parameters of a sketch that its names stand for; a `Parameter` among
    them is open."""

    text: str
    values: Mapping[str, str]
    parameters: Mapping[str, Any]

    def parts(self) -> list[Condition]:
        """The parts that arrays can answer, each with the names it speaks of; the matcher asks the others."""
        texts = [t for t in conjuncts(self.text) if all(name in _STATIC for name, _ in predicate_calls(t))]
        return [Condition(t, _only(self.values, names_in(t)), _only(self.parameters, names_in(t))) for t in texts]

    def names(self) -> list[str]:
        """The values and open parameters that have to be known."""
        return [*self.values.values(), *(p.name for p in self.parameters.values() if isinstance(p, Parameter))]

    def holds(self, known: Mapping[str, Array], constants: Collection[str], parameters: Mapping[str, Any]) -> bool:
        """Whether the condition holds for these arrays."""
        arrays = (_Known.of(n, known[v], v in constants) for n, v in self.values.items())
        bound = ((n, parameters[p.name] if isinstance(p, Parameter) else p) for n, p in self.parameters.items())
        return _answer(self.text, tuple(arrays), tuple((n, tuple(p) if isinstance(p, list) else p) for n, p in bound))


class _Known(NamedTuple):
    """What a condition can ask of an array: all of a constant."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    content: bytes | None

    @classmethod
    def of(cls, name: str, array: Array, constant: bool) -> _Known:
        return cls(name, array.dtype, array.shape, array.tobytes() if constant else None)

    def value(self) -> ir.Value:
        dtype = ir.DataType.from_numpy(self.dtype)
        array = None if self.content is None else np.frombuffer(self.content, self.dtype).reshape(self.shape)
        const = None if array is None else ir.tensor(array)
        return ir.Value(name=self.name, type=ir.TensorType(dtype), shape=ir.Shape(self.shape), const_value=const)


@lru_cache(maxsize=100_000)
def _answer(text: str, arrays: tuple[_Known, ...], bound: tuple[tuple[str, Any], ...]) -> bool:
    """Whether a condition holds for such arrays: a search asks the same over and over."""
    values = {a.name: a.value() for a in arrays}
    inputs = [v for v in values.values() if v.const_value is None]
    parameters = {n: list(p) if isinstance(p, tuple) else p for n, p in bound}
    return holds(text, {**values, **parameters}, GraphIndex(ir.Graph(inputs, [], nodes=[])))


@dataclass
class Wanted:
    """What conditions ask of one value before any shape is known."""

    constant: bool | None = None
    number: bool = False
    dtypes: tuple[str, ...] = ()


def wanted_of(conditions: Sequence[Condition]) -> Mapping[str, Wanted]:
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


def _only(meanings: Mapping[str, Any], names: Collection[str]) -> Mapping[str, Any]:
    return {name: meaning for name, meaning in meanings.items() if name in names}
