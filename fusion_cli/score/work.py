"""What a kernel has to do, and how long a device takes for it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fusion_cli.errors import Unsupported
from fusion_cli.plan.ir import Attention, Conv, Instr, Linear, Plan, Stage
from fusion_cli.score import codes
from fusion_cli.score.profile import DeviceProfile

BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "int32": 4, "int64": 8, "bool": 1, "float64": 8}
SPECIAL = frozenset(
    "Acos Acosh Asin Asinh Atan Atanh Cos Cosh Erf Exp Log Pow Sigmoid Sin Sinh Softplus Tan Tanh".split()
)
_FREE = frozenset({"load", "acc", "const", "index", "Cast"})
_ON_CHIP_SHARE = 0.8
_TILE_ROWS = 64
"""Rows of queries and of keys that an attention kernel keeps on the chip at once."""


@dataclass(frozen=True)
class Work:
    """One kernel: matrix operations (as the vendor's kernel would need time for them, see `slowdown`), bytes through
    memory, and elementwise operations, simple and special (exp and the like)."""

    name: str
    bytes: float
    flops: float = 0.0
    dtype: str = "float32"
    simple: float = 0.0
    special: float = 0.0
    slowdown: float = 1.0

    def time_us(self, profile: DeviceProfile) -> float:
        """Device time, dispatch aside."""
        arithmetic = self.simple / (profile.simple_gops * 1e3) + self.special / (profile.special_gops * 1e3)
        moved = self.bytes / profile.bandwidth(self.bytes)
        matrix = self.flops / profile.matrix_rate(self.dtype)
        return max(matrix, moved) * self.slowdown + arithmetic if self.flops else max(moved, arithmetic)


def count(dims: Sequence[int]) -> int:
    return math.prod(dims)


def stage_work(
    plan: Plan, stage: Stage, dims: Sequence[Sequence[int]], profile: DeviceProfile, weights: frozenset[int]
) -> Work:
    """The work of one stage; `dims` are the host program's values, `weights` the operator inputs that are constant.

    Raises Unsupported where the kernel would not fit the chip.
    """
    shapes = [dims[plan.tensors[o.tensor].dims] for o in stage.operands]
    touched = {o.tensor for o in stage.operands} | {s.tensor for s in stage.stores}
    moved = sum(count(dims[plan.tensors[t].dims]) * BYTES[plan.tensors[t].dtype] for t in touched)
    space = float(count(dims[stage.dims]))
    simple, special = _operations(stage.program)
    if isinstance(stage, Attention):
        return _attention_work(plan, stage, shapes, dims, profile, moved)
    if isinstance(stage, Linear):
        inner = shapes[stage.a][-2 if stage.trans_a else -1]
        rows = space / max(1, dims[stage.dims][-1])
        constant = _input_slot(plan, stage.operands[stage.b].tensor) in weights
        slowdown = (profile.gemm_slowdown(rows) if constant else 1.0) / profile.linear_efficiency
        dtype = plan.tensors[stage.operands[stage.a].tensor].dtype
        flops = 2 * space * inner
    elif isinstance(stage, Conv):
        flops, slowdown = 2 * space * count(shapes[stage.w][1:]), 1 / profile.conv_efficiency
        dtype = plan.tensors[stage.operands[stage.x].tensor].dtype
    else:
        return Work(type(stage).__name__, moved, simple=simple * space, special=special * space)
    return Work(type(stage).__name__, moved, flops, dtype, simple * space, special * space, slowdown)


def _attention_work(
    plan: Plan,
    stage: Attention,
    shapes: Sequence[Sequence[int]],
    dims: Sequence[Sequence[int]],
    profile: DeviceProfile,
    moved: float,
) -> Work:
    out = dims[stage.dims]
    q, k = (_permuted(shapes[i], stage.operands[i].perm) for i in (stage.q, stage.k))
    keys, depth = (k[-1] if stage.k_transposed else k[-2]), q[-1]
    scores = float(count(out[:-1])) * keys
    tile = 4 * _TILE_ROWS * (2 * depth + 2 * out[-1] + _TILE_ROWS)
    if tile > _ON_CHIP_SHARE * profile.onchip_bytes:
        limit = f"{_ON_CHIP_SHARE * profile.onchip_bytes / 1024:.0f} KB on chip"
        raise Unsupported(codes.ON_CHIP, limit, f"{tile / 1024:.0f} KB for heads of {depth} and {out[-1]}")
    simple, special = _operations((*stage.program, *stage.prob_program))
    return Work(
        "Attention",
        moved,
        2 * scores * (depth + out[-1]),
        plan.tensors[stage.operands[stage.q].tensor].dtype,
        (simple + 3) * scores,
        (special + 1) * scores,
        1 / profile.attention_efficiency,
    )


def _permuted(shape: Sequence[int], perm: Sequence[int] | None) -> Sequence[int]:
    return shape if perm is None else [shape[p] for p in perm]


def _operations(program: Sequence[Instr]) -> tuple[int, int]:
    """Simple and special operations per element; what is computed once a row is as good as free."""
    simple = special = 0
    per_row: list[bool] = []
    for instr in program:
        reduction = instr.op.startswith("reduce_")
        once = bool(instr.args) and all(per_row[a] for a in instr.args)
        per_row.append(reduction or once or instr.op == "const")
        if instr.op in SPECIAL and not once:
            special += 1
        elif instr.op not in _FREE and not once:
            simple += 1
    return simple, special


def _input_slot(plan: Plan, tensor: int) -> int:
    found = plan.tensors[tensor]
    if found.role == "alias":
        found = plan.tensors[found.slot]
    return found.slot if found.role == "input" else -1


def operations_of(op_type: str) -> tuple[int, int]:
    """Simple and special operations per element of an ONNX operator as ONNX Runtime runs it in one node."""
    return _COMPOSITE.get(op_type, (0, 1) if op_type in SPECIAL else (1, 0))


_COMPOSITE: Mapping[str, tuple[int, int]] = {
    "LayerNormalization": (6, 0),
    "SkipLayerNormalization": (7, 0),
    "SimplifiedLayerNormalization": (4, 0),
    "RMSNormalization": (4, 0),
    "InstanceNormalization": (6, 0),
    "GroupNormalization": (6, 0),
    "BatchNormalization": (2, 0),
    "Softmax": (3, 1),
    "LogSoftmax": (3, 1),
    "Gelu": (4, 1),
    "FastGelu": (7, 1),
    "QuickGelu": (2, 1),
    "Swish": (1, 1),
    "Mish": (1, 2),
    "HardSwish": (4, 0),
    "HardSigmoid": (3, 0),
    "Clip": (2, 0),
}
