"""A plan as CUDA: the variables of `templates/cuda/region.cu.jinja`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fusion_cli.codegen.cuda_parts import StageView
from fusion_cli.codegen.expr import storage
from fusion_cli.codegen.text import ancestry
from fusion_cli.codes import emit as codes
from fusion_cli.emit import cuda_stages
from fusion_cli.emit.cuda_attention import AttentionView, attention
from fusion_cli.emit.cuda_rows import rowwise
from fusion_cli.emit.cuda_stages import ConvView, LinearView
from fusion_cli.errors import Unsupported
from fusion_cli.planir.stages import Attention, Conv, Linear, Plan, Pointwise, Rowwise, Stage
from fusion_cli.types import FusedOp, Target

_HEADERS = {
    Pointwise: ("vector.cuh",),
    Rowwise: ("rowwise.cuh",),
    Linear: ("linear.cuh", "blas.h", "vector.cuh"),
    Conv: ("conv.cuh", "vector.cuh"),
}


@dataclass(frozen=True)
class Buffer:
    """A workspace buffer: the largest of these byte counts."""

    name: str
    sizes: tuple[str, ...]


def context(op: FusedOp, target: Target, *, debug: bool) -> dict[str, Any]:
    """Variables of the region template for `op`. Raises Unsupported for a plan that has no CUDA form."""
    plan = op.plan
    if plan is None:
        raise Unsupported(codes.NO_PLAN, "an operator with a plan", op.name)
    stages = [stage_view(plan, stage, f"stage_{i}") for i, stage in enumerate(plan.stages)]
    headers = {h for stage, view in zip(plan.stages, stages, strict=True) for h in _headers(stage, view)}
    return {
        "stages": stages,
        "headers": sorted(headers),
        "tensors": tensor_lines(plan),
        "buffers": buffers(plan, stages),
        "uses_blas": any(isinstance(stage, Linear) for stage in plan.stages),
    }


def _headers(stage: Stage, view: StageView) -> tuple[str, ...]:
    if isinstance(view, AttentionView):
        return (f"attention_{view.flavour}.cuh",)
    return _HEADERS[type(stage)]


def stage_view(plan: Plan, stage: Stage, name: str) -> StageView:
    match stage:
        case Pointwise():
            return cuda_stages.pointwise(plan, stage, name)
        case Rowwise():
            return rowwise(plan, stage, name)
        case Linear():
            return cuda_stages.linear(plan, stage, name)
        case Attention():
            return attention(plan, stage, name)
        case Conv():
            return cuda_stages.conv(plan, stage, name)


def tensor_lines(plan: Plan) -> list[str]:
    """One line per tensor that a stage reads or writes, and per tensor that those are part of."""
    used = {o.tensor for stage in plan.stages for o in stage.operands}
    used |= {s.tensor for stage in plan.stages for s in stage.stores}
    lines = []
    for i in ancestry(plan, used):
        tensor = plan.tensors[i]
        match tensor.role:
            case "input":
                value = f"{{const_cast<void*>(run.input({tensor.slot})), &h{tensor.dims}}}"
            case "output":
                value = f"{{output_{tensor.slot}, &h{tensor.dims}}}"
            case "temp":
                value = f"{{work + buffer_{tensor.slot}, &h{tensor.dims}}}"
            case "alias":
                value = f" = gpu::reshaped(t{tensor.slot}, h{tensor.dims})"
            case "view":
                places = f"h{tensor.dims}, h{tensor.starts}, h{tensor.steps}"
                value = f" = gpu::part<{storage(tensor.dtype)}>(t{tensor.slot}, {places})"
        lines.append(f"const gpu::Tensor t{i}{value};")
    return lines


def buffers(plan: Plan, stages: Sequence[StageView]) -> list[Buffer]:
    """The plan's workspace buffers, then one per product whose epilogue cannot run in place, and one per attention
    whose keys may be split."""
    result = []
    for slot in range(plan.buffers):
        held = [t for t in plan.tensors if t.role == "temp" and t.slot == slot]
        result.append(Buffer(f"buffer_{slot}", tuple(f"gpu::bytes<{storage(t.dtype)}>(h{t.dims})" for t in held)))
    for view in stages:
        if isinstance(view, LinearView | ConvView) and not view.accumulator:
            element = view.a.type if isinstance(view, LinearView) else view.type
            result.append(Buffer(f"{view.name}_product", (f"gpu::bytes<{element}>({view.dims})",)))
        elif isinstance(view, AttentionView) and view.splits:
            result.append(
                Buffer(f"{view.name}_parts", (f"gpu::attention_part_bytes(device, {view.dims}, {view.keys})",))
            )
    return result


def registration(target: Target, ops: Sequence[FusedOp]) -> dict[str, Any]:
    """Variables of `templates/cuda/guard.inc.jinja`: the compute capability that the library's code is for."""
    number = target.arch.removeprefix("sm_")
    exact = number.endswith("a")
    digits = number.rstrip("a")
    return {"major": int(digits[:-1]), "minor": int(digits[-1]), "exact": exact}
