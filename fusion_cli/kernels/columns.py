"""One number of each column on GPUs: reductions along an axis of which neighbours are apart in memory, such as means of
all positions of an image whose channels come last. A block reads rows of neighbouring columns as they lie."""

from __future__ import annotations

from dataclasses import dataclass

from fusion_cli.codegen.cuda_parts import CudaStage, Load, Names, Out, result
from fusion_cli.codegen.expr import compute, needed, render_program
from fusion_cli.kernels.family import Family, Kind, Schedule
from fusion_cli.kernels.rowwise import Reduction
from fusion_cli.operators.dtypes import element_bytes
from fusion_cli.planir.stages import Plan, Rowwise, Stage

_BYTES = 4
"""Of a thread's access: a warp's is 128 bytes in a row."""


@dataclass(frozen=True, kw_only=True)
class ColumnsStage(CudaStage):
    loads: tuple[Load, ...]
    """What is read, of which `x` makes the columns; the others have one element for each."""
    x: Load
    outs: tuple[Out, ...]
    width: int
    """Columns of a thread."""
    lines: tuple[str, ...]
    """Statements for each element, before it is reduced."""
    reduction: Reduction
    last: tuple[str, ...]
    """Statements for each column, after that."""


class ColumnsFamily(Family):
    name = "columns"
    stages = (Rowwise,)

    def accepts(self, plan: Plan, stage: Stage, kind: Kind) -> bool:
        return kind == "cuda" and isinstance(stage, Rowwise) and is_of_columns(plan, stage)

    def schedules(self, plan: Plan, stage: Rowwise, kind: Kind) -> tuple[Schedule, ...]:
        width = self.cuda(plan, stage, 0).width
        return (
            Schedule("vectors", "columns are whole vectors, which lie on their boundaries", (("width", width),)),
            Schedule("elements", "otherwise", (("width", 1),)),
        )

    def cuda(self, plan: Plan, stage: Rowwise, index: int) -> ColumnsStage:
        names, program = Names(plan, stage), stage.program
        (reduced,) = _reductions(stage)
        before = needed(program, [program[reduced].args[0]])
        outs = names.outs()
        used = {int(program[i].value or 0) for i in _live(stage) if program[i].op == "load"}
        loads = tuple(names.load(k) for k in sorted(used))
        (column,) = (int(program[i].value or 0) for i in before if program[i].op == "load")
        x = next(load for load in loads if load.operand == column)
        slots = {load.operand: n for n, load in enumerate(loads)}
        kind = program[reduced].op.removeprefix("reduce_")
        reduction = Reduction(
            name=f"v{reduced}",
            partial=f"r{reduced}",
            type=compute(program[reduced].dtype),
            op="Sum" if kind == "mean" else kind.capitalize(),
            value=result(program, program[reduced].args[0]),
            mean=kind == "mean",
        )
        return ColumnsStage(
            **names.common("columns", "columns.cuh"),
            loads=loads,
            x=x,
            outs=outs,
            width=max(1, _BYTES // element_bytes(x.dtype)),
            lines=tuple(render_program(program, load=lambda k: "gpu::get(x[u], i)", only=before)),
            reduction=reduction,
            last=tuple(
                render_program(
                    program,
                    load=lambda k: f"fusion::load(a.in{k} + at[{slots[k]}])",
                    only=_live(stage) - needed(program, [reduced]),
                )
            ),
        )


def is_of_columns(plan: Plan, stage: Rowwise) -> bool:
    """Whether a stage makes one number of each row of one operand, whose rows are columns in memory."""
    program, reductions = stage.program, _reductions(stage)
    shapes = [plan.tensors[s.tensor].shape for s in stage.stores]
    ops = {program[i].op for i in _live(stage)}
    if len(reductions) != 1 or not ops.isdisjoint({"softmax", "index", "acc"}) or any(s[-1:] != (1,) for s in shapes):
        return False
    before = needed(program, [program[reductions[0]].args[0]])
    read = {int(program[i].value or 0) for i in before if program[i].op == "load"}
    others = {int(program[i].value or 0) for i in _live(stage) - before if program[i].op == "load"}
    if len(read) != 1 or any(plan.viewed(stage.operands[k])[-1:] not in ((1,), ()) for k in others - read):
        return False
    operand = stage.operands[next(iter(read))]
    perm, rank = operand.perm, len(plan.viewed(operand))
    return operand.rows is None and perm is not None and perm[-2:] == (rank - 1, rank - 2) and not others & read


def _live(stage: Rowwise) -> frozenset[int]:
    return needed(stage.program, [s.instr for s in stage.stores])


def _reductions(stage: Rowwise) -> list[int]:
    return [i for i in sorted(_live(stage)) if stage.program[i].op.startswith("reduce_")]
