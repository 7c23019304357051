"""Attention stages for CUDA."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fusion_cli.codegen.cuda_parts import MATRIX_TYPES, Body, Load, Names, Out, StageView, result, view
from fusion_cli.codegen.text import viewed_shape
from fusion_cli.codes import emit as codes
from fusion_cli.errors import Unsupported
from fusion_cli.planir.stages import Attention, AttentionKind, Instr, Operand, Plan

HEAD_DIMS = (16, 32, 64, 96, 128, 192, 256)
"""Head dimensions that attention kernels are instantiated for; others are padded with zeros to the next one."""
DYNAMIC_HEAD_DIMS = (64, 128, 256)
"""Those compiled in when the head dimension is known at run time only."""
_PROB = {"identity": "kIdentity", "zero_empty": "kZeroEmpty", "zero_nan": "kZeroNaN", "general": "kGeneral"}


@dataclass(frozen=True)
class AttentionView(StageView):
    q: Load
    k: Load
    v: Load
    k_view: str
    out: Out
    out_view: str
    scale: str
    functions: tuple[tuple[str, Body, str], ...]
    """The programs of scores, of probabilities and of the sink: name, body and value."""
    prob_kind: str
    head_dims: tuple[tuple[int, int], ...]
    keys: str
    """Host expression of the number of keys."""
    bare: bool
    """Whether the score is the scaled product itself, for every key or for those that `causal` leaves; scale > 0, and
    there is no sink."""
    has_sink: bool
    kind: AttentionKind

    @property
    def flavour(self) -> str:
        """Which device code: tensor cores, or exact fp32."""
        return "scalar" if self.q.dtype == "float32" else "tensor"

    @property
    def splits(self) -> bool:
        """Whether blocks may share the keys of a row: where a probability's program does not need the row's sum."""
        return self.flavour == "tensor" and self.prob_kind != "kGeneral"

    @property
    def what(self) -> str:
        causal, grouped = ("causal " if self.kind.causal else ""), (" of grouped heads" if self.kind.grouped else "")
        return f"{causal}attention{grouped}, masking: {self.kind.masking}"

    @property
    def program_loads(self) -> tuple[Load, ...]:
        return tuple({x.operand: x for _, body, _ in self.functions for x in body.loads}.values())

    @property
    def axes(self) -> tuple[int, ...]:
        """Axes of the batch whose positions a program uses; a row's and a key's are at hand."""
        return tuple(sorted({a for _, body, _ in self.functions for a in body.axes} - {1, 2}))


def attention(plan: Plan, stage: Attention, name: str) -> AttentionView:
    names = Names(plan, stage, name)
    q, k, v = names.load(stage.q), names.load(stage.k), names.load(stage.v)
    if len({q.dtype, k.dtype, v.dtype}) > 1 or q.dtype not in MATRIX_TYPES:
        raise Unsupported(codes.DTYPE, "q, k, v all float32, float16 or bfloat16", f"{q.dtype}, {k.dtype}, {v.dtype}")
    store = stage.stores[0]
    out = Out("out", names.tensor(store.tensor).dtype, f"t{store.tensor}", 0, "float", "")
    if out.dtype != q.dtype:
        raise Unsupported(codes.DTYPE, f"attention written as {q.dtype}", out.dtype)
    element = "fusion::load(in{0} + at[at{0}] + int64_t{{row}} * row{0} + int64_t{{column}} * column{0})"

    def function(name: str, program: Sequence[Instr], root: int, default: str) -> tuple[str, Body, str]:
        if root < 0:
            return name, Body((), (), (), ()), default
        body = names.body(program, [root], (), load=lambda i: element.format(i), position=_position)
        return name, body, result(program, root)

    kind = _PROB[stage.kind.probabilities]
    functions = (
        function("score", stage.program, stage.score, "acc"),
        function("prob", stage.prob_program, stage.prob if kind == "kGeneral" else -1, "acc"),
        function("sink", stage.program, stage.sink, "acc"),
    )
    return AttentionView(
        *names.common("attention"),
        q=q,
        k=k,
        v=v,
        k_view=f"gpu::transposed({k.view})" if stage.k_transposed else k.view,
        out=out,
        out_view=view(Operand(store.tensor, _inverse(stage.out_perm))),
        scale=f"{stage.scale!r}f",
        functions=functions,
        prob_kind=kind,
        head_dims=_head_dims(plan, stage),
        keys=_keys(plan, stage),
        bare=stage.kind.masking == "none" and stage.scale > 0 and stage.sink < 0,
        has_sink=stage.sink >= 0,
        kind=stage.kind,
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
