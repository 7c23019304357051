"""Every element on its own: pointwise stages, and what follows a product as a pass of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fusion_cli.codegen.cpu_loops import loop
from fusion_cli.codegen.cpu_parts import CpuStage, common
from fusion_cli.codegen.cuda_parts import Body, Buffer, CudaGroup, CudaStage, Load, Names, Out
from fusion_cli.kernels.family import Family, Kind, Schedule
from fusion_cli.operators.dtypes import element_bytes
from fusion_cli.planir.stages import Conv, Group, Instr, Linear, Plan, Pointwise, Stage

_MOST_STRIDED = 40
"""Operands of stages in one launch: the strides of more would not fit among its parameters, which have 4 KB."""


@dataclass(frozen=True, kw_only=True)
class PointwiseStage(CudaStage):
    body: Body
    width: int
    """Elements per thread: 16 bytes of the widest operand."""

    @property
    def strided(self) -> tuple[Load | Out, ...]:
        """What does not lie in memory as the iteration space does, or may not: all operands, parts of results."""
        return (*self.body.loads, *(y for y in self.body.outs if y.view))


class PointwiseFamily(Family):
    name = "pointwise"
    stages = (Pointwise,)

    def schedules(self, plan: Plan, stage: Pointwise, kind: Kind) -> tuple[Schedule, ...]:
        if kind == "cpu":
            return (
                Schedule("vectors", "neighbours of the last axis are neighbours in memory"),
                Schedule("elements", "otherwise"),
            )
        width = self.cuda(plan, stage, 0).width
        return (
            Schedule("vectors", "rows are whole vectors and lie on their boundaries", (("width", width),)),
            Schedule("elements", "otherwise", (("width", 1),)),
        )

    def cpu(self, plan: Plan, stage: Pointwise, index: int, arch: str) -> CpuStage:
        return CpuStage(**common(stage, "pointwise"), body=loop(plan, stage, rowwise=False))

    def cuda(self, plan: Plan, stage: Stage, index: int) -> PointwiseStage:
        return pointwise_stage(Names(plan, stage), stage.program, {})

    def together(self, plan: Plan, group: Group, stages: Sequence[CudaStage]) -> CudaGroup | None:
        passes = [
            stage for stage in stages if isinstance(stage, PointwiseStage) and stage.template == stages[-1].template
        ]
        few = sum(len(stage.strided) for stage in passes) <= _MOST_STRIDED
        if group.kind != "elements" or len(passes) < len(stages) or not few or not are_apart(plan, group.stages):
            return None
        return CudaGroup(template=passes[0].template, chains=tuple((stage,) for stage in passes))


def are_apart(plan: Plan, group: Sequence[int]) -> bool:
    """Whether no stage writes where another of the group reads or writes, but for different parts of one tensor."""
    stages = [plan.stages[i] for i in group]
    return all(_is_apart(plan, a, b) for a in stages for b in stages if a is not b)


def _is_apart(plan: Plan, stage: Stage, other: Stage) -> bool:
    parts = {plan.root(s.tensor) for s in stage.stores if not plan.tensors[s.tensor].is_own}
    whole = [s for s in other.stores if plan.tensors[s.tensor].is_own or plan.root(s.tensor) not in parts]
    touched = {plan.memory(t) for t in (*(o.tensor for o in other.operands), *(s.tensor for s in whole))}
    return touched.isdisjoint(plan.memory(s.tensor) for s in stage.stores)


def pointwise_stage(names: Names, program: Sequence[Instr], extra: Mapping[int, Load]) -> PointwiseStage:
    """A pass that runs `program`; `extra` are operands that are not the stage's own."""
    outs = names.outs()
    body = names.body(
        program,
        outs,
        load=lambda k: f"gpu::get(x{k}[u], i)",
        position=lambda back: f"a.axis_{back}.at(e + i)",
        loads=extra,
    )
    width = vector_width([x.dtype for x in body.loads] + [y.dtype for y in outs])
    return PointwiseStage(**names.common("pointwise", "vector.cuh"), body=body, width=width)


def vector_width(dtypes: Sequence[str]) -> int:
    """How many elements go into 16 bytes of the widest of these types, eight at most."""
    return min(8, 16 // max(map(element_bytes, dtypes)))


@dataclass(frozen=True)
class Epilogue:
    """What follows a vendor's product: a pass over it, None where nothing is left to do. The bare product lies at
    `accumulator`, a host expression, which may be in a workspace buffer."""

    passes: PointwiseStage | None
    accumulator: str
    buffers: tuple[Buffer, ...] = ()


def epilogue(plan: Plan, stage: Linear | Conv, dtype: str, index: int) -> Epilogue:
    """The epilogue of a product of this element type, which runs in place where an output has the type and nothing else
    in the kernel reads its memory."""
    operands = {plan.memory(o.tensor) for o in stage.operands}
    written = [s for s in stage.stores if plan.tensors[s.tensor].dtype == dtype]
    home = next((s for s in written if plan.memory(s.tensor) not in operands), None)
    if home is not None and len(stage.stores) == 1 and stage.program[home.instr].op == "acc":
        return Epilogue(None, f"t{home.tensor}.data")
    extra = len(stage.operands)
    program = tuple(Instr("load", (), i.dtype, extra) if i.op == "acc" else i for i in stage.program)
    product = Load(f"in{extra}", dtype, "product", extra, "gpu::view(product)")
    passes = pointwise_stage(Names(plan, stage), program, {extra: product})
    if home is not None:
        return Epilogue(passes, f"t{home.tensor}.data")
    buffer = Buffer(f"product_{index}", (f"gpu::bytes<{product.type}>(h{stage.dims})",))
    return Epilogue(passes, f"work + {buffer.name}", (buffer,))
