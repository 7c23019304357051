"""One number of each column on GPUs: reductions along an axis of which neighbours are apart in memory, such as means of
all positions of an image whose channels come last. A block reads rows of neighbouring columns as they lie."""

from __future__ import annotations

from dataclasses import dataclass

from fusion_cli.codegen.cuda_parts import CudaStage, Load, Names, Out, result
from fusion_cli.codegen.expr import loaded, needed, render_program
from fusion_cli.codegen.row_passes import reduces
from fusion_cli.kernels.family import Family, Kind, Schedule
from fusion_cli.kernels.rowwise import Reduction, reduction
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
        loads = tuple(names.load(k) for k in sorted(loaded(program, _live(stage))))
        (column,) = loaded(program, before)
        x = next(load for load in loads if load.operand == column)
        slots = {load.operand: n for n, load in enumerate(loads)}
        return ColumnsStage(
            **names.common("columns", "columns.cuh"),
            loads=loads,
            x=x,
            outs=outs,
            width=max(1, _BYTES // element_bytes(x.dtype)),
            lines=tuple(render_program(program, load=lambda k: "gpu::get(x[u], i)", only=before)),
            reduction=reduction(program, reduced, result(program, program[reduced].args[0])),
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
    if len(reductions) != 1 or not ops.isdisjoint({"index", "acc"}) or any(s[-1:] != (1,) for s in shapes):
        return False
    before = needed(program, [program[reductions[0]].args[0]])
    read, others = loaded(program, before), loaded(program, _live(stage) - before)
    one_each = all(plan.viewed(stage.operands[k])[-1:] in ((1,), ()) for k in others)
    if len(read) != 1 or not read.isdisjoint(others) or not one_each:
        return False
    operand = stage.operands[next(iter(read))]
    perm, rank = operand.perm, len(plan.viewed(operand))
    return operand.rows is None and perm is not None and perm[-2:] == (rank - 1, rank - 2)


def _live(stage: Rowwise) -> frozenset[int]:
    return needed(stage.program, [s.instr for s in stage.stores])


def _reductions(stage: Rowwise) -> list[int]:
    return [i for i in sorted(_live(stage)) if reduces(stage.program[i])]
