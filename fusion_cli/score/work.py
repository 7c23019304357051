"""What a kernel has to do, and how long a device takes for it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fusion_cli.codes import score as codes
from fusion_cli.devices.profile import DeviceProfile
from fusion_cli.errors import Unsupported
from fusion_cli.planir.stages import Attention, Conv, Instr, Linear, Plan, Stage

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
        moved = self.bytes / (profile.bandwidth(self.bytes) * profile.share(self.name))
        matrix = self.flops / profile.matrix_rate(self.dtype)
        return max(matrix, moved) * self.slowdown + arithmetic if self.flops else max(moved, arithmetic)


def count(dims: Sequence[int]) -> int:
    return math.prod(dims)


def stage_works(
    plan: Plan, stage: Stage, dims: Sequence[Sequence[int]], profile: DeviceProfile, weights: frozenset[int]
) -> list[Work]:
    """The kernels of one stage; `dims` are the host program's values, `weights` the operator inputs that are constant.

    A product or convolution is the vendor's, with what follows it as a second pass over its result. Raises Unsupported
    where a kernel would not fit the chip.
    """
    if isinstance(stage, Attention):
        return [_attention_work(plan, stage, dims, profile)]
    space = float(count(dims[stage.dims]))
    simple, special = _operations(stage.program)
    touched = {o.tensor for o in stage.operands} | {s.tensor for s in stage.stores}
    if not isinstance(stage, Linear | Conv):
        moved = _moved(plan, touched, dims)
        return [Work(type(stage).__name__, moved, simple=simple * space, special=special * space)]
    factors = _factors(stage)
    dtype = plan.tensors[factors[0]].dtype
    result = space * BYTES[dtype]
    flops, slowdown = _product(plan, stage, dims, profile, weights)
    product = Work(type(stage).__name__, _moved(plan, set(factors), dims) + result, flops, dtype, slowdown=slowdown)
    if not simple + special:
        return [product]
    rest = _moved(plan, touched - set(factors), dims)
    return [product, Work("Epilogue", result + rest, simple=simple * space, special=special * space)]


def _factors(stage: Linear | Conv) -> list[int]:
    """The tensors that the product or convolution itself reads."""
    indices = (stage.a, stage.b) if isinstance(stage, Linear) else (stage.x, stage.w, stage.bias)
    return [stage.operands[i].tensor for i in indices if i >= 0]


def _product(
    plan: Plan,
    stage: Linear | Conv,
    dims: Sequence[Sequence[int]],
    profile: DeviceProfile,
    weights: frozenset[int],
) -> tuple[float, float]:
    """Floating-point operations, and the time over that of ONNX Runtime's node."""
    out, second = dims[stage.dims], _factors(stage)[1]
    if isinstance(stage, Conv):
        return 2.0 * count(out) * count(dims[plan.tensors[second].dims][1:]), 1 / profile.conv_efficiency
    inner = dims[plan.tensors[second].dims][-1 if stage.trans_b else -2]
    constant = _input_slot(plan, second) in weights
    slowdown = profile.gemm_slowdown(count(out[:-1])) if constant else 1.0
    return 2.0 * count(out) * inner, slowdown / profile.linear_efficiency


def _moved(plan: Plan, tensors: Iterable[int], dims: Sequence[Sequence[int]]) -> float:
    """Bytes of these tensors; of views that overlap, no more than what they are views of."""
    moved: dict[int, int] = {}
    for tensor in tensors:
        root = plan.root(tensor)
        size = BYTES[plan.tensors[root].dtype]
        whole, own = (count(dims[plan.tensors[t].dims]) * size for t in (root, tensor))
        moved[root] = min(whole, moved.get(root, 0) + own)
    return float(sum(moved.values()))


def _attention_work(plan: Plan, stage: Attention, dims: Sequence[Sequence[int]], profile: DeviceProfile) -> Work:
    out = dims[stage.dims]
    shapes = [dims[plan.tensors[o.tensor].dims] for o in stage.operands]
    moved = _moved(plan, {o.tensor for o in stage.operands} | {s.tensor for s in stage.stores}, dims)
    q, k = (_permuted(shapes[i], stage.operands[i].perm) for i in (stage.q, stage.k))
    keys, depth = (k[-1] if stage.k_transposed else k[-2]), q[-1]
    scores = float(count(out[:-2])) * _visible(stage, out[-2], keys, profile)
    tile = 4 * _TILE_ROWS * (2 * depth + 2 * out[-1] + _TILE_ROWS)
    if tile > _ON_CHIP_SHARE * profile.onchip_bytes:
        limit = f"{_ON_CHIP_SHARE * profile.onchip_bytes / 1024:.0f} KB on chip"
        raise Unsupported(codes.ON_CHIP, limit, f"{tile / 1024:.0f} KB for heads of {depth} and {out[-1]}")
    simple, special = _operations((*stage.program, *stage.prob_program))
    # The softmax itself is part of what the efficiencies were measured on.
    loads = any(i.op == "load" for i in (*stage.program, *stage.prob_program))
    return Work(
        "Attention",
        moved,
        2 * scores * (depth + out[-1]),
        plan.tensors[stage.operands[stage.q].tensor].dtype,
        simple * scores,
        special * scores,
        1 / (profile.masked_attention_efficiency if loads else profile.attention_efficiency),
    )


def _visible(stage: Attention, queries: int, keys: int, profile: DeviceProfile) -> int:
    """Pairs of query and key that a kernel looks at: those for GPUs leave out the keys that no query of a tile sees."""
    if profile.kind != "cuda" or not stage.kind.causal or stage.kind.probabilities == "general":
        return queries * keys
    tiles = range(0, queries, _TILE_ROWS)
    return sum(min(_TILE_ROWS, queries - first) * min(first + _TILE_ROWS, keys) for first in tiles)


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
    found = plan.tensors[plan.root(tensor)]
    return found.slot if found.role == "input" else -1


def operations_of(op_type: str) -> tuple[int, int]:
    """Simple and special operations per element of an ONNX operator as ONNX Runtime runs it in one node."""
    return _COMPOSITE.get(op_type, (0, 1) if op_type in SPECIAL else (1, 0))


_COMPOSITE: Mapping[str, tuple[int, int]] = {
    "LayerNormalization": (6, 0),
    "SkipLayerNormalization": (7, 0),
    "SkipSimplifiedLayerNormalization": (5, 0),
    "SimplifiedLayerNormalization": (4, 0),
    "RMSNormalization": (4, 0),
    "InstanceNormalization": (6, 0),
    "GroupNormalization": (6, 0),
    "BatchNormalization": (2, 0),
    "Softmax": (3, 1),
    "LogSoftmax": (3, 1),
    "Gelu": (4, 1),
    "BiasGelu": (5, 1),
    "FastGelu": (7, 1),
    "QuickGelu": (2, 1),
    "Swish": (1, 1),
    "Mish": (1, 2),
    "HardSwish": (4, 0),
    "HardSigmoid": (3, 0),
    "Clip": (2, 0),
}
