"""A plan as C++ for the CPU provider: the variables of `templates/cpu/region.cc.jinja`."""

from __future__ import annotations

from typing import Any

from fusion_cli.codegen.expr import storage
from fusion_cli.codegen.text import ancestry
from fusion_cli.planir.stages import Plan


def context(plan: Plan) -> dict[str, Any]:
    """What a file has besides its stages: their tensors and memory."""
    return {"tensors": _tensors(plan), "workspace": _workspace(plan)}


def _tensors(plan: Plan) -> list[str]:
    """Statements that define the arrays t0, t1, ...; each after the one whose memory it names."""
    lines = []
    for i in ancestry(plan, range(len(plan.tensors))):
        tensor = plan.tensors[i]
        ctype, dims = storage(tensor.dtype), f"h{tensor.dims}"
        match tensor.role:
            case "input":
                array = f"array<{ctype}>(run.input({tensor.slot}), {dims})"
            case "output":
                array = f"array<{ctype}>(run.output({tensor.slot}, {dims}), {dims})"
            case "temp":
                array = f"array<{ctype}>(buffer{tensor.slot}, {dims})"
            case "alias":
                array = f"reshaped(t{tensor.slot}, {dims})"
            case "view":
                array = f"part(t{tensor.slot}, {dims}, h{tensor.starts}, h{tensor.steps})"
        lines.append(f"const auto t{i} = {array};")
    return lines


def _workspace(plan: Plan) -> list[tuple[int, list[str]]]:
    """Per workspace buffer: its number, and the byte counts of the tensors that live in it."""
    sizes: dict[int, list[str]] = {}
    for tensor in plan.tensors:
        if tensor.role == "temp":
            sizes.setdefault(tensor.slot, []).append(f"bytes<{storage(tensor.dtype)}>(h{tensor.dims})")
    return sorted(sizes.items())
