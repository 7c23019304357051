"""Attention: a tile of scores at a time, never all of them in memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from fusion_cli.codegen.cpu_loops import score_loop
from fusion_cli.codegen.cpu_parts import CpuStage, common, product_dtype
from fusion_cli.codegen.cuda_parts import Body, Buffer, Load, Member, Names, Out, result
from fusion_cli.codegen.text import ints
from fusion_cli.codes import emit as codes
from fusion_cli.devices.work import ATTENTION_ROWS, Work, count
from fusion_cli.errors import Unsupported
from fusion_cli.kernels.attention_fitting import FEW_QUERIES, TILE_ROWS, Fitting, goes_round
from fusion_cli.kernels.attention_hidden import Hidden
from fusion_cli.kernels.attention_rows import softmax_program
from fusion_cli.kernels.attention_stage import AttentionStage
from fusion_cli.kernels.attention_work import (
    SHALLOW,
    check_room,
    efficiency,
    has_small_scores,
    is_bare,
    multiplied,
    visible,
)
from fusion_cli.kernels.family import Family, Kind, Schedule, Sized, operations
from fusion_cli.operators.dtypes import FLOATS
from fusion_cli.plan.attention_kind import hides_later
from fusion_cli.planir.stages import Attention, Instr, Operand, Plan

HEAD_DIMS = (16, 32, 64, 96, 128, 192, 256)
"""Head dimensions that attention kernels are instantiated for; others are padded with zeros to the next one."""
DYNAMIC_HEAD_DIMS = (64, 128, 256)
"""Those compiled in when the head dimension is known at run time only."""
_PROB = {"identity": "kIdentity", "zero_empty": "kZeroEmpty", "zero_nan": "kZeroNaN", "general": "kGeneral"}
_LEAST_SHARE = 256
"""Keys, of those that blocks may share, that one of them has at the least."""
_NOTHING = Body((), (), (), ())


@dataclass(frozen=True, kw_only=True)
class CpuAttentionStage(CpuStage):
    """The row loop over a block of scores (score program, softmax, probability program), between two products."""

    q: str = field(compare=False)
    k: str = field(compare=False)
    v: str = field(compare=False)
    out: str = field(compare=False)
    keys: str = field(compare=False)
    """Host expression of the number of keys."""


class AttentionFamily(Family):
    name = "attention"
    stages = (Attention,)

    def work(self, at: Sized) -> list[Work]:
        stage: Attention = at.stage
        k, depth, value_depth = at.shape(stage.k), at.shape(stage.q)[-1], at.dims[stage.dims][-1]
        out, keys = at.dims[stage.dims], k[-2]
        scores = float(count(out[:-2])) * visible(stage, out[-2], keys, depth, at.profile)
        check_room(at.profile, stage, at.dtype(stage.q), _padded(depth), _padded(value_depth))
        programs = (*stage.program, *stage.prob_program)
        # The softmax itself is part of what the efficiencies were measured on; so is what hides later keys
        # on GPUs, where it is done in the tiles that have some.
        hides_alone = at.profile.kind == "cuda" and is_bare(stage)
        simple, special = (0, 0) if hides_alone else operations(programs)
        flops = 2 * scores * (depth + value_depth)
        moved, dtype = at.moved(at.stage.tensors), at.dtype(stage.q)
        deepest, masked = max(depth, value_depth), any(i.op == "load" for i in programs)
        slowdown = 1 / efficiency(at.profile, dtype, deepest, masked)
        if at.profile.kind == "cuda" and out[-2] <= FEW_QUERIES and dtype != "float32" and _splits(stage):
            return [Work("DecodeAttention", moved, flops, dtype, simple * scores, special * scores)]
        in_rounds = goes_round(at.profile, dtype, out[-2], keys, depth, value_depth)
        rows = TILE_ROWS if in_rounds else ATTENTION_ROWS
        shared = math.ceil(keys / _LEAST_SHARE) if _splits(stage) and not in_rounds else 1
        blocks = float(count(out[:-2]) * math.ceil(out[-2] / rows) * shared)
        arithmetic = (simple * scores, special * scores, slowdown)
        return [Work("Attention", moved, flops, dtype, *arithmetic, blocks=blocks, in_rounds=in_rounds)]

    def schedules(self, plan: Plan, stage: Attention, kind: Kind) -> tuple[Schedule, ...]:
        if kind == "cpu":
            return (Schedule("blocks", "always: as many heads or rows at a time as keep their scores in the cache"),)
        view, pieces = self.cuda(plan, stage, 0), "rows of aligned 16-byte pieces"
        found = [
            Schedule("tensor", f"heads of at most {depth} and {values}", (("depth", depth), ("values", values)))
            for depth, values in view.head_dims
        ]
        if view.may_round:
            found.append(Schedule("wide tensor", "heads of at most 128, blocks for three rounds"))
            found.append(Schedule("scalar", "where the session does not allow TF32, or shared memory is too small"))
        elif any(len(view.tiles(*dims)) > 1 for dims in view.head_dims):
            found.append(Schedule("wide tensor", "heads without kernels of sm_90a, more than 64 queries"))
        ring_keys = "at most 512 keys, 1024 with a mask that is the same for all queries"
        own = {
            "short": "more than 16 queries, at most 256 keys",
            "ring": f"heads of at most {SHALLOW}, more than 64 queries, {ring_keys}",
            "warpgroups": "more than 64 queries, more keys",
        }
        found += [Schedule(kind, f"sm_90a: {of}, {pieces}") for kind, of in own.items() if kind in view.own_kinds]
        if view.decodes:
            found.append(Schedule("decode", f"few queries, {pieces}", (("queries", FEW_QUERIES),)))
        if view.splits:
            found.append(Schedule("split keys", "few queries, or tiles of them, for the multiprocessors"))
        return tuple(found)

    def cpu(self, plan: Plan, stage: Attention, index: int, arch: str) -> CpuAttentionStage:
        q, k, v = (stage.operands[i] for i in (stage.q, stage.k, stage.v))
        if product_dtype(plan, q) != "float32":
            expected = "attention in float32, float16 or bfloat16"
            raise Unsupported(codes.DTYPE, expected, plan.tensors[q.tensor].dtype)
        program, root = softmax_program(stage)
        columns = plan.viewed(k)[-2]
        space = ("?",) * (len(plan.viewed(q)) - 1) + (columns,)
        products = (("product", ("false", "true")), ("values", ("false", "false")))
        return CpuAttentionStage(
            **common(stage, "attention", "cpu/attention.h"),
            body=score_loop(plan, stage, program, root, space),
            members=tuple(Member("MatMul", f"{n}_{index}", f"api, info, 1, {', '.join(f)}") for n, f in products),
            q=_cpu_view(q),
            k=_cpu_view(k),
            v=_cpu_view(v),
            out=f"t{stage.stores[0].tensor}, {_permutation(stage.out_perm)}",
            keys=f"host::permute(t{v.tensor}.dims, {ints(v.perm)})" if v.perm else f"t{v.tensor}.dims",
        )

    def cuda(self, plan: Plan, stage: Attention, index: int) -> AttentionStage:
        names = Names(plan, stage)
        q, k, v, out = _matrices(names, stage)
        may_round, splits, dims = q.dtype == "float32", _splits(stage), _head_dims(plan, stage)
        panels = {d: p for d in dims if splits and not may_round and (p := multiplied(plan, stage, *d))}
        functions = _functions(names, stage)
        hidden = Hidden.by(stage, functions[0][1], bool(panels))
        fitting = Fitting.to(*(_known(plan.viewed(stage.operands[i])[-2]) for i in (stage.q, stage.k)))
        sorts_tiles = hidden.sorts_tiles and fitting.many
        headers = ["attention_decode.cuh", *(("attention_scalar.cuh", "provider.h") if may_round else ())]
        headers += ["attention_ring.cuh", "attention_short.cuh", "attention_wgmma.cuh"] if panels else []
        parts, sorts = f"parts_{index}", f"sorts_{index}"
        keys, values = (_shape(plan, stage.operands[i]) for i in (stage.k, stage.v))
        part_bytes = f"gpu::attention_part_bytes(device, h{stage.dims}, {keys}, {values})"
        map_bytes = f"gpu::tile_map_bytes(h{stage.dims}, {keys}, {str(hidden.firm).lower()})"
        # In the order of the function's parameters: each with its argument, and the memory it lies in.
        extras = [
            *((("void* parts", f"work + {parts}"), ("unsigned* done", "gpu::counters(work)")) if splits else ()),
            *((("void* sorts", f"work + {sorts}"),) if sorts_tiles else ()),
            *((("bool tf32", "tf32"),) if may_round else ()),
        ]
        return AttentionStage(
            **names.common("attention", *headers),
            takes=tuple(parameter for parameter, _ in extras),
            arguments=tuple(argument for _, argument in extras),
            setup=(("const bool tf32", "gpu::allows_tf32(run.api, run.context)"),) if may_round else (),
            buffers=(
                *((Buffer(parts, (part_bytes,)),) if splits else ()),
                *((Buffer(sorts, (map_bytes,)),) if sorts_tiles else ()),
            ),
            prepares=True,
            q=q,
            k=k,
            v=v,
            out=out,
            out_view=names.view(Operand(stage.stores[0].tensor, _inverse(stage.out_perm))),
            scale=f"{stage.scale!r}f",
            functions=functions,
            prob_kind=_PROB[stage.kind.probabilities],
            head_dims=dims,
            bare=is_bare(stage),
            causal=hides_later(stage.kind),
            later=hidden.later,
            has_sink=stage.sink >= 0,
            by_key=hidden.by_key,
            sorted=hidden.sorted,
            firm=hidden.firm,
            small=has_small_scores(stage),
            may_round=may_round,
            splits=splits,
            panels=panels,
            fitting=fitting,
        )


def _known(size: int | str) -> int | None:
    return size if isinstance(size, int) else None


def _matrices(names: Names, stage: Attention) -> tuple[Load, Load, Load, Out]:
    """Queries, keys, values and the result. Raises Unsupported where they are not of one type of floats."""
    q, k, v = names.load(stage.q), names.load(stage.k), names.load(stage.v)
    if len({q.dtype, k.dtype, v.dtype}) > 1 or q.dtype not in FLOATS:
        expected = "q, k, v all float32, float16 or bfloat16"
        raise Unsupported(codes.DTYPE, expected, f"{q.dtype}, {k.dtype}, {v.dtype}")
    store = stage.stores[0].tensor
    out = Out("out", names.tensor(store).dtype, names.local[store], 0, "float", "")
    if out.dtype != q.dtype:
        raise Unsupported(codes.DTYPE, f"attention written as {q.dtype}", out.dtype)
    return q, k, v, out


def _functions(names: Names, stage: Attention) -> tuple[tuple[str, Body, str], ...]:
    """What becomes of a score, of a probability, and of the sink: by name, the body and its result."""

    def function(name: str, program: Sequence[Instr], root: int) -> tuple[str, Body, str]:
        if root < 0:
            return name, _NOTHING, "acc"
        body = names.body(program, (), root=root, load="x.in{}()".format, position=_position)
        return name, body, result(program, root)

    return (
        function("score", stage.program, stage.score),
        function("prob", stage.prob_program, stage.prob if not _splits(stage) else -1),
        function("sink", stage.program, stage.sink),
    )


def _splits(stage: Attention) -> bool:
    """Whether blocks may share a row's keys: a probability's program may need the row's sum, which they know last."""
    return stage.kind.probabilities != "general"


def _cpu_view(operand: Operand) -> str:
    return f"t{operand.tensor}, {_permutation(operand.perm)}"


def _permutation(perm: tuple[int, ...] | None) -> str:
    return "Ints{}" if perm is None else ints(perm)


def _position(back: int) -> str:
    return {1: "column", 2: "row"}.get(back, f"axis_{back}.at(batch)")


def _shape(plan: Plan, operand: Operand) -> str:
    """The host expression of an operand's dimensions."""
    dims = f"h{plan.tensors[operand.tensor].dims}"
    return f"host::permute({dims}, {ints(operand.perm)})" if operand.perm else dims


def _inverse(perm: tuple[int, ...] | None) -> tuple[int, ...] | None:
    return tuple(perm.index(i) for i in range(len(perm))) if perm else None


def _head_dims(plan: Plan, stage: Attention) -> tuple[tuple[int, int], ...]:
    depth = plan.viewed(stage.operands[stage.q])[-1]
    value_depth = plan.viewed(stage.operands[stage.v])[-1]
    if isinstance(depth, str) or isinstance(value_depth, str):
        return tuple((d, d) for d in DYNAMIC_HEAD_DIMS)
    if max(depth, value_depth) > HEAD_DIMS[-1]:
        raise Unsupported(codes.LIMIT, f"a head dimension of at most {HEAD_DIMS[-1]}", str(max(depth, value_depth)))
    return ((_padded(depth), _padded(value_depth)),)


def _padded(dim: int) -> int:
    """The depth of the kernel that a head runs by, if there is one."""
    return next((d for d in HEAD_DIMS if d >= dim), dim)
