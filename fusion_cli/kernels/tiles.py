"""Products of float32 in the tile registers of Intel's processors, of factors split into two bfloat16 numbers: which
stages have them, and what they have to do. Where a machine lacks such registers, ONNX Runtime's kernel runs instead."""

from __future__ import annotations

from fusion_cli.kernels.family import Schedule, Sized
from fusion_cli.planir.stages import Operand, Plan

SCHEDULE = Schedule(
    "tiles",
    "where the processor has tiles of bfloat16 (AMX): the constant factor's are made once; each factor is two numbers",
    (("rows", 32), ("columns", 32)),
)


def constant_slot(plan: Plan, operand: Operand, dtype: str) -> int | None:
    """The operator's input that an operand in float32 is as it lies there, of which tiles may be kept if it is constant;
    None if it is none."""
    tensor = plan.tensors[operand.tensor]
    return tensor.slot if tensor.role == "input" and dtype == "float32" and operand.perm is None else None


def has_tiles(at: Sized, factor: int) -> bool:
    """Whether a product's tiles run: on a device that has them, with a constant factor in float32."""
    return bool(at.profile.tile_tflops) and at.is_weight(factor) and at.dtype(factor) == "float32"
