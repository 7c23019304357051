"""How far the search for shapes has come, and how it goes back."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from fusion_cli.sessions import Array


@dataclass(frozen=True, eq=False)
class Node:
    """A step as a node of a model: every input named ("" for an omitted one), every attribute known."""

    domain: str
    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]


@dataclass
class State:
    """What is known after some steps. `owner` says which step gave a value or parameter."""

    values: dict[str, Array] = field(default_factory=dict)
    constants: set[str] = field(default_factory=set)
    parameters: dict[str, Any] = field(default_factory=dict)
    owner: dict[str, int] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    opaque: bool = False

    def give(self, name: str, array: Array, owner: int, constant: bool) -> None:
        """A value for an open input of step `owner`."""
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

    def restore(self, copy: State) -> None:
        """Be what `copy` was taken of."""
        vars(self).update(vars(copy))

    def copy(self) -> State:
        """A state that later steps of this one do not change."""
        return State(
            dict(self.values),
            set(self.constants),
            dict(self.parameters),
            dict(self.owner),
            list(self.nodes),
            self.opaque,
        )
