"""Depthwise convolutions of images whose channels come last, on GPUs: a thread computes a patch of results of a few
channels, and what follows them."""

from __future__ import annotations

from dataclasses import dataclass

from fusion_cli.codegen.cuda_parts import Load
from fusion_cli.devices.work import Work
from fusion_cli.kernels.conv_last import filter_of, names_of, sizes
from fusion_cli.kernels.family import Family, Kind, Schedule, Sized, operations
from fusion_cli.kernels.windows import WindowStage, on_two_axes, window_form, window_parts
from fusion_cli.planir.stages import Conv, Plan, Stage

_WINDOW = 16
"""Pixels of a row that a thread keeps at once: more would not fit in registers."""
_NARROW, _WIDE = 4, 2
"""Channels of a thread where a kernel is at most 3 wide, and where it is wider and its sums are many."""
_TAP = 1.6
"""Operations for each tap of a result: a multiply-add, and a share of what makes floats of what is read."""


@dataclass(frozen=True)
class Patch:
    """What a thread computes: so many rows and columns of results of so many channels; `taps` of a row at once."""

    rows: int
    columns: int
    channels: int
    taps: int


@dataclass(frozen=True, kw_only=True)
class DepthwiseStage(WindowStage):
    w: Load
    rows: int
    columns: int
    taps: int
    """Of a row at once."""


class DepthwiseFamily(Family):
    name = "depthwise"
    stages = (Conv,)

    def accepts(self, plan: Plan, stage: Stage, kind: Kind) -> bool:
        return kind == "cuda" and isinstance(stage, Conv) and stage.channels_last and _is_depthwise(plan, stage)

    def work(self, at: Sized) -> list[Work]:
        high, wide = _kernel(at.plan, at.stage)
        simple, special = operations(at.stage.program)
        per_result = _TAP * high * wide + simple
        moved, weights = at.moved(at.stage.tensors), at.constants(at.stage.tensors)
        return [Work("Conv", moved, simple=per_result * at.space, special=special * at.space, weights=weights)]

    def schedules(self, plan: Plan, stage: Conv, kind: Kind) -> tuple[Schedule, ...]:
        patch = patch_of(plan, stage)
        large = (("rows", patch.rows), ("columns", patch.columns), ("channels", patch.channels))
        small = (("rows", 1), *large[1:])
        return (
            Schedule("patches", "channels are whole vectors, and threads enough for the GPU", large),
            *((Schedule("rows", "channels are whole vectors, and threads are fewer", small),) * (patch.rows > 1)),
            Schedule("elements", "otherwise", (("rows", 1), ("columns", patch.columns), ("channels", 1))),
        )

    def cuda(self, plan: Plan, stage: Conv, index: int) -> DepthwiseStage:
        names, x, w = names_of(plan, stage)
        member, scratch = filter_of(plan, stage, w, index)
        patch = patch_of(plan, stage)
        return DepthwiseStage(
            **names.common("depthwise", "depthwise.cuh"),
            takes=("gpu::Filter& filter", "void* scratch"),
            arguments=(member.name, f"work + {scratch.name}"),
            members=(member,),
            buffers=(scratch,),
            **window_parts(plan, stage, names),
            width=patch.channels,
            x=x,
            w=w,
            sizes=sizes(stage),
            form=window_form(_kernel(plan, stage), stage),
            rows=patch.rows,
            columns=patch.columns,
            taps=patch.taps,
        )


def patch_of(plan: Plan, stage: Conv) -> Patch:
    """What a thread computes of a depthwise convolution: as much as shares what it reads and fits in registers."""
    high, wide = _kernel(plan, stage)
    (down, across), (_, apart) = on_two_axes(stage.strides), on_two_axes(stage.dilations)
    columns = {1: 4 if wide <= 3 else 8, 2: 4, 3: 2, 4: 2}.get(across, 1)
    left = _WINDOW - (columns - 1) * across - 1
    taps = max(1, min(wide, left // apart + 1))
    return Patch(2 if down == 1 and high > 1 else 1, columns, _NARROW if wide <= 3 else _WIDE, taps)


def _is_depthwise(plan: Plan, stage: Conv) -> bool:
    """Whether each channel has a filter of its own, whose size is known, along one axis or two."""
    filters, each, *kernel = plan.tensors[stage.operands[stage.w].tensor].shape
    axes = len(kernel) in (1, 2) and all(isinstance(k, int) and k > 0 for k in kernel)
    return axes and each == 1 and filters == stage.group > 1


def _kernel(plan: Plan, stage: Conv) -> tuple[int, int]:
    """The height and width of the filters."""
    return on_two_axes(plan.tensors[stage.operands[stage.w].tensor].shape[2:])
