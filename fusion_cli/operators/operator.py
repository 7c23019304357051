"""What is known of an operator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

Trait = Literal[
    "elementwise",  # each element of the result is made of those that lie there in the operands
    "row",  # over the last axis, if asked to: a reduction, a softmax, a norm
    "move",  # only says where numbers lie
    "reshape",  # a move that keeps their order
    "arranging",  # computes nothing but where numbers lie
    "overwriting",  # writes into a part of a copy of its first input
    "transparent",  # may hand its first input on as it is
    "picking",  # reads no other elements than those that it takes
    "product",  # of matrices
    "layer",  # work of a model, even on constants
    "counting",  # exporters compute shapes with it at run time
    "commutative",  # its operands may stand in any order
    "linear",  # alone makes no activation
    "bool",  # gives truth values
    "cheap",  # is sooner computed again than its result written to memory and read
]
_SPECIAL_FROM = 10


@dataclass(frozen=True)
class Operator:
    """An operator of ONNX's own domain or another.

    An elementwise one has a `meaning`, on arrays, or is `made_of` others (see composites.py); both take its first
    `arity` inputs (None: all) and the attributes that `parameters` names. `cpp` is its C++ on scalars, `cost` what that
    takes on a CPU, in additions, and `work` the simple and special operations per element of ONNX Runtime's own kernel
    where that is not one operation.
    """

    name: str
    traits: str = ""
    meaning: Callable[..., Any] | None = None
    cpp: str = ""
    arity: int | None = 1
    cost: int = 1
    parameters: tuple[str, ...] = ()
    domain: str = ""
    work: tuple[int, int] | None = None
    made_of: Callable[..., Any] | None = None

    def has(self, trait: Trait) -> bool:
        return trait in self.traits.split()

    @property
    def is_special(self) -> bool:
        """Whether it takes the device's special functions, as exp does."""
        return self.cost >= _SPECIAL_FROM
