"""Convolutions of images whose channels come last, on GPUs: cuDNN's kernel with bias, residual and ReLU in it, or our
own where that is faster or does not take them."""

from __future__ import annotations

from dataclasses import dataclass

from fusion_cli.codegen.cuda_parts import Buffer, CudaStage, Load, Member, Names
from fusion_cli.codegen.text import int_lists
from fusion_cli.codes import emit as codes
from fusion_cli.devices.work import Work, count, runs_by_group, vendor_convolution
from fusion_cli.errors import Unsupported
from fusion_cli.kernels.addends import addends_of, adding
from fusion_cli.kernels.family import Family, Kind, Schedule, Sized, product_work
from fusion_cli.kernels.linear import LT_BUFFER
from fusion_cli.kernels.pointwise import PointwiseStage, epilogue
from fusion_cli.operators.dtypes import FLOATS, NARROW
from fusion_cli.planir.stages import Conv, Plan, Stage, own_operands

_GROUPS = 10.0
"""Time of our own kernel for groups over that of a product of the vendor's."""
_TAKES = (
    "const gpu::Cudnn& cudnn",
    "gpu::CudnnConv& convolve",
    "gpu::Filter& filter",
    "void* lt_work",
    "void* scratch",
    "void* accumulator",
)


@dataclass(frozen=True, kw_only=True)
class ChannelsLastStage(CudaStage):
    x: Load
    w: Load
    sizes: str
    """Strides, pads, dilations, groups and automatic padding, as `gpu::convolution` takes them."""
    passes: PointwiseStage | None
    """The epilogue as a pass of its own; None where there is nothing left to do."""
    addends: tuple[str, str, str] | None
    """Bias, residual and ReLU as cuDNN's kernel takes them: host expressions."""
    own: str
    """The function that launches our own kernel, where it takes the form."""
    out: str


_TILES = Schedule(
    "tiles", "else in 16 bits and whole eights of channels, for few positions and groups: our own on tensor cores"
)
_FLOATS = Schedule("floats", "else floats multiplied as they are, which a session asks for that forbids TF32: our own")


class ChannelsLastFamily(Family):
    name = "channels last"
    stages = (Conv,)

    def accepts(self, plan: Plan, stage: Stage, kind: Kind) -> bool:
        return kind == "cuda" and isinstance(stage, Conv) and stage.channels_last

    def work(self, at: Sized) -> list[Work]:
        stage: Conv = at.stage
        flops = 2.0 * at.space * count(at.shape(stage.w)[1:])
        slowdown = vendor_convolution(at.profile, int(stage.group), at.shape(stage.w))
        if runs_by_group(int(stage.group), at.shape(stage.w)) and at.dtype(stage.x) in NARROW:
            return product_work(at, own_operands(stage), flops, _GROUPS)
        if addends_of(at.plan, stage):
            moved, weights = at.moved(stage.tensors), at.constants(stage.tensors)
            return [Work("Conv", moved, flops, at.dtype(stage.x), slowdown=slowdown, weights=weights)]
        return product_work(at, own_operands(stage), flops, slowdown)

    def schedules(self, plan: Plan, stage: Conv, kind: Kind) -> tuple[Schedule, ...]:
        what = "bias, residual and ReLU in it" if addends_of(plan, stage) else "a pass over its result"
        return (
            Schedule("vendor", f"where cuDNN is loaded and has the fastest kernel for the form, by a trial: {what}"),
            _own_schedule(plan.tensors[stage.operands[stage.x].tensor].dtype),
            Schedule("direct", "otherwise: our own kernel, one result per thread"),
        )

    def cuda(self, plan: Plan, stage: Conv, index: int) -> ChannelsLastStage:
        names, x, w = names_of(plan, stage)
        tail = epilogue(plan, stage, x.dtype, index)
        filters, scratch = filter_of(plan, stage, w, index)
        own = _own_schedule(x.dtype).variant
        return ChannelsLastStage(
            **names.common("conv_last", "cudnn_conv.h", "conv_last.cuh", f"conv_{own}.cuh", "vector.cuh"),
            takes=_TAKES,
            arguments=(
                *("cudnn", f"convolve_{index}", filters.name, "work + lt_work"),
                *(f"work + {scratch.name}", tail.accumulator),
            ),
            members=(
                Member("gpu::CudnnConv", f"convolve_{index}", ""),
                filters,
            ),
            setup=(("const gpu::Cudnn cudnn", "gpu::Cudnn::find(run.api, run.context, stream)"),),
            buffers=(*tail.buffers, LT_BUFFER, scratch),
            x=x,
            w=w,
            own=f"gpu::convolve_{own}",
            sizes=sizes(stage),
            passes=tail.passes,
            addends=adding(names, addends_of(plan, stage)),
            out=names.local[stage.stores[0].tensor],
        )


def _own_schedule(dtype: str) -> Schedule:
    return _FLOATS if dtype == "float32" else _TILES


def sizes(stage: Conv) -> str:
    """Strides, pads, dilations, groups and automatic padding, as arguments."""
    pads = stage.pads if stage.auto_pad == "NOTSET" else ()
    return f'{int_lists(stage.strides, pads, stage.dilations)}, {int(stage.group)}, "{stage.auto_pad}"'


def names_of(plan: Plan, stage: Conv) -> tuple[Names, Load, Load]:
    """The parts of a kernel, its image and its filter. Raises Unsupported where they are not as a kernel reads them."""
    names = Names(plan, stage)
    x, w = names.load(stage.x), names.load(stage.w)
    if x.dtype != w.dtype or x.dtype not in FLOATS:
        raise Unsupported(codes.DTYPE, "a convolution in float32, float16 or bfloat16", f"{x.dtype}, {w.dtype}")
    given = plan.tensors[stage.operands[stage.w].tensor]
    if given.role != "input" or any(stage.operands[k].perm for k in own_operands(stage)):
        raise Unsupported(codes.LIMIT, "a filter as it is given, and an image as it lies in memory", "another")
    return names, x, w


def filter_of(plan: Plan, stage: Conv, w: Load, index: int) -> tuple[Member, Buffer]:
    """What keeps a filter that is turned over, and memory for one that is no constant."""
    given = plan.tensors[stage.operands[stage.w].tensor]
    name = f"filter_{index}"
    scratch = Buffer(f"{name}_scratch", (f"{name}.scratch<{w.type}>(h{given.dims})",))
    return Member("gpu::Filter", name, f"api, info, {given.slot}"), scratch
