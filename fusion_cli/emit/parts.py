"""A CUDA source's parts: compilers work on them at once, each on what is compiled of the same file for one of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fusion_cli.codegen.cuda_parts import CudaGroup, CudaStage
from fusion_cli.kernels.phases import CudaPhases

_MOST, _LEAST = 4, 2
"""Parts of a file, and functions of a part that take long: its headers take two seconds by themselves."""

Group = CudaGroup | CudaPhases
"""Stages that one launch runs together."""


@dataclass(frozen=True)
class Part:
    """Functions that only know the declarations of those in other parts."""

    functions: tuple[CudaStage, ...] = ()
    groups: tuple[Group, ...] = ()

    @property
    def long(self) -> int:
        """How many of the functions take a compiler long, of which those of several stages take it twice as long."""
        return sum(f.is_long for f in self.functions) + 2 * sum(g.is_long for g in self.groups)

    def __add__(self, other: Part) -> Part:
        return Part(self.functions + other.functions, self.groups + other.groups)


def parts_of(functions: Sequence[CudaStage], groups: Sequence[Group]) -> list[Part]:
    """The functions of a file shared out among parts, the first of which has what is soon compiled; the same on every
    machine, as objects are kept by what they are made of."""
    together = _clusters(functions, groups)
    many = [part for part in together if part.long]
    count = min(_MOST, len(many), sum(part.long for part in many) // _LEAST)
    parts = [Part()] * max(1, count)
    for part in sorted(many, key=lambda part: -part.long):
        least = min(reversed(range(len(parts))), key=lambda i: parts[i].long)
        parts[least] += part
    for part in together:
        if not part.long:
            parts[0] += part
    return parts


def _clusters(functions: Sequence[CudaStage], groups: Sequence[Group]) -> list[Part]:
    """Functions that one launch runs together, whose operands it knows, with it; every other one by itself."""
    found = [Part((function,)) for function in functions]
    for group in groups:
        names = {stage.name for stage in group.stages}
        joined = [part for part in found if names & {function.name for function in part.functions}]
        found = [part for part in found if part not in joined]
        found.append(sum(joined, Part()) + Part(groups=(group,)))
    return found
