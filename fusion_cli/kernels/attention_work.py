"""How much of an attention its kernels look at, and how fast."""

from __future__ import annotations

from fusion_cli.devices.profile import DeviceProfile
from fusion_cli.devices.work import ATTENTION_ROWS
from fusion_cli.plan.attention_kind import hides_later
from fusion_cli.planir.stages import Attention

PANELS = frozenset({64, 128})
"""Head dimensions of Hopper's own kernel: whole panels of shared memory, and results that fit in registers."""
_ARCH = "sm_90a"


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
