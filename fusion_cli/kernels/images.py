"""What kernels of one image with the channels last have in common."""

from __future__ import annotations

from fusion_cli.codegen.cpu_parts import ProductStage, dense, product_dtype, product_stage
from fusion_cli.codegen.cuda_parts import Load, Member, Names
from fusion_cli.codes import emit as codes
from fusion_cli.errors import Unsupported
from fusion_cli.kernels.family import Schedule
from fusion_cli.planir.stages import Moments, Plan, Pool


def by_channels(width: int) -> tuple[Schedule, ...]:
    """The variants of a kernel of which a thread has so many channels at once, or one."""
    return (
        Schedule("vectors", "channels are whole vectors, which lie on their boundaries", (("channels", width),)),
        Schedule("elements", "otherwise", (("channels", 1),)),
    )


def image_load(stage: Pool | Moments, names: Names) -> Load:
    """The image as a GPU's kernel reads it. Raises Unsupported where that is not how it lies."""
    if stage.operands[stage.x].perm is not None:
        raise Unsupported(codes.LIMIT, "an image as it lies in memory", "another")
    return names.load(stage.x)


def cpu_image_stage(plan: Plan, stage: Pool | Moments, kind: str, index: int, options: str) -> ProductStage:
    """A stage of a CPU, made by a member of this kind with these options from the image."""
    operand = stage.operands[stage.x]
    dtype = product_dtype(plan, operand)
    member = Member(kind, f"product_{index}", f"api, info, {options}")
    return product_stage(plan, stage, dtype, member, dense(dtype, operand.tensor, operand.perm))
