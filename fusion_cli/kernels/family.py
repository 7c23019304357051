"""What a kernel family is: everything that the stages of the pipeline ask about one way to run plan stages.

A plan stage says what is computed, a family how: for which stages and targets it has a kernel, what that kernel has to
do, which variants of it are compiled in and when each of them runs, and what its templates print.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from fusion_cli.codegen.cpu_parts import CpuStage
from fusion_cli.codegen.cuda_parts import CudaGroup, CudaStage
from fusion_cli.devices.profile import DeviceProfile
from fusion_cli.devices.work import EPILOGUE, Work, count
from fusion_cli.operators.dtypes import element_bytes
from fusion_cli.operators.elementwise import ELEMENTWISE
from fusion_cli.planir.stages import Group, Instr, Linear, Operand, Plan, Stage

Kind = Literal["cpu", "cuda"]
REPLAYED = 4
"""Launches of an operator from which on they are started as one CUDA graph where they would keep the GPU waiting."""
_FREE = {"load", "acc", "const", "index"} | {o.name for o in ELEMENTWISE if not o.cost}
_SPECIAL = frozenset(o.name for o in ELEMENTWISE if o.is_special)


@dataclass(frozen=True)
class Schedule:
    """One variant of a family's kernel: its tile, width or split in numbers, and when it runs, in words."""

    variant: str
    when: str
    settings: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class Sized:
    """A stage at certain sizes on a device. `dims` are the values of the plan's shape program, `weights` the operator
    inputs that are constant."""

    plan: Plan
    stage: Any
    dims: Sequence[Sequence[int]]
    profile: DeviceProfile
    weights: frozenset[int]

    @property
    def space(self) -> float:
        """How many elements the iteration space has."""
        return float(count(self.dims[self.stage.dims]))

    @property
    def grid(self) -> tuple[float, float, float] | None:
        """Batches, rows and columns of what a matrix product makes, whose right operand is one matrix or one a batch;
        None for other stages."""
        if not isinstance(self.stage, Linear):
            return None
        out = self.dims[self.stage.dims]
        if len(self.dims[self.plan.tensors[self.stage.operands[self.stage.b].tensor].dims]) == 2:
            return 1.0, float(count(out[:-1])), float(out[-1])
        return float(count(out[:-2])), float(out[-2]), float(out[-1])

    def shape(self, operand: int) -> Sequence[int]:
        """An operand's dimensions, as the stage sees them."""
        found = self.stage.operands[operand]
        shape = self.dims[self.plan.tensors[found.tensor].dims]
        return shape if found.perm is None else [shape[p] for p in found.perm]

    @property
    def tables(self) -> frozenset[int]:
        """The tensors of which the stage reads rows here and there."""
        return frozenset(o.tensor for o in self.stage.operands if o.rows is not None)

    def dtype(self, operand: int) -> str:
        found: Operand = self.stage.operands[operand]
        return self.plan.tensors[found.tensor].dtype

    def moved(self, tensors: Iterable[int]) -> float:
        """Bytes of these tensors; of views that overlap, no more than what they are views of."""
        moved: dict[int, int] = {}
        for tensor in tensors:
            root = self.plan.root(tensor)
            size = element_bytes(self.plan.tensors[root].dtype)
            whole, own = (count(self.dims[self.plan.tensors[t].dims]) * size for t in (root, tensor))
            moved[root] = min(whole, moved.get(root, 0) + own)
        return float(sum(moved.values()))

    def constants(self, tensors: Iterable[int]) -> float:
        """Bytes of those of these tensors that lie in constant inputs of the operator."""
        return self.moved(t for t in tensors if self._is_constant(t))

    def is_weight(self, operand: int) -> bool:
        """Whether an operand lies in a constant input of the operator."""
        return self._is_constant(self.stage.operands[operand].tensor)

    def _is_constant(self, tensor: int) -> bool:
        found = self.plan.tensors[self.plan.root(tensor)]
        return found.role == "input" and found.slot in self.weights


class Family(ABC):
    """A way to run plan stages of the types `stages`. Where several families accept a stage, the first that
    `fusion_cli.kernels` lists runs it."""

    name: ClassVar[str]
    stages: ClassVar[tuple[type, ...]]

    def accepts(self, plan: Plan, stage: Stage, kind: Kind) -> bool:
        """Whether the family has a kernel of this kind for the stage; what the kernel cannot do in detail (an element
        type, a rank) is said by Unsupported when its source is made."""
        return isinstance(stage, self.stages)

    def work(self, at: Sized) -> list[Work]:
        """What the kernels of a stage have to do, in the order in which they run: unless a family says otherwise, one
        pass over its iteration space. Raises Unsupported where one would not fit the device."""
        simple, special = operations(at.stage.program)
        name = type(at.stage).__name__
        whole = [t for t in at.stage.tensors if t not in at.tables]
        rows = at.space * sum(element_bytes(at.plan.tensors[t].dtype) for t in at.tables)
        moved, weights = at.moved(whole) + rows, at.constants(whole)
        return [Work(name, moved, simple=simple * at.space, special=special * at.space, weights=weights)]

    @abstractmethod
    def schedules(self, plan: Plan, stage: Any, kind: Kind) -> tuple[Schedule, ...]:
        """The variants that are compiled in; the sizes of a run choose among them."""

    def cpu(self, plan: Plan, stage: Any, index: int, arch: str) -> CpuStage:
        """The stage as the CPU templates print it, for processors with `arch` (any if empty). Raises Unsupported."""
        raise NotImplementedError(f"{self.name} accepts no stage for CPUs")

    def cuda(self, plan: Plan, stage: Any, index: int) -> CudaStage:
        """The stage as the CUDA templates print it. Raises Unsupported."""
        raise NotImplementedError(f"{self.name} accepts no stage for GPUs")

    def together(self, plan: Plan, group: Group, stages: Sequence[CudaStage]) -> CudaGroup | None:
        """The stages of a group, given as `cuda` makes them, as one launch; None if the family has no kernel that runs
        them together. Asked of the family of the group's last stage."""
        return None


def operations(program: Sequence[Instr]) -> tuple[int, int]:
    """Simple and special operations per element; what is computed once a row is as good as free."""
    simple = special = 0
    per_row: list[bool] = []
    for instr in program:
        reduction = instr.op.startswith("reduce_")
        once = bool(instr.args) and all(per_row[a] for a in instr.args)
        per_row.append(reduction or once or instr.op == "const")
        if instr.op in _SPECIAL and not once:
            special += 1
        elif instr.op not in _FREE and not once:
            simple += 1
    return simple, special


def product_work(at: Sized, factors: Sequence[int], flops: float, slowdown: float) -> list[Work]:
    """A vendor's product or convolution of the operands `factors`, and what follows it as a second pass over its
    result."""
    tensors = {at.stage.operands[i].tensor for i in factors}
    dtype = at.dtype(factors[0])
    result = at.space * element_bytes(dtype)
    name, moved = type(at.stage).__name__, at.moved(tensors) + result
    product = Work(name, moved, flops, dtype, slowdown=slowdown, grid=at.grid, weights=at.constants(tensors))
    simple, special = operations(at.stage.program)
    if not simple + special:
        return [product]
    rest = at.moved(set(at.stage.tensors) - tensors)
    return [product, Work(EPILOGUE, result + rest, simple=simple * at.space, special=special * at.space)]
