"""Which operators ONNX Runtime's CUDA provider would leave to the CPU, where ours have no kernel.

The provider gives up nodes that work on what Shape and Size leave on the host and on nothing but graph inputs and
constants besides, whether or not the CPU has a kernel for them (GetCpuPreferredNodes in its
core/framework/fallback_cpu_capability.cc); a session with such an operator of ours does not open.
"""

from __future__ import annotations

import onnx_ir as ir

from fusion_cli.codes import score as codes
from fusion_cli.errors import Unsupported
from fusion_cli.planir.stages import Plan
from fusion_cli.types import Region

_MADE_ON_HOST = ("Shape", "Size")
_FURTHEST = 24
"""Nodes between those and the region, of which all work on such values."""


def require_gpu(region: Region, plan: Plan | None) -> None:
    """Raise Unsupported where a CUDA session would leave the region's operator to the CPU."""
    read = [v for i, v in enumerate(region.inputs) if plan is None or i not in plan.host_inputs]
    told = [i for i in range(len(region.inputs)) if plan is not None and i in plan.host_inputs]
    known: dict[ir.Value, bool] = {}
    on_host = [v for v in read if not _is_given(v) and _is_on_host(v, _FURTHEST, known)]
    if not told and on_host and all(v in on_host or _is_given(v) for v in read):
        names = ", ".join(v.name or "?" for v in on_host)
        raise Unsupported(codes.ON_HOST, "an operand that the GPU computes", f"{names}, computed on the host")


def _is_given(value: ir.Value) -> bool:
    return value.const_value is not None or value.is_graph_input()


def _is_on_host(value: ir.Value, left: int, known: dict[ir.Value, bool]) -> bool:
    if value not in known:
        node = value.producer()
        if node is None or left == 0:
            return False
        read = [v for v in node.inputs if v is not None and not _is_given(v)]
        made = node.op_type in _MADE_ON_HOST and not node.domain
        known[value] = made or (bool(read) and all(_is_on_host(v, left - 1, known) for v in read))
    return known[value]
