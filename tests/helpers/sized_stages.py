"""Plan stages at certain sizes, as the score asks kernel families about them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from fusion_cli.devices.profile import DeviceProfile, read_profile
from fusion_cli.kernels import Kind, Sized
from fusion_cli.plan.shape_program import run_shape_program
from fusion_cli.planir.stages import Plan
from fusion_cli.resources import resource_dir

_PROFILES: Mapping[Kind, str] = {"cpu": "cpu.toml", "cuda": "h200.toml"}


@cache
def profile(kind: Kind) -> DeviceProfile:
    """That of a CPU, or of an H200."""
    return read_profile(resource_dir("devices") / _PROFILES[kind])


def sized_stages(plan: Plan, sizes: Mapping[str, int], kind: Kind) -> list[Sized]:
    """The plan's stages with numbers for the symbols of its inputs."""
    shapes = {
        slot: [sizes[d] if isinstance(d, str) else d for d in plan.tensors[tensor].shape]
        for slot, tensor in enumerate(plan.inputs)
        if tensor >= 0
    }
    dims = run_shape_program(plan.shape_program, shapes, {})
    return [Sized(plan, stage, dims, profile(kind), frozenset()) for stage in plan.stages]
