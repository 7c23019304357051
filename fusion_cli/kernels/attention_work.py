"""How much of an attention its kernels look at, and how fast; how large its scores are."""

from __future__ import annotations

import math

from fusion_cli.devices.profile import DeviceProfile
from fusion_cli.devices.work import ATTENTION_ROWS
from fusion_cli.operators.dtypes import FLOATS
from fusion_cli.plan.attention_kind import hides_later
from fusion_cli.planir.stages import Attention, Instr

PANELS = frozenset({64, 128})
"""Head dimensions of Hopper's own kernel: whole panels of shared memory, and results that fit in registers."""
_ARCH = "sm_90a"

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


def efficiency(profile: DeviceProfile, dtype: str, masked: bool) -> float:
    """Of the tensor cores, beside products."""
    if dtype == "float32":
        return profile.float32_attention_efficiency
    return profile.masked_attention_efficiency if masked else profile.attention_efficiency


def visible(stage: Attention, queries: int, keys: int, depth: int, profile: DeviceProfile) -> int:
    """Pairs of query and key that a kernel looks at: those for GPUs leave out the keys that no query of a tile sees."""
    kind = stage.kind
    if profile.kind != "cuda" or not kind.causal or kind.probabilities == "general":
        return queries * keys
    # Where later keys might count all the same, Hopper's own kernel alone leaves them out, and tells that they do not.
    is_bare = stage.scale > 0 and stage.sink < 0
    tells = profile.target == _ARCH and depth in PANELS and queries > ATTENTION_ROWS and is_bare
    if not (hides_later(kind) or tells):
        return queries * keys
    tiles = range(0, queries, ATTENTION_ROWS)
    return sum(min(ATTENTION_ROWS, queries - first) * min(first + ATTENTION_ROWS, keys) for first in tiles)
