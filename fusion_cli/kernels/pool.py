"""Windows that move over images with the channels last: the largest number of each channel, or the mean."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from fusion_cli.codegen.cpu_parts import ProductStage
from fusion_cli.codegen.cuda_parts import Names
from fusion_cli.codegen.text import flag, int_lists
from fusion_cli.devices.work import Work
from fusion_cli.kernels.family import Family, Kind, Schedule, Sized, operations
from fusion_cli.kernels.images import by_channels, cpu_image_stage, image_load
from fusion_cli.kernels.pointwise import vector_width
from fusion_cli.kernels.windows import WindowStage, on_two_axes, window_form, window_parts
from fusion_cli.planir.stages import Plan, Pool


@dataclass(frozen=True, kw_only=True)
class PoolStage(WindowStage):
    kernel: tuple[int, ...]
    mean: str
    counts_pads: str


class PoolFamily(Family):
    name = "pool"
    stages = (Pool,)

    def work(self, at: Sized) -> list[Work]:
        simple, special = operations(at.stage.program)
        per_result = prod(at.stage.kernel) + simple
        moved = at.moved(at.stage.tensors)
        return [Work("Pool", moved, simple=per_result * at.space, special=special * at.space)]

    def schedules(self, plan: Plan, stage: Pool, kind: Kind) -> tuple[Schedule, ...]:
        if kind == "cpu":
            return (Schedule("pixels", "always: a result of all channels at a time"),)
        return by_channels(self.cuda(plan, stage, 0).width)

    def cpu(self, plan: Plan, stage: Pool, index: int, arch: str) -> ProductStage:
        lists = int_lists(stage.kernel, stage.strides, stage.pads, stage.dilations)
        options = f"{lists}, {flag(stage.mean)}, {flag(stage.counts_pads)}"
        return cpu_image_stage(plan, stage, "Pool", index, options)

    def cuda(self, plan: Plan, stage: Pool, index: int) -> PoolStage:
        names = Names(plan, stage)
        x = image_load(stage, names)
        parts = window_parts(plan, stage, names)
        return PoolStage(
            **names.common("pool", "pool.cuh"),
            **parts,
            width=vector_width([x.dtype, *(y.dtype for y in (*parts["body"].loads, *parts["body"].outs))]),
            x=x,
            sizes=int_lists(stage.strides, stage.pads, stage.dilations),
            form=window_form(on_two_axes(stage.kernel), stage),
            kernel=stage.kernel,
            mean=flag(stage.mean),
            counts_pads=flag(stage.counts_pads),
        )
