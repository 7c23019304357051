"""How much of an attention its kernels look at, and how fast; how large its scores are."""

from __future__ import annotations

import math

from fusion_cli.codes.score import ON_CHIP
from fusion_cli.devices.profile import DeviceProfile
from fusion_cli.devices.work import ATTENTION_ROWS
from fusion_cli.errors import Unsupported
from fusion_cli.operators.dtypes import FLOATS
from fusion_cli.plan.attention_kind import hides_later
from fusion_cli.planir.stages import Attention, Instr, Plan

PANELS = (64, 128)
"""Head dimensions of Hopper's own kernels: whole panels of shared memory, and results that fit in registers."""
_LEAST_IN_PANELS = 33
"""Less deep heads would leave half of a panel empty; those of 65 to 96, of the other kernel 96 deep too, a quarter."""
ARCH = "sm_90a"

DEEP, _DEEP_SHARE = 128, 0.16
"""Deeper heads have smaller tiles, of a kernel that is not Hopper's own; the share of the others' efficiency. Measured
on an H100: four heads of 256 at 1,024 tokens, half as many blocks as multiprocessors, 54 to 75 us."""
_SCORES_SHARE = 0.39
"""Of the time of Hopper's own kernel at heads of `DEEP`, what scores take, which is as much at less deep ones, and not
products. Measured on an H200 without a mask: 0.81 ps a pair of query and key at 128, 0.57 at 64."""
SHALLOW = 64
"""Heads of which a multiprocessor has the tiles of several blocks, and those larger tiles."""
_CORE_SHARE = 0.8
_SMALL_BLOCKS, _SMALL_BLOCK_BYTES = frozenset({"sm_89", "sm_120a"}), 99 * 1024
"""Targets whose blocks have little shared memory, whatever the profile has that predictions are made with."""
_SMALL = 1e9
"""Far from the largest float, whatever a score is multiplied by."""


def has_small_scores(stage: Attention) -> bool:
    """Whether scores are far from the largest float: products, float16 that is added to them, and numbers in their
    places that are small, or -inf."""

    def is_small(instr: Instr) -> bool:
        if instr.op == "load":
            return instr.dtype == "float16"
        if instr.op == "const":
            return instr.value == -math.inf or abs(instr.value or 0) <= _SMALL
        return instr.op in ("acc", "Add", "Where")

    floats = (instr for instr in stage.program if instr.dtype in FLOATS)
    return abs(stage.scale) <= _SMALL and all(map(is_small, floats))


def is_bare(stage: Attention) -> bool:
    """Whether the score is the scaled product itself, of every key or those not hidden."""
    return stage.kind.masking == "none" and stage.scale > 0 and stage.sink < 0


def panels_of(depth: int, value_depth: int) -> tuple[int, int] | None:
    """The depths of Hopper's own kernels that heads of these run by, with zeros after them; None if there are none."""
    found = [next((p for p in PANELS if _LEAST_IN_PANELS <= d <= p), 0) for d in (depth, value_depth)]
    return (found[0], found[1]) if all(found) else None


def multiplied(plan: Plan, stage: Attention, depth: int, value_depth: int) -> tuple[int, int] | None:
    """The depths that these kernels multiply, by the depths that heads are padded to: of known heads no more than there
    is, by sixteens."""
    panels = panels_of(depth, value_depth)
    if panels is None:
        return None
    heads = (plan.viewed(stage.operands[k])[-1] for k in (stage.q, stage.v))
    first, second = (p if isinstance(d, str) else -(-d // 16) * 16 for p, d in zip(panels, heads, strict=True))
    return first, second


def efficiency(profile: DeviceProfile, dtype: str, depth: int, masked: bool) -> float:
    """Of the tensor cores, beside products."""
    found = profile.masked_attention_efficiency if masked else profile.attention_efficiency
    if dtype == "float32":
        found = profile.float32_attention_efficiency
    elif profile.target == ARCH and depth <= DEEP:
        found *= depth / (depth + _SCORES_SHARE * (DEEP - depth))
    return found if depth <= DEEP else found * _DEEP_SHARE


def check_room(profile: DeviceProfile, stage: Attention, dtype: str, depth: int, value_depth: int) -> None:
    """Raises Unsupported where what is worked on at a time does not fit on the chip."""
    if profile.kind == "cuda":
        is_small = profile.target in _SMALL_BLOCKS
        limit = min(profile.onchip_bytes, _SMALL_BLOCK_BYTES) if is_small else profile.onchip_bytes
        found = block_bytes(is_bare(stage), 4 if dtype == "float32" else 2, depth, value_depth, is_small)
    else:
        limit = _CORE_SHARE * profile.onchip_bytes
        found = 4 * ATTENTION_ROWS * (2 * depth + 2 * value_depth + ATTENTION_ROWS)
    if found > limit:
        heads = f"{found / 1024:.0f} KB for heads of {depth} and {value_depth}"
        raise Unsupported(ON_CHIP, f"{limit / 1024:.0f} KB on chip", heads)


def block_bytes(is_bare: bool, size: int, depth: int, value_depth: int, is_small: bool) -> int:
    """Shared memory of the kernel that runs on any GPU, as templates/include/attention_tile.cuh has it, for numbers of
    `size` bytes; `is_small`: of GPUs whose blocks have little."""
    deepest = max(depth, value_depth)
    rows = 128 if size == 2 and deepest <= DEEP else 64
    is_shallow = deepest <= SHALLOW
    halves = 1 if is_bare and (is_shallow or not is_small) else 2
    keys = 32 if deepest > DEEP or size == 4 else (128 if is_shallow else 64) // halves
    group = 32 if size == 4 else 16  # of values
    pitch, value_pitch = depth + 16 // size, -(-value_depth // group) * group + 16 // size
    return size * max(rows * pitch + 2 * keys * (pitch + value_pitch), rows * value_pitch)


def visible(stage: Attention, queries: int, keys: int, depth: int, profile: DeviceProfile) -> int:
    """Pairs of query and key that a kernel looks at: those for GPUs leave out the keys that no query of a tile sees."""
    kind = stage.kind
    if profile.kind != "cuda" or not kind.causal or kind.probabilities == "general":
        return queries * keys
    # Where later keys might count all the same, Hopper's own kernel alone leaves them out, and tells that they do not.
    is_scaled = stage.scale > 0 and stage.sink < 0
    tells = profile.target == ARCH and panels_of(depth, depth) and queries > ATTENTION_ROWS and is_scaled
    if not (hides_later(kind) or tells):
        return queries * keys
    tiles = range(0, queries, ATTENTION_ROWS)
    return sum(min(ATTENTION_ROWS, queries - first) * min(first + ATTENTION_ROWS, keys) for first in tiles)
