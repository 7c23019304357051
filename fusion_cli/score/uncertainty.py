"""By how much a predicted gain may be off."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable

from fusion_cli.devices.profile import DeviceProfile
from fusion_cli.devices.work import Work

_PRODUCTS = frozenset({"MatMul", "Gemm", "Linear"})
"""The vendor's own, whether a node of ONNX Runtime's calls it or an operator of ours."""


def uncertainty_us(before: Iterable[Work], after: Iterable[Work], profile: DeviceProfile) -> float:
    """Microseconds by which the difference of two predictions is likely to be off, from how far those of each kind of
    kernel were from what was measured when the profile was calibrated.

    What is wrong of one kind is wrong of it on both sides, so that only the difference counts; kinds are independent of
    each other.
    """
    net: defaultdict[str, float] = defaultdict(float)
    for works, sign in ((before, 1), (after, -1)):
        for work in works:
            net[_kind(work)] += sign * work.time_us(profile)
    return math.sqrt(sum((profile.uncertainty(kind) * us) ** 2 for kind, us in net.items()))


def _kind(work: Work) -> str:
    return "Linear" if work.name in _PRODUCTS else work.name
