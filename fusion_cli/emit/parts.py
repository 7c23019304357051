"""A CUDA source's parts: compilers work on them at once, each on what is compiled of the same file for one of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from fusion_cli.codegen.cuda_parts import CudaGroup, CudaStage
from fusion_cli.kernels.phases import CudaPhases

_MOST, _LEAST = 4, 2
"""Parts of a file, and functions of a part that take long: its headers take two seconds by themselves."""

Group = CudaGroup | CudaPhases


@dataclass
class Part:
    """Functions that only know the declarations of those in other parts."""

    functions: list[CudaStage] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)

    @property
    def long(self) -> int:
        """How many of the functions take a compiler long, of which those of several stages take it twice as long."""
        return sum(f.is_long for f in self.functions) + 2 * sum(g.is_long for g in self.groups)

    def add(self, other: Part) -> None:
        self.functions += other.functions
        self.groups += other.groups


def parts_of(functions: Sequence[CudaStage], groups: Sequence[Group]) -> list[Part]:
    """The functions of a file shared out among parts, the first of which has what is soon compiled; the same on every
    machine, as objects are kept by what they are made of."""
    together = _clusters(functions, groups)
    many = [part for part in together if part.long]
    count = min(_MOST, len(many), sum(part.long for part in many) // _LEAST)
    parts = [Part() for _ in range(max(1, count))]
    for part in sorted(many, key=lambda part: -part.long):
        min(reversed(parts), key=lambda into: into.long).add(part)
    for part in together:
        if not part.long:
            parts[0].add(part)
    return parts


def _clusters(functions: Sequence[CudaStage], groups: Sequence[Group]) -> list[Part]:
    """Functions that one launch runs together, whose operands it knows, with it; every other one by itself."""
    found = [Part([function]) for function in functions]
    for group in groups:
        names = {stage.name for stage in group.stages}
        joined = Part()
        for part in [part for part in found if names & {function.name for function in part.functions}]:
            found.remove(part)
            joined.add(part)
        joined.groups.append(group)
        found.append(joined)
    return found
