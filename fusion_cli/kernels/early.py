"""Right operands of products that are constants: kernels may read them while those before still run."""

from __future__ import annotations

from collections.abc import Sequence

from fusion_cli.codegen.cuda_parts import Member
from fusion_cli.kernels.wide import right_are_inputs, right_input
from fusion_cli.planir.stages import Plan

PARAMETER = "bool early"
"""What functions that run such kernels take: whether all right operands of a launch are constants."""


def members(plan: Plan, position: int) -> tuple[Member, ...]:
    """Whether the right operand of a stage is a constant, where it is an input at all."""
    slot = right_input(plan, position)
    arguments = f"fusion::is_constant(api, info, {slot})"
    return () if slot is None else (Member("bool", f"constant_{position}", arguments),)


def argument(plan: Plan, launch: Sequence[int]) -> str:
    """What is given for `PARAMETER`."""
    return " && ".join(f"constant_{i}" for i in launch) if right_are_inputs(plan, launch) else "false"
