"""Attention stages for CUDA."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fusion_cli.codegen.cuda_parts import Body, Load, Names, Out, StageView, result, view
from fusion_cli.codegen.text import viewed_shape
from fusion_cli.codes import emit as codes
from fusion_cli.errors import Unsupported
from fusion_cli.operators.dtypes import FLOATS
from fusion_cli.planir.stages import Attention, Instr, Operand, Plan

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
    keys: str
    """Host expression of the number of keys."""
    bare: bool
    causal: bool

    @property
    def flavour(self) -> str:
        """Which device code: tensor cores, or exact fp32."""
        return "scalar" if self.q.dtype == "float32" else "tensor"

    @property
    def splits(self) -> bool:
        """Whether blocks may share the keys of a row: where a probability's program does not need the row's sum."""
        return self.flavour == "tensor" and self.prob_kind != "kGeneral"

    @property
    def program_loads(self) -> tuple[Load, ...]:
        return tuple({x.operand: x for x in (*self.score.loads, *self.prob.loads)}.values())

    @property
    def axes(self) -> tuple[int, ...]:
        """Axes of the batch whose positions a program uses; a row's and a key's are at hand."""
        return tuple(sorted({*self.score.axes, *self.prob.axes} - {1, 2}))


def attention(plan: Plan, stage: Attention, name: str) -> AttentionView:
    names = Names(plan, stage, name)
    q, k, v = names.load(stage.q), names.load(stage.k), names.load(stage.v)
    if len({q.dtype, k.dtype, v.dtype}) > 1 or q.dtype not in FLOATS:
        raise Unsupported(codes.DTYPE, "q, k, v all float32, float16 or bfloat16", f"{q.dtype}, {k.dtype}, {v.dtype}")
    store = stage.stores[0]
    out = Out("out", names.tensor(store.tensor).dtype, f"t{store.tensor}", 0, "float", "")
    if out.dtype != q.dtype:
        raise Unsupported(codes.DTYPE, f"attention written as {q.dtype}", out.dtype)
    element = "fusion::load(in{0} + at[at{0}] + int64_t{{row}} * row{0} + int64_t{{column}} * column{0})"

    def body(program: Sequence[Instr], root: int) -> Body:
        return names.body(program, [root], (), load=lambda i: element.format(i), position=_position)

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
        keys=_keys(plan, stage),
        bare=bare(stage),
        causal=causal(stage),
    )


def _position(back: int) -> str:
    return {1: "column", 2: "row"}.get(back, f"axis_{back}.at(batch)")


def _keys(plan: Plan, stage: Attention) -> str:
    operand = stage.operands[stage.k]
    tensor = plan.tensors[operand.tensor]
    axis = len(tensor.shape) - (1 if stage.k_transposed else 2)
    return f"h{tensor.dims}[{operand.perm[axis] if operand.perm else axis}]"


def _inverse(perm: tuple[int, ...] | None) -> tuple[int, ...] | None:
    return tuple(perm.index(i) for i in range(len(perm))) if perm else None


def prob_kind(stage: Attention) -> str:
    """How `stage.prob_program` is run. Casts between float types are dropped: probabilities are rounded to the
    operands' type for the product with V anyway."""
    program = stage.prob_program
    if not program:
        return "kZeroEmpty" if stage.zero_empty else "kIdentity"

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


_LATER = {
    ("Greater", -1, -2): True,
    ("Less", -2, -1): True,
    ("LessOrEqual", -1, -2): False,
    ("GreaterOrEqual", -2, -1): False,
}
"""Comparisons that tell the keys (axis -1) later than the query (axis -2) from the others: their outcome for those."""


def _outcomes(program: Sequence[Instr], root: int, later: bool) -> list[Instr]:
    """The instructions that `root` may take its value from, for keys that are later than the query or are not."""
    instr = program[root]
    if instr.op != "Where":
        return [instr]
    test = _truth(program, instr.args[0], later)
    taken = instr.args[1:] if test is None else instr.args[1:2] if test else instr.args[2:]
    return [found for i in taken for found in _outcomes(program, i, later)]


def _truth(program: Sequence[Instr], i: int, later: bool) -> bool | None:
    instr = program[i]
    if instr.op == "Not":
        inner = _truth(program, instr.args[0], later)
        return None if inner is None else not inner
    if len(instr.args) != 2:
        return None
    a, b = (program[k] for k in instr.args)
    if instr.op in ("And", "Or"):
        deciding = instr.op == "Or"
        sides = [_truth(program, k, later) for k in instr.args]
        return deciding if deciding in sides else None if None in sides else not deciding
    if a.op != "index" or b.op != "index":
        return None
    known = _LATER.get((instr.op, int(a.value or 0), int(b.value or 0)))
    return None if known is None else known == later


def causal(stage: Attention) -> bool:
    """Whether the score of every key later than the query is -inf, whatever the operands hold."""
    found = _outcomes(stage.program, stage.score, later=True) if stage.program else []
    return bool(found) and all(i.op == "const" and i.value == -math.inf for i in found)


def bare(stage: Attention) -> bool:
    """Whether the score is the scaled product itself, for every key or for those that `causal` leaves; scale > 0."""
    if stage.scale <= 0 or not stage.program:
        return stage.scale > 0
    sides = (False,) if causal(stage) else (False, True)
    return all(i.op == "acc" for later in sides for i in _outcomes(stage.program, stage.score, later))


def _head_dims(plan: Plan, stage: Attention) -> tuple[tuple[int, int], ...]:
    depth = viewed_shape(plan, stage.operands[stage.q])[-1]
    value_depth = viewed_shape(plan, stage.operands[stage.v])[-1]
    if isinstance(depth, str) or isinstance(value_depth, str):
        return tuple((d, d) for d in DYNAMIC_HEAD_DIMS)
    if max(depth, value_depth) > HEAD_DIMS[-1]:
        raise Unsupported(codes.LIMIT, f"a head dimension of at most {HEAD_DIMS[-1]}", str(max(depth, value_depth)))
    return ((_padded(depth), _padded(value_depth)),)


def _padded(dim: int) -> int:
    return next(d for d in HEAD_DIMS if d >= dim)
