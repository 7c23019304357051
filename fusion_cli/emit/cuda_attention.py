"""Attention stages for CUDA."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fusion_cli.emit.common import viewed_shape
from fusion_cli.emit.cuda_parts import MATRIX_TYPES, Body, Load, Names, Out, StageView, result, view
from fusion_cli.errors import Unsupported
from fusion_cli.plan.ir import Attention, Instr, Operand, Plan

HEAD_DIMS = (16, 32, 64, 96, 128, 192, 256)
"""Head dimensions that attention kernels are instantiated for; others are padded with zeros to the next one."""
DYNAMIC_HEAD_DIMS = (64, 128, 256)
"""Those compiled in when the head dimension is known at run time only."""


@dataclass(frozen=True)
class AttentionView(StageView):
    q: Load
    k: Load
    v: Load
    k_view: str
    out: Out
    out_view: str
    scale: str
    score: Body
    score_value: str
    prob: Body
    prob_value: str
    prob_kind: str
    head_dims: tuple[tuple[int, int], ...]

    @property
    def flavour(self) -> str:
        """Which device code: tensor cores, or exact fp32."""
        return "scalar" if self.q.dtype == "float32" else "tensor"

    @property
    def program_loads(self) -> tuple[Load, ...]:
        return tuple({x.operand: x for x in (*self.score.loads, *self.prob.loads)}.values())

    @property
    def axes(self) -> tuple[int, ...]:
        return tuple(sorted({*self.score.axes, *self.prob.axes}))


def attention(plan: Plan, stage: Attention, name: str) -> AttentionView:
    names = Names(plan, stage, name)
    q, k, v = names.load(stage.q), names.load(stage.k), names.load(stage.v)
    if len({q.dtype, k.dtype, v.dtype}) > 1 or q.dtype not in MATRIX_TYPES:
        raise Unsupported("dtype", "q, k, v all float32, float16 or bfloat16", f"{q.dtype}, {k.dtype}, {v.dtype}")
    store = stage.stores[0]
    out = Out("out", names.tensor(store.tensor).dtype, f"t{store.tensor}", 0, "float", "")
    if out.dtype != q.dtype:
        raise Unsupported("dtype", f"attention written as {q.dtype}", out.dtype)
    element = "fusion::load(in{0} + at[at{0}] + row * row{0} + column * column{0})"
    position = "axis_{0}.at((batch * queries + row) * keys + column)"

    def body(program: Sequence[Instr], root: int) -> Body:
        return names.body(program, [root], (), load=lambda i: element.format(i), position=position)

    kind = prob_kind(stage)
    score = body(stage.program, stage.score) if stage.program else Body((), (), (), ())
    prob = body(stage.prob_program, stage.prob) if kind == "kGeneral" else Body((), (), (), ())
    return AttentionView(
        *names.common("attention"),
        q=q,
        k=k,
        v=v,
        k_view=f"gpu::transposed({k.view})" if stage.k_transposed else k.view,
        out=out,
        out_view=view(Operand(store.tensor, _inverse(stage.out_perm))),
        scale=f"{stage.scale!r}f",
        score=score,
        score_value=result(stage.program, stage.score) if stage.program else "acc",
        prob=prob,
        prob_value=result(stage.prob_program, stage.prob) if kind == "kGeneral" else "acc",
        prob_kind=kind,
        head_dims=_head_dims(plan, stage),
    )


def _inverse(perm: tuple[int, ...] | None) -> tuple[int, ...] | None:
    return tuple(perm.index(i) for i in range(len(perm))) if perm else None


def prob_kind(stage: Attention) -> str:
    """How `stage.prob_program` is run. Casts between float types are dropped: probabilities are rounded to the
    operands' type for the product with V anyway."""
    program = stage.prob_program
    if not program:
        return "kIdentity"

    def peel(i: int) -> Instr:
        while program[i].op in ("Cast", "Identity") and "float" in program[i].dtype:
            i = program[i].args[0]
        return program[i]

    root = peel(stage.prob)
    if root.op == "acc":
        return "kIdentity"
    if root.op == "Where":
        test, other = program[root.args[0]], peel(root.args[1])
        if (
            test.op == "IsNaN"
            and peel(test.args[0]).op == "acc"
            and other.op == "const"
            and other.value == 0
            and peel(root.args[2]).op == "acc"
        ):
            return "kZeroNaN"
    return "kGeneral"


def _head_dims(plan: Plan, stage: Attention) -> tuple[tuple[int, int], ...]:
    depth = viewed_shape(plan, stage.operands[stage.q])[-1]
    value_depth = viewed_shape(plan, stage.operands[stage.v])[-1]
    if isinstance(depth, str) or isinstance(value_depth, str):
        return tuple((d, d) for d in DYNAMIC_HEAD_DIMS)
    if max(depth, value_depth) > HEAD_DIMS[-1]:
        raise Unsupported("head-dim", f"a head dimension of at most {HEAD_DIMS[-1]}", str(max(depth, value_depth)))
    return ((_padded(depth), _padded(value_depth)),)


def _padded(dim: int) -> int:
    return next(d for d in HEAD_DIMS if d >= dim)
