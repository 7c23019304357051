"""Products of few rows on Hopper whose right operands are large: the copy engine keeps shared memory full of them, all
blocks share them evenly, and one kernel goes on from product to product, and through norms and the like between them,
so that weights come while what is before them is still computed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar

from fusion_cli.codegen.cuda_parts import Buffer, CudaStage
from fusion_cli.codegen.expr import storage
from fusion_cli.codegen.text import space_shape
from fusion_cli.devices.work import Work
from fusion_cli.kernels import early, skinny
from fusion_cli.kernels.columns import is_of_columns
from fusion_cli.kernels.family import Schedule, Sized
from fusion_cli.kernels.pointwise import are_apart
from fusion_cli.kernels.rowwise import RowwiseStage, variants, width_of
from fusion_cli.kernels.transpose import TransposeFamily
from fusion_cli.kernels.wide import Wide, chains_with, linears, right_input, wide_of
from fusion_cli.operators.dtypes import NARROW, element_bytes
from fusion_cli.planir.stages import Attention, Linear, Plan, Pointwise, Rowwise, Stage

_FROM, _TOGETHER = 20_000_000, 100_000_000
"""Bytes of right operands in one kernel, of one launch of products and of several, as in skinny_phases.cuh."""
_KEYS = 64
_MOST, _ALL = 7, 15
"""Phases of a run of products, and of a kernel."""
_THREADS, _KEPT, _VECTOR = 128, 64, 8
"""A row has a warpgroup, of which a thread keeps so many elements at most, in vectors."""
ARCH = "sm_90a"

SCHEDULE = Schedule(
    "phases",
    f"{ARCH}: at most {skinny.TOGETHER} rows in 16 bits, of a product by itself {skinny.ROWS[2]} whose strips would "
    f"not fill the GPU, with right operands of {_FROM // 10**6} MB, of several launches {_TOGETHER // 10**6}: products "
    "one after the other in one kernel, rows and attention to few keys between them",
    (("rows", skinny.TOGETHER), ("columns", 128), ("depth", 64)),
)
BUFFER = Buffer("phases", ("1",))
"""Memory of a plan's own has before it what blocks tell one another in."""
StageType = TypeVar("StageType", Linear, Attention)
Kind = Literal["products", "rows", "elements", "attention"]


@dataclass(frozen=True)
class Phase:
    """Products of one left operand, or what is computed in pieces: stages of a plan, by position."""

    stages: tuple[int, ...]
    kind: Kind
    wide: Wide | None = None
    """The products' epilogues."""


@dataclass(frozen=True)
class CudaPhase:
    """A phase as the template prints it."""

    stages: tuple[CudaStage, ...]
    kind: Kind
    wide: Wide | None
    chunks: int = 0
    """Vectors of its row that a thread keeps."""


@dataclass(frozen=True, kw_only=True)
class CudaPhases:
    """Launches that one kernel runs one after the other where their sizes allow it; where they do not, its function
    says so, and they run by themselves."""

    phases: tuple[CudaPhase, ...]
    type: str
    """Of the products' operands."""
    headers: tuple[str, ...]
    template: str = "stages/phases.jinja"
    takes: tuple[str, ...] = ("char* work", "bool early")
    is_long: bool = True
    prepares: bool = True
    name: str = field(default="", compare=False)
    arguments: tuple[str, ...] = field(default=(), compare=False)

    @property
    def products(self) -> int:
        """How many launches of products the kernel stands for."""
        return sum(phase.wide is not None for phase in self.phases)

    @property
    def is_alone(self) -> bool:
        """Whether all it is for is one product."""
        return self.products == 1 and len(self.stages) == 1

    @property
    def stages(self) -> tuple[CudaStage, ...]:
        return tuple(stage for phase in self.phases for stage in phase.stages)


def phases_of(plan: Plan) -> Iterator[tuple[Phase, ...]]:
    """What one kernel may go through, if the right operands are large enough: the longest runs of launches of a plan,
    and then those runs with the attention before them and what leads to it."""
    runs = list(_runs(plan))
    led = (_with_attention(plan, run, runs) for run in runs)
    return (run for run in (*runs, *led) if run and _may_be_large(plan, run))


def _runs(plan: Plan) -> Iterator[tuple[Phase, ...]]:
    """The longest runs of launches of products, and of rows before and between them."""
    run: list[Phase] = []
    position = 0
    while position < len(plan.stages):
        phase = _phase(plan, position)
        if phase is None or len(run) == _MOST or len(_types(plan, *run, phase)) > 1:
            yield tuple(run)
            run = []
        run += [phase] if phase else []
        position += len(phase.stages) if phase else 1
    yield tuple(run)


def _with_attention(plan: Plan, run: Sequence[Phase], runs: Sequence[tuple[Phase, ...]]) -> tuple[Phase, ...]:
    """A run with the attention before it, what is computed element by element before that, and the run before all of
    these; empty where there is no such attention."""
    before: list[Phase] = []
    position = run[0].stages[0] - 1 if run else -1
    while position >= 0:
        stage = plan.stages[position]
        if isinstance(stage, Attention) and not before and _is_few(plan, stage, _types(plan, *run)):
            before.insert(0, Phase((position,), "attention"))
        elif 0 < len(before) < _MOST - 1 and (passes := _passes(plan, position)):
            before.insert(0, Phase(passes, "elements"))
        else:
            break
        position = before[0].stages[0] - 1
    if not before:
        return ()
    first = next((r for r in runs if r and r[-1].stages[-1] == position), ())
    fits = len(first) + len(before) + len(run) <= _ALL and len(_types(plan, *first, *run)) == 1
    return (*(first if fits else ()), *before, *run)


def _passes(plan: Plan, position: int) -> tuple[int, ...]:
    """What is computed element by element up to a stage and runs at once; empty where the stage is nothing of that."""
    groups = [g.stages for g in plan.groups if g.kind == "elements" and g.stages[-1] == position]
    # One pass may have been given the memory that the one before it reads.
    return next((g for g in (*groups, (position,)) if _are_passes(plan, g) and are_apart(plan, g)), ())


def _are_passes(plan: Plan, group: Sequence[int]) -> bool:
    """Whether all stages are computed element by element, none as a copy in tiles."""
    stages = [plan.stages[i] for i in group]
    return all(isinstance(s, Pointwise) and not TransposeFamily().accepts(plan, s, "cuda") for s in stages)


def _is_few(plan: Plan, stage: Attention, run: set[str]) -> bool:
    """Whether queries may have few keys, in the run's types."""
    keys = plan.viewed(stage.operands[stage.k])[-2]
    types = {plan.tensors[stage.operands[i].tensor].dtype for i in (stage.q, stage.k, stage.v)}
    return types == run and stage.kind.probabilities != "general" and not (isinstance(keys, int) and keys > _KEYS)


def holding(plan: Plan, position: int) -> list[tuple[Phase, ...]]:
    """The runs that a stage is part of, the longest last."""
    return [run for run in phases_of(plan) if any(position in phase.stages for phase in run)]


def cuda_phases(plan: Plan, run: Sequence[Phase], calls: Sequence[CudaStage]) -> CudaPhases:
    """A run as the template prints it; `calls` are the plan's stages by position."""
    products = [i for phase in run if phase.wide for i in phase.stages]
    return CudaPhases(
        phases=tuple(_printed(plan, phase, [calls[i] for i in phase.stages]) for phase in run),
        type=storage(_types(plan, *run).pop()),
        headers=("attention_few.cuh",) if any(phase.kind == "attention" for phase in run) else (),
        arguments=("work", early.argument(plan, products)),
    )


def phase_work(at: Sized, work: Work) -> Work:
    """What a product of few rows has to do, by the name of the kernel that runs at these sizes."""
    if at.profile.arch != ARCH:
        return work
    runs = holding(at.plan, at.plan.stages.index(at.stage))
    large = any(_has_few_keys(at, run) and _right_bytes(at, run, work.dtype) >= _least(run) for run in runs)
    return replace(work, name="LinearPhase") if large else work


def _right_bytes(at: Sized, run: Sequence[Phase], dtype: str) -> int:
    """Of all right operands of a run at these sizes."""
    sizes = (at.dims[at.plan.tensors[s.operands[s.b].tensor].dims] for s in _of(Linear, at.plan, run))
    return element_bytes(dtype) * sum(map(math.prod, sizes))


def _has_few_keys(at: Sized, run: Sequence[Phase]) -> bool:
    """Whether the attention of a run, if there is one, has as few keys at these sizes as the kernel takes."""
    return all(replace(at, stage=stage).shape(stage.k)[-2] <= _KEYS for stage in _of(Attention, at.plan, run))


def _printed(plan: Plan, phase: Phase, stages: Sequence[CudaStage]) -> CudaPhase:
    if phase.wide:
        return CudaPhase(tuple(stages), phase.kind, phase.wide)
    stage, chunks = stages[0], 0
    if isinstance(stage, RowwiseStage):
        length = _length(plan, plan.stages[phase.stages[0]])
        chunks = _KEPT // stage.width if length is None else -(-length // (stage.width * _THREADS))
    return CudaPhase(tuple(stages), phase.kind, None, chunks)


def _phase(plan: Plan, position: int) -> Phase | None:
    stage = plan.stages[position]
    if isinstance(stage, Rowwise):
        return Phase((position,), "rows") if _keeps(plan, stage) and not is_of_columns(plan, stage) else None
    if not isinstance(stage, Linear):
        return None
    chains = chains_with(plan, position) or [[position]]
    launch = sorted(i for chain in chains for i in chain)
    if launch != list(range(position, position + len(launch))):
        return None
    products = linears(plan, launch)
    wide = wide_of(plan, chains) if all(_streams(plan, p, i) for p, i in zip(products, launch, strict=True)) else None
    return Phase(tuple(launch), "products", wide) if wide and not wide.trans_b else None


def _streams(plan: Plan, stage: Linear, position: int) -> bool:
    """Whether the copy engine may bring a product's right operand, and its rows may be few."""
    few = skinny.may_be_few(plan, stage, skinny.TOGETHER)
    narrow = plan.tensors[stage.operands[stage.b].tensor].dtype in NARROW
    return few and skinny.lies_straight(plan, stage) and narrow and right_input(plan, position) is not None


def _length(plan: Plan, stage: Stage) -> int | None:
    """Of a row of a stage; None if it is open."""
    size = space_shape(plan, stage)[-1]
    return size if isinstance(size, int) else None


def _keeps(plan: Plan, stage: Rowwise) -> bool:
    """Whether a warpgroup keeps rows in registers, as whole vectors, by code that the stage has for such rows."""
    length = _length(plan, stage)
    fits = length is None or (length % _VECTOR == 0 and length <= _KEPT * _THREADS)
    return fits and bool(variants(width_of(plan, stage), length))


def _types(plan: Plan, *phases: Phase) -> set[str]:
    return {plan.tensors[s.operands[s.b].tensor].dtype for s in _of(Linear, plan, phases)}


def _of(kind: type[StageType], plan: Plan, phases: Iterable[Phase]) -> Iterator[StageType]:
    """The stages of a type that phases consist of."""
    return (stage for phase in phases for i in phase.stages if isinstance(stage := plan.stages[i], kind))


def _may_be_large(plan: Plan, run: Sequence[Phase]) -> bool:
    """Whether the right operands are large enough, or may be."""
    total = 0
    for stage in _of(Linear, plan, run):
        tensor = plan.tensors[stage.operands[stage.b].tensor]
        known = [size for size in tensor.shape if isinstance(size, int)]
        total += math.prod(known) * element_bytes(tensor.dtype) if len(known) == len(tensor.shape) else _TOGETHER
    return total >= _least(run)


def _least(run: Sequence[Phase]) -> int:
    """Bytes of right operands from which on one kernel for a run is the faster way."""
    return _TOGETHER if sum(phase.wide is not None for phase in run) > 1 else _FROM
