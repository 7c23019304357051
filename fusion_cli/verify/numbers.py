"""How far two arrays lie apart, and how far they may."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

_TOLERANCES = {"bfloat16": 8e-2, "float16": 2e-2, "float32": 1e-3, "float64": 1e-3}
"""By element type, the narrowest first."""


def tolerance(dtypes: Iterable[str]) -> float:
    """The largest error allowed to values computed in these element types: the narrowest float decides."""
    present = set(dtypes)
    return next((t for name, t in _TOLERANCES.items() if name in present), _TOLERANCES["float32"])


def largest_error(reference: npt.NDArray[np.generic], other: npt.NDArray[np.generic]) -> float:
    """Largest absolute difference over the largest magnitude of the reference (over 1 where that is all zero).

    Infinite where the two cannot be compared: another shape, NaN at other places, an infinity that differs, or
    strings that do. Zero for empty arrays.
    """
    if reference.shape != other.shape:
        return float("inf")
    if reference.dtype.kind in "OSU":
        return 0.0 if np.array_equal(reference, other) else float("inf")
    with np.errstate(all="ignore"):
        return _numeric_error(_as_float64(reference), _as_float64(other))


def _numeric_error(reference: npt.NDArray[np.float64], other: npt.NDArray[np.float64]) -> float:
    finite = np.isfinite(reference)
    if not np.array_equal(finite, np.isfinite(other)):
        return float("inf")
    if not np.array_equal(reference[~finite], other[~finite], equal_nan=True):
        return float("inf")
    if not finite.any():
        return 0.0
    scale = float(np.abs(reference[finite]).max())
    return float(np.abs(reference[finite] - other[finite]).max()) / (scale or 1.0)


def _as_float64(array: npt.NDArray[np.generic]) -> npt.NDArray[np.float64]:
    """Complex values become pairs; int64 beyond 2^53 loses its last digits, which no tolerance would show."""
    if array.dtype.kind == "c":
        return np.stack([array.real, array.imag]).astype(np.float64)
    return array.astype(np.float64)
