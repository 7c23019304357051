"""Products of float32 in TF32, where ONNX Runtime's provider allows it: our own kernel with the epilogue in it, for one
product or for several of one left operand side by side."""

from __future__ import annotations

from collections.abc import Sequence

from fusion_cli.kernels.family import Schedule
from fusion_cli.kernels.wide import Wide, chains_with, wide_of
from fusion_cli.planir.stages import Linear, Plan

_TYPES = frozenset({"float32"})
_FITS = "TF32 allowed, more than 2 rows, columns by the eight, all operands on 16-byte boundaries"

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
