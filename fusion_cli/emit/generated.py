"""A plan as C++ or CUDA: the variables of `templates/cpu/region.cc.jinja` and `templates/cuda/region.cu.jinja`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from fusion_cli.codegen.cpu_parts import CpuStage
from fusion_cli.codegen.cuda_parts import Buffer, CudaStage
from fusion_cli.codegen.expr import storage
from fusion_cli.codegen.text import ancestry
from fusion_cli.emit.parts import Group, parts_of
from fusion_cli.kernels import family_of
from fusion_cli.kernels.family import REPLAYED
from fusion_cli.kernels.phases import ARCH as PHASES_ARCH
from fusion_cli.kernels.phases import CudaPhases, cuda_phases, phases_of
from fusion_cli.planir.stages import Plan
from fusion_cli.types import Target

View = TypeVar("View", bound=CpuStage | CudaStage)


def from_plan(plan: Plan, target: Target) -> dict[str, Any]:
    """What a file generated from a plan is made of. Raises Unsupported for a plan that has no form for the target."""
    if target.kind == "cpu":
        loops = [family_of(plan, stage, "cpu").cpu(plan, stage, i, target.arch) for i, stage in enumerate(plan.stages)]
        return _functions(loops) | {"tensors": _cpu_tensors(plan), "buffers": _buffers(plan, "buffer", "bytes")}
    views = [family_of(plan, stage, "cuda").cuda(plan, stage, i) for i, stage in enumerate(plan.stages)]
    made = _functions(views)
    launches = _launches(plan, made["calls"], target)
    more = {h for f in launches["groups"] if isinstance(f, CudaPhases) for h in f.headers}
    buffers = [*_buffers(plan, "buffer_", "gpu::bytes"), *dict.fromkeys(b for view in views for b in view.buffers)]
    return (
        made
        | launches
        | {
            "parts": parts_of(made["functions"], launches["groups"]),
            "headers": sorted({*made["headers"], *more}),
            "members": [member for view in views for member in view.members],
            "setup": dict.fromkeys(line for view in views for line in view.setup),
            "tensors": _cuda_tensors(plan),
            "buffers": buffers,
            "replayed": _replayed(plan, views, bool(buffers)) if len(launches["launches"]) >= REPLAYED else None,
        }
    )


@dataclass(frozen=True)
class Replayed:
    """What decides whether a call's launches are those of an earlier one: host expressions."""

    sizes: tuple[str, ...]
    memory: tuple[str, ...]


def _replayed(plan: Plan, views: Sequence[CudaStage], has_buffers: bool) -> Replayed | None:
    """None where launches of a stage cannot be."""
    if not all(view.can_replay for view in views):
        return None
    told = tuple(f"&h{i}" for i, op in enumerate(plan.shape_program) if op.kind in ("dims", "read"))
    given = [f"t{i}.data" for i in _on_device(plan) if plan.tensors[i].role in ("input", "output")]
    return Replayed(told, (*given, *(["work"] if has_buffers else [])))


def _functions(views: Sequence[View]) -> dict[str, Any]:
    """The functions of a file, each with the nodes of all stages that call it (those that are equal but for their
    tensors); and every stage with its function's name."""
    functions: list[View] = []
    calls: list[View] = []
    for view in views:
        if view not in functions:
            functions.append(replace(view, name=f"stage_{len(functions)}", nodes=()))
        place = functions.index(view)
        nodes = tuple(dict.fromkeys([*functions[place].nodes, *view.nodes]))
        functions[place] = replace(functions[place], nodes=nodes)
        calls.append(replace(view, name=functions[place].name))
    return {"functions": functions, "calls": calls, "headers": sorted({h for view in views for h in view.headers})}


@dataclass(frozen=True)
class Launch:
    """Stages as they are called: one, or several that a function runs together, unless it says that it cannot, where
    `inner` follow."""

    stage: CudaStage | None
    group: Group | None = None
    inner: tuple[Launch, ...] = ()

    @property
    def all_stages(self) -> tuple[CudaStage, ...]:
        return (self.stage,) if self.stage else tuple(stage for one in self.inner for stage in one.all_stages)


class _Launches:
    """The stages' calls in their order, and the functions of those that run together."""

    def __init__(self, calls: Sequence[CudaStage]) -> None:
        self.functions: list[Group] = []
        self.at = {i: Launch(call) for i, call in enumerate(calls)}
        """By the position of the first stage."""

    def join(self, found: Group, kind: str, stages: Sequence[int]) -> None:
        """One launch stands where all its stages stand, which are neighbours."""
        if found not in self.functions:
            same = sum(isinstance(f, type(found)) for f in self.functions)
            self.functions.append(replace(found, name=f"{kind}_{same}"))
        named = self.functions[self.functions.index(found)]
        inner = tuple(self.at.pop(i) for i in stages if i in self.at)
        self.at[stages[0]] = Launch(None, replace(named, arguments=found.arguments), inner)


def _launches(plan: Plan, calls: Sequence[CudaStage], target: Target) -> dict[str, Any]:
    made = _Launches(calls)
    for group in plan.groups:
        stages = tuple(calls[i] for i in group.stages)
        found = family_of(plan, plan.stages[group.stages[-1]], "cuda").together(plan, group, stages)
        # Memory of those between may be what a later one writes to.
        adjacent = group.stages == tuple(range(group.stages[0], group.stages[-1] + 1))
        if found is not None and adjacent and all(i in made.at and made.at[i].group is None for i in group.stages):
            made.join(found, "group", group.stages)
    for run in phases_of(plan) if target.arch == PHASES_ARCH else ():
        made.join(cuda_phases(plan, run, calls), "phases", [i for phase in run for i in phase.stages])
    return {"groups": made.functions, "launches": [made.at[i] for i in sorted(made.at)]}


def _cpu_tensors(plan: Plan) -> list[str]:
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


def _on_device(plan: Plan) -> list[int]:
    """The tensors that a stage reads or writes, and those that they are part of."""
    return ancestry(plan, {tensor for stage in plan.stages for tensor in stage.tensors})


def _cuda_tensors(plan: Plan) -> list[str]:
    """One line per tensor of these."""
    lines = []
    for i in _on_device(plan):
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


def _buffers(plan: Plan, name: str, size: str) -> list[Buffer]:
    """The plan's workspace buffers, each with the byte counts of the tensors that live in it."""
    sizes: dict[int, list[str]] = {}
    for tensor in plan.tensors:
        if tensor.role == "temp":
            sizes.setdefault(tensor.slot, []).append(f"{size}<{storage(tensor.dtype)}>(h{tensor.dims})")
    return [Buffer(f"{name}{slot}", tuple(held)) for slot, held in sorted(sizes.items())]
