"""What kernels of windows over images with the channels last have in common: a thread computes a patch of results of a
few channels, and what follows them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fusion_cli.codegen.cuda_parts import Load, Names
from fusion_cli.kernels.pointwise import PointwiseStage
from fusion_cli.planir.stages import Conv, Plan, Pool


@dataclass(frozen=True, kw_only=True)
class WindowStage(PointwiseStage):
    x: Load
    sizes: str
    """Of the convolution that has such windows, as `gpu::convolution` takes them."""
    form: tuple[int, ...]
    """Kernel, strides and dilations, as `gpu::WindowForm` takes them."""
    per_channel: tuple[int, ...]
    """Operands of which all results of a channel read one element, such as a bias."""


def window_parts(plan: Plan, stage: Conv | Pool, names: Names) -> dict[str, Any]:
    """What follows a thread's results, element by element."""
    body = names.body(
        stage.program,
        names.outs(),
        load=lambda k: f"gpu::get(x{k}, i)",
        position=lambda back: f"a.axis_{back}.at(e + i)",
    )
    per_channel = tuple(k for k, o in enumerate(stage.operands) if all(d == 1 for d in plan.viewed(o)[:-1]))
    return {"body": body, "per_channel": per_channel}


def window_form(kernel: tuple[int, int], stage: Conv | Pool) -> tuple[int, ...]:
    return (*kernel, *on_two_axes(stage.strides), *on_two_axes(stage.dilations))


def on_two_axes(values: Sequence[int | str]) -> tuple[int, int]:
    """What holds down and across an image, which is one row where it has one axis."""
    down, across = (1, *values)[-2:]
    return int(down), int(across)
