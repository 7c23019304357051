"""The mean and the deviation of groups of channels of images whose channels come last, with which group
norms begin."""

from __future__ import annotations

from dataclasses import dataclass

from fusion_cli.codegen.cpu_parts import ProductStage, dense, product_dtype, product_stage
from fusion_cli.codegen.cuda_parts import Buffer, CudaStage, Load, Member, Names, Out
from fusion_cli.codes import emit as codes
from fusion_cli.devices.work import Work
from fusion_cli.errors import Unsupported
from fusion_cli.kernels.family import Family, Kind, Schedule, Sized
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
        read = at.shape(at.stage.x)
        elements = float(read[0] * read[-1])
        for size in read[1:-1]:
            elements *= size
        return [Work("Moments", at.moved(at.stage.tensors), simple=_PER_ELEMENT * elements)]

    def schedules(self, plan: Plan, stage: Moments, kind: Kind) -> tuple[Schedule, ...]:
        if kind == "cpu":
            return (Schedule("groups", "always: a group of an image at a time, twice"),)
        width = self.cuda(plan, stage, 0).width
        return (
            Schedule("vectors", "channels are whole vectors, which lie on their boundaries", (("channels", width),)),
            Schedule("elements", "otherwise", (("channels", 1),)),
        )

    def cpu(self, plan: Plan, stage: Moments, index: int, arch: str) -> ProductStage:
        operand = stage.operands[stage.x]
        dtype = product_dtype(plan, operand)
        if dtype != "float32":
            raise Unsupported(codes.DTYPE, "an image of floats", dtype)
        member = Member("Moments", f"product_{index}", f"api, info, {stage.groups}, {stage.epsilon!r}f")
        return product_stage(plan, stage, dtype, member, dense(dtype, operand.tensor, operand.perm))

    def cuda(self, plan: Plan, stage: Moments, index: int) -> MomentsStage:
        names = Names(plan, stage)
        x, (out,) = names.load(stage.x), names.outs()
        if stage.operands[stage.x].perm is not None:
            raise Unsupported(codes.LIMIT, "an image as it lies in memory", "another")
        name = f"moments_{index}"
        size = f"gpu::moment_bytes(device, h{plan.tensors[stage.operands[stage.x].tensor].dims}, {stage.groups})"
        return MomentsStage(
            **names.common("moments", "moments.cuh"),
            takes=("void* parts", "unsigned* done"),
            arguments=(f"work + {name}", "gpu::counters(work)"),
            buffers=(Buffer(name, (size,)),),
            x=x,
            out=out,
            width=vector_width([x.dtype]),
            groups=stage.groups,
            epsilon=f"{stage.epsilon!r}f",
        )
