"""Products of float32 in TF32, where ONNX Runtime's provider allows it: our own kernel with the epilogue in it, for one
product or for several of one left operand side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fusion_cli.codegen.cuda_parts import Member
from fusion_cli.devices.work import Work
from fusion_cli.kernels.family import Schedule, Sized
from fusion_cli.kernels.wide import ROWS, Wide, chains_with, may_be_many, right_are_inputs, right_input, wide_of
from fusion_cli.planir.stages import Linear, Plan

_TYPES = frozenset({"float32"})
_ARCH = "sm_90a"
_FILLS = 132 * 64 * 128
"""Elements of a result that give each multiprocessor a tile."""
_SLOWDOWN = 0.53
"""Of products by constants that are turned, beside the vendor's, whose rate the profile has: on an H200 179 us and 196
at 2048x4096x4096, 355 and 492 at 1024x16384x4096, 19 and 41 at 1024x3072x768."""
_EIGHTS = "columns by the eight, all operands on 16-byte boundaries"
_FITS = f"TF32 allowed, more than 2 rows, {_EIGHTS}"

SCHEDULE = Schedule(
    "tf32",
    f"{_FITS}, and faster than the vendor's: its depth divided among blocks where there are few rows",
    (("rows", 64), ("columns", 64)),
)
ABREAST = Schedule(
    "tf32 abreast",
    f"{_FITS}: with the others of the same left operand in one launch",
    (("rows", 64), ("columns", 64)),
)

TURNED = Schedule(
    "tf32 turned",
    f"{_ARCH}, TF32 allowed, at least {ROWS} rows, {_EIGHTS}, the right operand a constant: kept once more, turned and "
    "rounded, as long as a quarter of the GPU's memory stays free; where no other is faster, with those of the same "
    "left operand",
    (("rows", 128), ("columns", 256)),
)


def members(plan: Plan, position: int) -> tuple[Member, ...]:
    """What is kept of a stage's right operand, where it is an input at all."""
    slot = right_input(plan, position)
    return () if slot is None else (Member("gpu::Turned", f"turned_{position}", f"api, info, {slot}"),)


def parameters(stages: Sequence[int]) -> tuple[str, ...]:
    """What functions that may run the kernel of such take, of stages by position."""
    return tuple(f"gpu::Turned& turned{n}" for n in range(len(stages)))


def arguments(stages: Sequence[int]) -> tuple[str, ...]:
    """What is given for `parameters`."""
    return tuple(f"turned_{position}" for position in stages)


def may_turn(plan: Plan, stages: Sequence[int]) -> bool:
    """Whether all their right operands may be constants, and rows enough."""
    return may_be_many(plan, stages[0]) and right_are_inputs(plan, stages)


def work_turned(at: Sized) -> Work | None:
    """What a product by a constant that is turned has to do at these sizes, those of the same left operand with it;
    None where another kernel runs."""
    stage: Linear = at.stage
    position = at.plan.stages.index(stage)
    rows, depth = math.prod(at.dims[stage.dims][:-1]), at.shape(stage.a)[-1]
    abreast = [i for c in chains_with(at.plan, position) for i in c] if tf32_with(at.plan, position) else []
    group = abreast if all(right_input(at.plan, i) in at.weights for i in abreast) else []
    widths = [at.dims[s.dims][-1] for i in group or [position] if isinstance(s := at.plan.stages[i], Linear)]
    fits = rows >= ROWS and depth % 4 == 0 and not any(n % 8 for n in widths) and rows * sum(widths) >= _FILLS
    if at.profile.arch != _ARCH or not fits or not at.is_weight(stage.b) or tf32_of(at.plan, position) is None:
        return None
    flops = 2.0 * at.space * depth
    moved, weights = at.moved(stage.tensors), at.constants(stage.tensors)
    return Work("Linear", moved, flops, at.dtype(stage.a), slowdown=_SLOWDOWN, grid=at.grid, weights=weights)


def tf32_of(plan: Plan, position: int) -> Wide | None:
    """The kernel of one product."""
    return _kernel(plan, [[position]])


def tf32_with(plan: Plan, position: int) -> Wide | None:
    """The kernel that runs a stage together with all other products of its left operand, none of which reads another's
    result."""
    return _kernel(plan, chains_with(plan, position))


def _kernel(plan: Plan, chains: Sequence[Sequence[int]]) -> Wide | None:
    stages = [stage for chain in chains for i in chain if isinstance(stage := plan.stages[i], Linear)]
    flat = all(len(plan.tensors[s.operands[s.b].tensor].shape) == 2 for s in stages)
    side_by_side = all(len(chain) == 1 for chain in chains)
    return wide_of(plan, chains, _TYPES) if stages and flat and side_by_side else None
