"""Transposing copies on GPUs: where rows become columns, in tiles through shared memory."""

from __future__ import annotations

from dataclasses import replace

from fusion_cli.codegen.cuda_parts import CudaStage, Names
from fusion_cli.kernels.family import Family, Kind, Schedule
from fusion_cli.kernels.pointwise import PointwiseFamily, pointwise_stage
from fusion_cli.planir.stages import Plan, Pointwise, Stage

_TILE = (("rows", 64), ("columns", 64))
_TILES = Schedule("tiles", "neighbours where it is read are none where it is written, 32 of either at least", _TILE)


class TransposeFamily(Family):
    name = "transpose"
    stages = (Pointwise,)

    def accepts(self, plan: Plan, stage: Stage, kind: Kind) -> bool:
        if kind != "cuda" or not isinstance(stage, Pointwise) or len(stage.stores) != 1 or len(stage.program) != 1:
            return False
        (instr,), (store,) = stage.program, stage.stores
        if instr.op != "load" or stage.operands[0].perm is None:
            return False
        made, read = plan.tensors[store.tensor], plan.tensors[stage.operands[0].tensor]
        return made.role != "view" and made.dtype == read.dtype

    def schedules(self, plan: Plan, stage: Pointwise, kind: Kind) -> tuple[Schedule, ...]:
        return (_TILES, *PointwiseFamily().schedules(plan, stage, kind))

    def cuda(self, plan: Plan, stage: Pointwise, index: int) -> CudaStage:
        names = Names(plan, stage)
        copied = pointwise_stage(names, stage.program, {})
        return replace(copied, **names.common("transpose", "transpose.cuh", "vector.cuh"))
