"""Does the fused model compute what the original does, and is it faster? Measured in ONNX Runtime.

Here: how far two results lie apart, and how far they may.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from fusion_cli.sessions import Array
from fusion_cli.sessions.process import Runner

Outputs = Mapping[str, Array]

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


def output_errors(
    reference: Outputs,
    found: Sequence[Outputs],
    allowed: float,
    optimized: Callable[[], Runner],
    feeds: Mapping[str, Array],
) -> dict[str, float]:
    """The largest error of every output, by name, in any of the results found; raises CannotRun.

    ONNX Runtime's optimizations may round otherwise than the operators do one by one, quantized ones above all, and
    make some norms into others. So where a result is further from `reference` than allowed, the original is run again
    as `optimized` opens it, and each result may agree with either. Outputs that a second such run gives other numbers
    for are left out: the original draws them at random.
    """
    errors = [_errors(reference, each) for each in found]
    if all(error <= allowed for each in errors for error in each.values()):
        return _largest(reference, errors)
    outputs, repeatable = _run_twice(optimized(), feeds, allowed)
    again = [_errors(outputs, each) for each in found]
    either = [{name: min(a[name], b[name]) for name in a} for a, b in zip(errors, again, strict=True)]
    return _largest(repeatable, either)


def _errors(expected: Outputs, found: Outputs) -> dict[str, float]:
    """The error of every output; infinite if `found` lacks it."""
    return {
        name: largest_error(array, found[name]) if name in found else float("inf") for name, array in expected.items()
    }


def _largest(names: Iterable[str], errors: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: max((each[name] for each in errors), default=0.0) for name in names}


def _run_twice(runner: Runner, feeds: Mapping[str, Array], allowed: float) -> tuple[Outputs, list[str]]:
    """What a model gives, and the outputs that it gives again: a session's first draw is the same as another's, its
    second is not."""
    outputs = runner.run(feeds)
    again = _errors(outputs, runner.run(feeds))
    return outputs, [name for name, error in again.items() if error <= allowed]
