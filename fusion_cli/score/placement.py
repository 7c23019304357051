"""Operators of ours that ONNX Runtime's CUDA provider would leave to the CPU, where they have no kernel: a session with
such a one does not open."""

from __future__ import annotations

from fusion_cli.codes import score as codes
from fusion_cli.errors import Unsupported
from fusion_cli.graph.on_host import all_on_host
from fusion_cli.planir.stages import Plan
from fusion_cli.types import Region


def require_gpu(region: Region, plan: Plan | None) -> None:
    """Raise Unsupported where a CUDA session would leave the region's operator to the CPU."""
    read = [v for i, v in enumerate(region.inputs) if plan is None or i not in plan.host_inputs]
    told = [i for i in range(len(region.inputs)) if plan is not None and i in plan.host_inputs]
    on_host = [] if told else all_on_host(read)
    if on_host:
        names = ", ".join(v.name or "?" for v in on_host)
        raise Unsupported(codes.ON_HOST, "an operand that the GPU computes", f"{names}, computed on the host")
