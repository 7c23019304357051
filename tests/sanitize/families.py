"""The cases of the GPU tests by family."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.helpers.cuda_case import Case
from tests.helpers.cuda_plans import all_cases

_PREFIXES = {
    "pointwise": ("pointwise", "scaled", "integers", "transpose"),
    "rowwise": ("layer_norm", "softmax", "ranges"),
    "linear": ("linear", "batched", "chain"),
    "attention": ("attention", "causal", "bare", "alibi", "masked"),
    "convolution": ("conv", "pool", "moments"),
    "views": ("",),
}
"""What names of cases begin with; a case belongs to the first that fits."""


def _grouped(cases: Sequence[Case]) -> Mapping[str, tuple[Case, ...]]:
    found: dict[str, list[Case]] = {family: [] for family in _PREFIXES}
    for case in cases:
        found[next(f for f, prefixes in _PREFIXES.items() if case.name.startswith(prefixes))].append(case)
    return {family: tuple(own) for family, own in found.items()}


FAMILIES = _grouped(all_cases())
