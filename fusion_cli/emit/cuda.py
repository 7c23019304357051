"""A plan as CUDA: the variables of `templates/cuda/region.cu.jinja`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fusion_cli.codegen.cuda_parts import Buffer, CudaStage
from fusion_cli.codegen.expr import storage
from fusion_cli.codegen.text import ancestry
from fusion_cli.planir.stages import Plan
from fusion_cli.types import Target


def context(plan: Plan, views: Sequence[CudaStage]) -> dict[str, Any]:
    """What a file has besides its stages: their tensors and memory, and what they need once for all."""
    return {
        "members": [member for view in views for member in view.members],
        "setup": dict.fromkeys(line for view in views for line in view.setup),
        "tensors": _tensor_lines(plan),
        "buffers": _buffers(plan, views),
    }


def _tensor_lines(plan: Plan) -> list[str]:
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


def _buffers(plan: Plan, views: Sequence[CudaStage]) -> list[Buffer]:
    """The plan's workspace buffers, then those that single stages need."""
    result = []
    for slot in range(plan.buffers):
        held = [t for t in plan.tensors if t.role == "temp" and t.slot == slot]
        result.append(Buffer(f"buffer_{slot}", tuple(f"gpu::bytes<{storage(t.dtype)}>(h{t.dims})" for t in held)))
    return result + [buffer for view in views for buffer in view.buffers]


def registration(target: Target) -> dict[str, Any]:
    """Variables of `templates/cuda/guard.inc.jinja`: the compute capability that the library's code is for."""
    number = target.arch.removeprefix("sm_")
    digits = number.rstrip("a")
    return {"major": int(digits[:-1]), "minor": int(digits[-1]), "exact": number.endswith("a")}
