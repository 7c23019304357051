"""Products of float32 in the tile registers of Intel's processors, of factors split into two bfloat16 numbers: which
stages have them, and what they have to do. Where a machine lacks such registers, ONNX Runtime's kernel runs instead."""

from __future__ import annotations

from fusion_cli.devices.work import Work
from fusion_cli.kernels.family import Schedule, Sized, product_work
from fusion_cli.planir.stages import Conv, Operand, Plan

_MOST_STRIDE = 2
"""Of a convolution: what is further apart would be gathered number by number."""
SCHEDULE = Schedule(
    "tiles",
    "target amx, where the processor has its tiles and a factor is constant: each factor as two bfloat16 numbers",
    (("rows", 32), ("columns", 32)),
)


def takes(stage: Conv) -> bool:
    """Whether a convolution can run in tiles."""
    return stage.group == 1 and not stage.channels_last and max(stage.strides, default=1) <= _MOST_STRIDE


def constant_slot(plan: Plan, operand: Operand, dtype: str) -> int | None:
    """The operator's input that an operand in float32 is as it lies there: of constants something may be kept. None if
    it is none."""
    tensor = plan.tensors[operand.tensor]
    is_plain = tensor.role == "input" and tensor.dtype == "float32" and operand.perm is None
    return tensor.slot if is_plain and dtype == "float32" else None


def tile_work(at: Sized, data: int, weight: int, flops: float) -> list[Work] | None:
    """What a product of `data` by a constant `weight` has to do in tiles, with a pass over its data that splits them,
    as long as the vendor's arithmetic would take; None on a device without tiles, or for other than such products."""
    profile = at.profile
    if not profile.tile_tflops or not at.is_weight(weight) or at.dtype(weight) != "float32":
        return None
    share = profile.tflops["float32"] / profile.tile_tflops
    moved = at.moved([at.stage.operands[data].tensor])
    return [Work("Split", 2 * moved), *product_work(at, (data, weight), flops * share, 1.0)]
