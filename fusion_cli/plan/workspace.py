"""Which memory every stored value lives in: operator inputs and outputs, aliases, and shared workspace buffers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from fusion_cli.codes import plan as codes
from fusion_cli.errors import Unsupported
from fusion_cli.plan.graph import LEAVES, Val
from fusion_cli.plan.partition import Partition
from fusion_cli.planir.stages import Stage, Tensor, root_of
from fusion_cli.sizes.algebra import Shape

Role = Literal["input", "output", "temp", "alias", "view"]


class Storage:
    """Tensors of a plan: made on demand for inputs, results of stages, and other shapes of either."""

    def __init__(self, partition: Partition, inputs: Sequence[Val | None], outputs: Sequence[Val]) -> None:
        self.tensors: list[Tensor] = []
        self._sizes = partition.sizes
        self._tensor: dict[Val, int] = {}
        self._root: dict[Val, int] = {}
        self._copied = partition.aliases.copied
        self._joined = {part: val for val in partition.uses.order if val.op == "concat" for part in val.args}
        for slot, val in enumerate(inputs):
            if val is not None:
                self._root[val] = self._tensor[val] = self._new("input", slot, val)
        self.inputs = tuple(-1 if v is None else self._tensor[v] for v in inputs)
        self.outputs = tuple(self._output(partition, slot, val) for slot, val in enumerate(outputs))

    def _output(self, partition: Partition, slot: int, val: Val) -> int:
        source = partition.aliases.storage_root(val)
        index = self._new("output", slot, val)
        self._root[source] = index
        if source is val:
            self._tensor[val] = index
        return index

    def tensor(self, val: Val) -> int:
        """The tensor to read or write `val` by."""
        if val not in self._tensor:
            self._tensor[val] = self._find(val)
        return self._tensor[val]

    def _find(self, val: Val) -> int:
        if val in self._joined:
            return self._view(self._joined[val], val)
        if val.op == "slice" and val not in self._copied:
            return self.window(val)
        if val.op == "reshape":
            return self._alias(self.tensor(val.args[0]), val)
        if val in self._root:
            return self._alias(self._root[val], val)
        if val.op in LEAVES:
            raise Unsupported(codes.CONSTANT, "a tensor in memory", f"a literal read by {val.node or 'a kernel'}")
        return self._new("temp", -1, val)

    def window(self, val: Val) -> int:
        """The tensor of what a slice picks in the memory that it is taken of."""
        return self._view(val.args[0], val)

    def _view(self, of: Val, val: Val) -> int:
        return self._new("view", self.tensor(of), val, val.shape_value("starts"), val.shape_value("steps"))

    def _alias(self, of: int, val: Val) -> int:
        if self._shape(val.shape) == self.tensors[of].shape and val.dims == self.tensors[of].dims:
            return of
        if self.tensors[of].role == "alias":
            of = self.tensors[of].slot
        return self._new("alias", of, val)

    def _new(self, role: Role, slot: int, val: Val, starts: int = -1, steps: int = -1) -> int:
        shape = self._shape(val.shape)
        self.tensors.append(Tensor(role, slot, val.dtype, shape, val.dims, val.name, starts, steps))
        return len(self.tensors) - 1

    def _shape(self, shape: Shape) -> tuple[int | str, ...]:
        normal = (self._sizes.norm(s) for s in shape)
        return tuple(str(s) if s.known is None else s.known for s in normal)


def assign_buffers(tensors: Sequence[Tensor], stages: Sequence[Stage]) -> tuple[tuple[Tensor, ...], int]:
    """Give every temp the first workspace buffer that is free while it lives; the tensors, and how many buffers.

    A temp lives from the first stage that writes it to the last that touches it, both included: a stage never
    writes over what it reads.
    """
    life: dict[int, tuple[int, int]] = {}
    for position, stage in enumerate(stages):
        for index in stage.tensors:
            root = root_of(tensors, index)
            if tensors[root].role == "temp":
                life[root] = (life.get(root, (position, 0))[0], position)
    placed = list(tensors)
    free_after: list[int] = []
    for root, (first, last) in sorted(life.items(), key=lambda item: item[1]):
        slot = next((b for b, end in enumerate(free_after) if end < first), len(free_after))
        free_after[slot : slot + 1] = [last]
        placed[root] = replace(tensors[root], slot=slot)
    return tuple(placed), len(free_after)


def rename_symbols(tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The tensors with symbols d0, d1, ... in order of appearance, so that equal regions give equal plans."""
    names: dict[str, str] = {}
    return tuple(
        replace(t, shape=tuple(d if isinstance(d, int) else names.setdefault(d, f"d{len(names)}") for d in t.shape))
        for t in tensors
    )
