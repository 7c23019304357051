"""Convolutions: ONNX Runtime's own kernel for the provider, and a pass over its result."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fusion_cli.codegen.cpu_parts import ProductStage, dense, product_dtype, product_member, product_stage
from fusion_cli.codegen.cuda_parts import CudaStage, Member, Names
from fusion_cli.codegen.expr import compute, onnx_type
from fusion_cli.codegen.text import flag
from fusion_cli.codes import emit as codes
from fusion_cli.devices.work import Work, count, turned_bytes, vendor_convolution
from fusion_cli.errors import Unsupported
from fusion_cli.kernels import tiles, winograd
from fusion_cli.kernels.conv_last import sizes
from fusion_cli.kernels.family import Family, Kind, Schedule, Sized, product_work
from fusion_cli.kernels.pointwise import PointwiseStage, epilogue
from fusion_cli.operators.dtypes import element_bytes
from fusion_cli.planir.stages import Conv, Plan, own_operands


@dataclass(frozen=True, kw_only=True)
class ConvStage(CudaStage):
    can_replay = False
    """ONNX Runtime launches the convolution, in memory that it may use for something else afterwards."""
    type: str
    operands: tuple[str, ...]
    passes: PointwiseStage | None


class ConvolutionFamily(Family):
    name = "convolution"
    stages = (Conv,)

    def work(self, at: Sized) -> list[Work]:
        stage: Conv = at.stage
        flops = 2.0 * at.space * count(at.shape(stage.w)[1:])
        if tiles.takes(stage) and (tiled := tiles.tile_work(at, stage.x, stage.w, flops / at.profile.conv_efficiency)):
            return tiled
        if at.profile.kind == "cpu" and (small := winograd.winograd_work(at)) is not None:
            return small
        slowdown = 1 / at.profile.conv_efficiency
        if at.profile.kind != "cpu":
            slowdown = vendor_convolution(at.profile, int(stage.group), at.shape(stage.w))
        product, *rest = product_work(at, own_operands(stage), flops, slowdown)
        ends = at.moved([stage.operands[stage.x].tensor]) + at.space * element_bytes(at.dtype(stage.x))
        if at.profile.kind != "cpu":
            turned = turned_bytes(at.profile, at.dtype(stage.x), len(at.shape(stage.w)), ends)
            return [replace(product, turned=turned), *rest]
        if stage.channels_last:
            # The image is turned over for ONNX Runtime, and back.
            product = replace(product, bytes=product.bytes + 2.0 * ends)
        return [product, *rest]

    def schedules(self, plan: Plan, stage: Conv, kind: Kind) -> tuple[Schedule, ...]:
        tiled = [tiles.SCHEDULE] if kind == "cpu" and tiles.takes(stage) else []
        small = [winograd.SCHEDULE] if kind == "cpu" and winograd.takes(plan, stage) else []
        return (*tiled, *small, Schedule("vendor", "otherwise: ONNX Runtime's convolution, and a pass over its result"))

    def cpu(self, plan: Plan, stage: Conv, index: int, arch: str) -> ProductStage:
        operands = [stage.operands[i] for i in own_operands(stage)]
        dtype = product_dtype(plan, operands[0])
        perms = [o.perm for o in operands]
        if stage.channels_last:
            rank = len(plan.tensors[operands[0].tensor].shape)
            perms[0] = stage.image(perms[0] or range(rank))
        arrays = (dense(dtype, o.tensor, p) for o, p in zip(operands, perms, strict=True))
        flags = [flag(stage.bias >= 0), flag(stage.channels_last)]
        made, slot = _maker(plan, stage, dtype, arch)
        member = product_member(made, index, dtype, [*flags, sizes(stage), *([] if slot is None else [str(slot)])])
        inputs = f"std::vector<Array<{compute(dtype)}>>{{{', '.join(arrays)}}}"
        return product_stage(plan, stage, dtype, member, inputs)

    def cuda(self, plan: Plan, stage: Conv, index: int) -> ConvStage:
        names = Names(plan, stage)
        slots = own_operands(stage)
        loads = [names.load(k) for k in slots]
        if any(load.dtype not in ("float32", "float16") or load.dtype != loads[0].dtype for load in loads):
            raise Unsupported(codes.DTYPE, "a convolution in float32 or float16", ", ".join(x.dtype for x in loads))
        if any(stage.operands[k].perm for k in slots):
            raise Unsupported(codes.LIMIT, "convolution operands as they lie in memory", "a transposed operand")
        tail = epilogue(plan, stage, loads[0].dtype, index)
        member = f"convolution_{index}"
        made = f"api, info, {onnx_type(loads[0].dtype)}, {len(loads)}, {{{sizes(stage)}}}"
        return ConvStage(
            **names.common("conv", "conv.cuh", "vector.cuh"),
            takes=("const fusion::Run& run", "const gpu::Conv& convolve", "void* accumulator"),
            arguments=("run", member, tail.accumulator),
            members=(Member("gpu::Conv", member, made),),
            buffers=tail.buffers,
            type=loads[0].type,
            operands=tuple(x.tensor for x in loads),
            passes=tail.passes,
        )


def _maker(plan: Plan, stage: Conv, dtype: str, arch: str) -> tuple[str, int | None]:
    """The kind of kernel on a CPU, and which input its weights are if it keeps something of them."""
    slot = tiles.constant_slot(plan, stage.operands[stage.w], dtype)
    if slot is not None and arch == "amx":
        return ("TileConv", slot) if tiles.takes(stage) else ("Conv", None)
    return ("WinogradConv", slot) if slot is not None and winograd.takes(plan, stage) else ("Conv", None)
