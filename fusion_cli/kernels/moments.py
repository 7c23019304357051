"""The mean and the deviation of groups of channels of images whose channels come last, with which group
norms begin."""

from __future__ import annotations

from dataclasses import dataclass

from fusion_cli.codegen.cpu_parts import ProductStage, product_dtype
from fusion_cli.codegen.cuda_parts import Buffer, CudaStage, Load, Names, Out
from fusion_cli.codes import emit as codes
from fusion_cli.devices.work import Work, count
from fusion_cli.errors import Unsupported
from fusion_cli.kernels.family import Family, Kind, Schedule, Sized
from fusion_cli.kernels.images import by_channels, cpu_image_stage, image_load
from fusion_cli.kernels.pointwise import vector_width
from fusion_cli.planir.stages import Moments, Plan

_PER_ELEMENT = 5
"""Operations: a distance, its square, their sums."""


@dataclass(frozen=True, kw_only=True)
class MomentsStage(CudaStage):
    x: Load
    out: Out
    width: int
    """Channels of a thread's access."""
    groups: int
    epsilon: str


class MomentsFamily(Family):
    name = "moments"
    stages = (Moments,)

    def work(self, at: Sized) -> list[Work]:
        elements = count(at.shape(at.stage.x))
        return [Work("Moments", at.moved(at.stage.tensors), simple=float(_PER_ELEMENT * elements))]

    def schedules(self, plan: Plan, stage: Moments, kind: Kind) -> tuple[Schedule, ...]:
        if kind == "cpu":
            return (Schedule("groups", "always: a group of an image at a time, twice"),)
        return by_channels(self.cuda(plan, stage, 0).width)

    def cpu(self, plan: Plan, stage: Moments, index: int, arch: str) -> ProductStage:
        dtype = product_dtype(plan, stage.operands[stage.x])
        if dtype != "float32":
            raise Unsupported(codes.DTYPE, "an image of floats", dtype)
        return cpu_image_stage(plan, stage, "Moments", index, f"{stage.groups}, {stage.epsilon!r}f")

    def cuda(self, plan: Plan, stage: Moments, index: int) -> MomentsStage:
        names = Names(plan, stage)
        x, (out,) = image_load(stage, names), names.outs()
        name = f"moments_{index}"
        width, dims = vector_width([x.dtype]), plan.tensors[stage.operands[stage.x].tensor].dims
        size = f"gpu::moment_bytes(device, h{dims}, {stage.groups}, {width})"
        return MomentsStage(
            **names.common("moments", "moments.cuh"),
            takes=("void* parts", "unsigned* done"),
            arguments=(f"work + {name}", "gpu::counters(work)"),
            buffers=(Buffer(name, (size,)),),
            x=x,
            out=out,
            width=width,
            groups=stage.groups,
            epsilon=f"{stage.epsilon!r}f",
        )
