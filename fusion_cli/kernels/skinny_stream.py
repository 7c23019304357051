"""Products of few rows on Hopper whose right operands are large: the copy engine keeps shared memory full of them, and
all blocks share them evenly. For one product, or for even chains of one left operand (gate and up)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from fusion_cli.codegen.cuda_parts import Buffer
from fusion_cli.devices.work import Work
from fusion_cli.kernels.family import Schedule, Sized
from fusion_cli.kernels.wide import chains_with
from fusion_cli.operators.dtypes import NARROW, element_bytes
from fusion_cli.planir.stages import Linear, Plan

_FROM = 200_000_000
"""Bytes of right operands in one launch, as in skinny_stream.cuh."""
_ARCH = "sm_90a"

SCHEDULE = Schedule(
    "skinny stream",
    f"{_ARCH}: those in 16 bits with right operands of {_FROM // 10**6} MB together, even chains in one launch",
    (("rows", 16), ("columns", 128), ("depth", 64)),
)
PARAMETERS = ("void* parts", "unsigned* done")
"""What functions that may run the kernel take beside `early.PARAMETER`: memory for sums, counters."""


def launch_of(plan: Plan, position: int) -> tuple[int, ...]:
    """The stages, by position, that a stage's launch of the kernel holds."""
    chains = chains_with(plan, position)
    even = len({len(chain) for chain in chains}) == 1
    return tuple(sorted(i for chain in chains for i in chain)) if even else (position,)


def streams(plan: Plan, launch: Sequence[int]) -> bool:
    """Whether the kernel may take these stages in one launch at some sizes."""
    total = 0
    for stage in (plan.stages[i] for i in launch):
        assert isinstance(stage, Linear)
        right = stage.operands[stage.b]
        tensor = plan.tensors[right.tensor]
        if tensor.dtype not in NARROW or stage.trans_b or right.perm is not None:
            return False
        known = [size for size in tensor.shape if isinstance(size, int)]
        total += math.prod(known) * element_bytes(tensor.dtype) if len(known) == len(tensor.shape) else _FROM
    return total >= _FROM


def stream_work(at: Sized, work: Work) -> Work:
    """What a product of few rows has to do, by the name of the kernel that runs at these sizes."""
    launch = launch_of(at.plan, at.plan.stages.index(at.stage))
    stages = [stage for i in launch if isinstance(stage := at.plan.stages[i], Linear)]
    right = sum(math.prod(at.dims[at.plan.tensors[s.operands[s.b].tensor].dims]) for s in stages)
    large = right * element_bytes(work.dtype) >= _FROM
    return (
        replace(work, name="LinearStream") if large and at.profile.arch == _ARCH and streams(at.plan, launch) else work
    )


def buffer(stage: Linear, position: int) -> Buffer:
    return Buffer(f"sums_{position}", (f"gpu::stream_part_bytes(device, h{stage.dims})",))


def arguments(launch: Sequence[int]) -> tuple[str, ...]:
    """What is given for `PARAMETERS`."""
    return f"work + sums_{launch[0]}", "gpu::counters(work)"
