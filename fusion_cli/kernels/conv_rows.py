"""Convolutions of images whose channels come last in float32 on CPUs (templates/cpu/conv_last.h), with bias, residual
and ReLU in them; the products that those of one point became beside them."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from fusion_cli.codegen.cpu_parts import CpuStage, dense, product_stage
from fusion_cli.codegen.cuda_parts import Member
from fusion_cli.codegen.text import flag
from fusion_cli.devices.work import Work, count
from fusion_cli.kernels.addends import addends_of
from fusion_cli.kernels.conv_last import sizes
from fusion_cli.kernels.convolution import ConvolutionFamily
from fusion_cli.kernels.family import Family, Kind, Schedule, Sized, product_work
from fusion_cli.kernels.linear import LinearFamily
from fusion_cli.planir.stages import Conv, Linear, Operand, Plan, Stage, own_operands

_TAPS, _SIDES = 3, (4, 2)
_FEWEST_TILES = 8
_LANES, _STRIP = 16, 32
_EACH_TAP = 1.0
"""What goes to the next tap takes as long as so many channels."""
_OPERATIONS = 8.0
"""An element of the input or the result, for the sums that Winograd's filtering makes of it."""
_SLOWDOWN = 1.05
"""Against the vendor's convolution in its blocks. Measured on an AMD Zen 5, one thread: 1 x 1 over 64 to 1024 channels
0.74 to 1.04 of its time, 3 x 3 over 32 to 256 channels 0.33 to 0.44."""
_RANK = 4
_MOST_WEIGHT_BYTES = 16e6
"""Of the sums of the weights that Winograd's filtering takes, four times as large as these."""
_ROWS = Schedule(
    "rows",
    "in float32 with constant weights: the pixels below each tap by the weights",
    (("rows", 14), ("columns", 32)),
)
_WINOGRAD = Schedule(
    "winograd",
    "3 x 3, no strides, whole vectors of channels: 36 multiplications for 16 results; rows where one is not finite",
    (("rows", _SIDES[0]), ("columns", _SIDES[0])),
)


class RowsFamily(Family):
    name = "convolution of rows"
    stages = (Conv, Linear)

    def accepts(self, plan: Plan, stage: Stage, kind: Kind) -> bool:
        if kind != "cpu":
            return False
        if isinstance(stage, Linear):
            return _is_point(plan, stage) and any(_is_image(plan, s) for s in plan.stages)
        return _is_image(plan, stage)

    def work(self, at: Sized) -> list[Work]:
        if at.profile.tile_tflops:
            return _other(at.stage).work(at)
        x, w = own_operands(at.stage)
        made, read, *window = at.shape(w)
        wide = ceil(made / _STRIP) * _STRIP
        flops = 2.0 * count(at.dims[at.stage.dims][:-1]) * wide * count(window) * (read + _EACH_TAP)
        product, *rest = product_work(at, (x, w), flops, _SLOWDOWN / at.profile.vendor_conv_efficiency)
        if addends_of(at.plan, at.stage):
            product, rest = replace(product, bytes=at.moved(at.stage.tensors)), []
        side = _side(at) if _is_small(at.plan, at.stage) else 0
        if side:
            image, points = at.shape(x), (side + _TAPS - 1) ** 2
            flops = 2.0 * points * _tiles(at, side) * wide * read
            operations = _OPERATIONS * (count(image) + at.space)
            sums = 4.0 * points * made * read
            product = replace(product, bytes=product.bytes + sums, flops=flops, simple=operations)
        return [product, *rest]

    def schedules(self, plan: Plan, stage: Conv | Linear, kind: Kind) -> tuple[Schedule, ...]:
        return (_WINOGRAD, _ROWS) if _is_small(plan, stage) else (_ROWS,)

    def cpu(self, plan: Plan, stage: Conv | Linear, index: int, arch: str) -> CpuStage:
        if arch == "amx":
            return _other(stage).cpu(plan, stage, index, arch)
        operands = [stage.operands[k] for k in own_operands(stage)]
        arrays = [dense("float32", o.tensor, o.perm) for o in operands]
        found = addends_of(plan, stage)
        added = (found.bias, found.residual) if found else (None, None)
        data = ["nullptr" if k is None else f"t{stage.operands[k].tensor}.data" for k in added]
        relu = flag(found is not None and found.relu)
        options = sizes(stage) if isinstance(stage, Conv) else sizes(Conv((), (), (), -1))
        member = Member("LastConv", f"product_{index}", f"api, info, {options}, {_weight_slot(plan, operands[1])}")
        inputs = f"{', '.join(arrays)}, LastAddends{{{', '.join([*data, relu])}}}"
        bare = product_stage(plan, stage, "float32", member, inputs)
        return replace(bare, body=None) if found else bare


def _other(stage: Conv | Linear) -> Family:
    """What runs a stage where the processor has tiles."""
    return ConvolutionFamily() if isinstance(stage, Conv) else LinearFamily()


def _is_image(plan: Plan, stage: Stage) -> bool:
    """Whether a stage is a convolution of images, of one group and constant weights, with the channels last."""
    if not isinstance(stage, Conv) or not stage.channels_last or stage.group != 1:
        return False
    x, w = (stage.operands[k] for k in own_operands(stage))
    return len(plan.viewed(x)) == _RANK and _is_float(plan, x) and _weight_slot(plan, w) is not None


def _is_point(plan: Plan, stage: Linear) -> bool:
    """Whether a product is by constant weights [made, read]."""
    a, b = (stage.operands[k] for k in own_operands(stage))
    plain = stage.trans_b and not stage.trans_a and stage.alpha == 1.0 and len(plan.viewed(b)) == len(("made", "read"))
    return plain and _is_float(plan, a) and _weight_slot(plan, b) is not None


def _is_small(plan: Plan, stage: Conv | Linear) -> bool:
    """Whether Winograd's filtering is for a stage."""
    if not isinstance(stage, Conv) or not {*stage.strides, *stage.dilations} <= {1}:
        return False
    made, read, *window = plan.tensors[stage.operands[stage.w].tensor].shape
    if not (isinstance(made, int) and isinstance(read, int)) or window != [_TAPS, _TAPS]:
        return False
    return (
        made % _LANES == read % _LANES == 0 and 4.0 * (_SIDES[0] + _TAPS - 1) ** 2 * made * read <= _MOST_WEIGHT_BYTES
    )


def _side(at: Sized) -> int:
    """Of tiles; 0 where there are too few of them."""
    return next((side for side in _SIDES if _tiles(at, side) >= _FEWEST_TILES), 0)


def _tiles(at: Sized, side: int) -> int:
    images, height, width, _ = at.dims[at.stage.dims]
    return int(images * ceil(height / side) * ceil(width / side))


def _is_float(plan: Plan, operand: Operand) -> bool:
    return plan.tensors[operand.tensor].dtype == "float32"


def _weight_slot(plan: Plan, operand: Operand) -> int | None:
    """The operator's input that weights are as they lie there, but for their dimensions; None if they are none."""
    root = plan.tensors[plan.root(operand.tensor)]
    is_plain = operand.perm is None and plan.tensors[operand.tensor].role in ("input", "alias")
    return root.slot if is_plain and root.role == "input" and root.dtype == "float32" else None
