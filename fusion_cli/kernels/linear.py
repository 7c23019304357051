"""Matrix products: the vendor's kernel with a pass over its result, or our own with the epilogue in it; those of few
rows and one left operand in one launch, and on Hopper gate and up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fusion_cli.codegen.cpu_parts import ProductStage, dense, product_dtype, product_member, product_stage
from fusion_cli.codegen.cuda_parts import Body, Buffer, CudaGroup, CudaStage, Load, Member, Names
from fusion_cli.codegen.text import flag
from fusion_cli.codes import emit as codes
from fusion_cli.devices.work import Work, count
from fusion_cli.errors import Unsupported
from fusion_cli.kernels import early, phases, skinny, tf32, tiles, wide
from fusion_cli.kernels.addends import addends_of, adding
from fusion_cli.kernels.family import Family, Kind, Schedule, Sized, product_work
from fusion_cli.kernels.pointwise import PointwiseStage, epilogue
from fusion_cli.kernels.wide import Wide
from fusion_cli.operators.dtypes import FLOATS
from fusion_cli.planir.stages import Group, Linear, Operand, Plan

_OWN_TILE = (("rows", 64), ("columns", 64))
_LT_PARAMETERS = ("gpu::BlasLt& lt", "void* lt_work")
LT_BUFFER = Buffer("lt_work", ("gpu::kLtWorkspace",))
_ADDING = Schedule(
    "vendor adds",
    "else where cuBLASLt is loaded: bias, residual and ReLU in its product, by the kernel that a trial finds",
)


@dataclass(frozen=True, kw_only=True)
class LinearStage(CudaStage):
    is_long = True
    body: Body
    a: Load
    b: Load
    trans_a: bool
    trans_b: bool
    """Whether A is contiguous along M, and B along K."""
    a_view: str
    b_view: str
    alpha: str
    passes: PointwiseStage | None
    """The epilogue as a pass of its own after a vendor product; None where there is nothing left to do."""
    few: bool
    """Whether it may have as few rows as the kernel of few rows takes."""
    addends: tuple[str, str, str] | None
    """Bias, residual and ReLU as the vendor's product takes them: host expressions."""
    wide: Wide | None
    """Hopper's own kernel, unless there is nothing for it to do that a bare product does not."""
    tf32: Wide | None
    """The kernel of float32 in TF32."""
    turned: bool
    """Whether it has one on Hopper for a constant right operand."""


@dataclass(frozen=True, kw_only=True)
class ProductGroup(CudaGroup):
    is_long = True
    few: bool
    """Whether its products may have as few rows as one launch of them takes."""
    wide: Wide | None
    """Hopper's own kernel for the group's chains."""
    tf32: Wide | None
    """The kernel of float32 in TF32 for them."""
    turned: bool
    """Whether they have one on Hopper for constant right operands."""


class LinearFamily(Family):
    name = "linear"
    stages = (Linear,)

    def work(self, at: Sized) -> list[Work]:
        stage: Linear = at.stage
        b = at.dims[at.plan.tensors[stage.operands[stage.b].tensor].dims]
        rows = count(at.dims[stage.dims][:-1])
        slowdown = at.profile.gemm_slowdown(rows) if at.is_weight(stage.b) else 1.0
        flops = 2.0 * at.space * b[-1 if stage.trans_b else -2]
        if len(b) == 2 and not stage.trans_a and (tiled := tiles.tile_work(at, stage.a, stage.b, flops)) is not None:
            return tiled
        if at.profile.kind != "cpu" and skinny.is_skinny(at):
            return [phases.phase_work(at, replace(super().work(at)[0], flops=flops, dtype=at.dtype(stage.a)))]
        own = wide.work_together(at) or tf32.work_turned(at)
        adds = addends_of(at.plan, stage)
        if own is None and not adds and _wide_alone(at.plan, stage, at.plan.stages.index(stage)):
            own = wide.work_alone(at)
        if own is not None:
            return [own]
        slowdown /= at.profile.linear_efficiency
        if at.profile.kind != "cpu" and adds:
            moved = at.moved(stage.tensors)
            weights = at.constants(stage.tensors)
            return [Work("Linear", moved, flops, at.dtype(stage.a), slowdown=slowdown, grid=at.grid, weights=weights)]
        return product_work(at, (stage.a, stage.b), flops, slowdown)

    def schedules(self, plan: Plan, stage: Linear, kind: Kind) -> tuple[Schedule, ...]:
        if kind == "cpu":
            return (tiles.SCHEDULE, Schedule("vendor", "otherwise: ONNX Runtime's product, and a loop over its result"))
        position = plan.stages.index(stage)
        together, alone = wide.wide_with(plan, position), _wide_alone(plan, stage, position)
        rounded, adds = tf32.tf32_of(plan, position), addends_of(plan, stage)
        wide_schedules = [
            *([wide.CHAIN if wide.is_chain(together) else wide.ABREAST] if together else []),
            *([wide.TRIED if adds else wide.SCHEDULE] if alone else []),
            *([tf32.ABREAST] if tf32.tf32_with(plan, position) else []),
            *([tf32.SCHEDULE] if rounded else []),
            *([tf32.TURNED] if rounded and tf32.may_turn(plan, (position,)) else []),
        ]
        return (
            *([skinny.SCHEDULE] if _may_be_few(plan, stage, position) else []),
            *([phases.SCHEDULE] if phases.holding(plan, position) else []),
            *wide_schedules,
            *([_ADDING] if adds else []),
            Schedule("vendor", "else where cuBLAS is loaded and takes the operands' strides; a pass over its result"),
            Schedule("tiles", "otherwise: our own product with the epilogue in it", _OWN_TILE),
        )

    def cpu(self, plan: Plan, stage: Linear, index: int, arch: str) -> ProductStage:
        dtype = product_dtype(plan, stage.operands[stage.a])
        factors = ((stage.a, stage.trans_a), (stage.b, stage.trans_b))
        sides = [_side(plan, stage.operands[k], trans, dtype) for k, trans in factors]
        arrays = ", ".join(array for array, _ in sides)
        (_, trans_a), (_, trans_b) = sides
        arguments = [flag(trans_a), flag(trans_b)]
        slot = tiles.constant_slot(plan, stage.operands[stage.b], dtype) if arch == "amx" else None
        kind = "MatMul" if slot is None else "TileMatMul"
        member = product_member(kind, index, dtype, [*arguments, *([] if slot is None else [str(slot)])])
        return product_stage(plan, stage, dtype, member, arrays, stage.alpha)

    def cuda(self, plan: Plan, stage: Linear, index: int) -> LinearStage:
        names = Names(plan, stage)
        a, b = names.load(stage.a), names.load(stage.b)
        if a.dtype != b.dtype or a.dtype not in FLOATS:
            expected = "a product of two float32, float16 or bfloat16 matrices"
            raise Unsupported(codes.DTYPE, expected, f"{a.dtype} @ {b.dtype}")
        outs = names.outs()
        body = names.body(
            stage.program,
            outs,
            load=lambda k: f"fusion::load(in{k} + at[at{k}] + row * row{k} + column * column{k})",
            position=lambda back: f"axis_{back}.at(e)",
        )
        tail = epilogue(plan, stage, a.dtype, index)
        adds = adding(names, addends_of(plan, stage))
        own, rounded = _wide_alone(plan, stage, index), tf32.tf32_of(plan, index)
        headers = ["linear.cuh", "blas.h", *(["blaslt.h"] if adds else []), "skinny.cuh", "vector.cuh"]
        together = wide.wide_with(plan, index)
        if own or together:
            headers += ["linear_wgmma.cuh", "wide_choice.cuh"]
        turned = rounded is not None and tf32.may_turn(plan, (index,))
        headers += ["tf32_choice.cuh"] if rounded else []
        headers += ["linear_wgmma.cuh", "turned.cuh"] if turned else []
        walks = bool(phases.holding(plan, index))
        headers += ["skinny_phases.cuh"] if walks else []
        return LinearStage(
            **names.common("linear", *headers),
            few=skinny.may_run(plan, (stage,)),
            wide=own,
            tf32=rounded,
            turned=turned,
            prepares=(own or rounded) is not None,
            takes=(
                "const gpu::Blas& blas",
                "void* accumulator",
                *(tf32.parameters((index,)) if turned else ()),
                *(_LT_PARAMETERS if adds else ()),
                *((early.PARAMETER,) if own else ()),
            ),
            arguments=(
                "blas",
                tail.accumulator,
                *(tf32.arguments((index,)) if turned else ()),
                *((f"lt_{index}", "work + lt_work") if adds else ()),
                *((early.argument(plan, (index,)),) if own else ()),
            ),
            members=(
                *((Member("gpu::BlasLt", f"lt_{index}", ""),) if adds else ()),
                *(tf32.members(plan, index) if turned else ()),
                *(early.members(plan, index) if walks or own or together else ()),
            ),
            setup=(("const gpu::Blas blas", "gpu::Blas::find(run.api, run.context, stream)"),),
            buffers=(
                *tail.buffers,
                *((LT_BUFFER,) if adds else ()),
                *((phases.BUFFER,) if walks else ()),
            ),
            addends=adds,
            body=body,
            a=a,
            b=b,
            trans_a=wide.column_major(plan, stage.operands[stage.a], stage.trans_a),
            trans_b=wide.column_major(plan, stage.operands[stage.b], stage.trans_b),
            a_view=f"gpu::transposed({a.view})" if stage.trans_a else a.view,
            b_view=f"gpu::transposed({b.view})" if stage.trans_b else b.view,
            alpha=f"{stage.alpha!r}f",
            passes=tail.passes,
        )

    def together(self, plan: Plan, group: Group, stages: Sequence[CudaStage]) -> CudaGroup | None:
        chains = skinny.chains_of(plan, group)
        if chains is None:
            return None
        found, rounded = wide.wide_with(plan, group.stages[0]), tf32.tf32_with(plan, group.stages[0])
        turned = rounded is not None and tf32.may_turn(plan, group.stages)
        few = skinny.may_run(plan, wide.linears(plan, group.stages))
        if not (few or found or rounded):
            return None
        return ProductGroup(
            few=few,
            template=stages[0].template,
            chains=tuple(tuple(stages[i] for i in c) for c in chains),
            wide=found,
            tf32=rounded,
            turned=turned,
            prepares=(found or rounded) is not None,
            takes=(
                *(("const gpu::Blas& blas",) if rounded else ()),
                *(tf32.parameters(group.stages) if turned else ()),
                *((early.PARAMETER,) if found else ()),
            ),
            arguments=(
                *(("blas",) if rounded else ()),
                *(tf32.arguments(group.stages) if turned else ()),
                *((early.argument(plan, group.stages),) if found else ()),
            ),
        )


def _wide_alone(plan: Plan, stage: Linear, position: int) -> Wide | None:
    """Hopper's kernel of a product with an epilogue, unless it always goes with others."""
    bare = len(stage.stores) == 1 and stage.program[stage.stores[0].instr].op == "acc"
    if bare or wide.is_chain(wide.wide_with(plan, position)):
        return None
    if skinny.takes_all(plan, stage) or (addends_of(plan, stage) is None and not wide.may_be_many(plan, position)):
        return None
    return wide.wide_of(plan, ((position,),))


def _may_be_few(plan: Plan, stage: Linear, position: int) -> bool:
    """Whether the kernel of few rows may run a product, by itself or with its neighbours."""
    together = [i for chain in wide.chains_with(plan, position) for i in chain]
    return any(skinny.may_run(plan, products) for products in ((stage,), wide.linears(plan, together)) if products)


def _side(plan: Plan, operand: Operand, trans: bool, dtype: str) -> tuple[str, bool]:
    """An operand as an array, and whether ONNX Runtime's product is to take it transposed, which it does for float."""
    rank = len(plan.tensors[operand.tensor].shape)
    straight, swapped = tuple(range(rank)), (*range(rank - 2), rank - 1, rank - 2)
    perm = operand.perm or straight
    if perm == swapped:
        perm, trans = straight, not trans
    if trans and dtype != "float32":
        perm, trans = (*perm[:-2], perm[-1], perm[-2]), False
    return dense(dtype, operand.tensor, None if perm == straight else perm), trans
