"""Does the fused model compute what the original does, and is it faster? Measured in ONNX Runtime.

Here: how far two results lie apart, and how far they may.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import ml_dtypes
import numpy as np
import numpy.typing as npt

from fusion_cli.measured import OutputCheck
from fusion_cli.sessions import Array
from fusion_cli.sessions.process import Runner

Outputs = Mapping[str, Array]


@dataclass(frozen=True)
class Limit:
    """How far results may lie apart: relative to the largest magnitude, and in any case `absolute`, a few units in the
    last place of values around one, from which even a tiny result has most often been made (a sigmoid's tail)."""

    relative: float
    absolute: float

    @property
    def least_scale(self) -> float:
        """The magnitude that errors are relative to at the least."""
        return self.absolute / self.relative


_ULPS = 4
_LIMITS = {
    "bfloat16": Limit(8e-2, _ULPS * 2**-7),
    "float16": Limit(2e-2, _ULPS * float(np.finfo(np.float16).eps)),
    "float32": Limit(1e-3, _ULPS * float(np.finfo(np.float32).eps)),
    "float64": Limit(1e-3, _ULPS * float(np.finfo(np.float32).eps)),
}
"""By element type, the narrowest first."""
_SPREADS = 4
"""How many times further than its own results another model's may be from the original's."""
_NUDGES = 3
"""Times that inputs and constants are moved in the last place: whether a quantization then makes another step is
chance."""
_MOST_ROUNDING = 0.02
"""What ONNX Runtime's optimizations change beyond this is not taken for rounding."""


def limit(dtypes: Iterable[str]) -> Limit:
    """How far values computed in these element types may be off: the narrowest float decides."""
    present = set(dtypes)
    return next((limit for name, limit in _LIMITS.items() if name in present), _LIMITS["float32"])


def largest_error(
    reference: npt.NDArray[np.generic], other: npt.NDArray[np.generic], least_scale: float = 0.0
) -> float:
    """Largest absolute difference over the largest magnitude of the reference, or `least_scale` where that is larger
    (over 1 where the reference is all zero).

    Infinite where the two cannot be compared: another shape, NaN at other places, an infinity that differs, or
    strings that do. Zero for empty arrays.
    """
    if reference.shape != other.shape:
        return float("inf")
    if reference.dtype.kind in "OSU":
        return 0.0 if np.array_equal(reference, other) else float("inf")
    with np.errstate(all="ignore"):
        return _numeric_error(_as_float64(reference), _as_float64(other), least_scale)


def _numeric_error(reference: npt.NDArray[np.float64], other: npt.NDArray[np.float64], least_scale: float) -> float:
    finite = np.isfinite(reference)
    if not np.array_equal(finite, np.isfinite(other)):
        return float("inf")
    if not np.array_equal(reference[~finite], other[~finite], equal_nan=True):
        return float("inf")
    if not finite.any():
        return 0.0
    magnitude = float(np.abs(reference[finite]).max())
    scale = max(magnitude, least_scale) if magnitude else 1.0
    return float(np.abs(reference[finite] - other[finite]).max()) / scale


def _as_float64(array: npt.NDArray[np.generic]) -> npt.NDArray[np.float64]:
    """Complex values become pairs; int64 beyond 2^53 loses its last digits, which no tolerance would show."""
    if array.dtype.kind == "c":
        return np.stack([array.real, array.imag]).astype(np.float64)
    return array.astype(np.float64)


def compare(
    reference: Outputs,
    found: Sequence[Outputs],
    allowed: Limit,
    original: Callable[..., Runner],
    feeds: Mapping[str, Array],
    nudged: Callable[[int], Runner] | None = None,
) -> tuple[OutputCheck, ...]:
    """The largest error of every output in any of the results found, and how large it may be; raises CannotRun.

    ONNX Runtime's optimizations may round otherwise than the operators do one by one, quantized ones above all, and
    make some norms into others. So where a result is further from `reference` than allowed, the original is run again
    as ONNX Runtime optimizes it, and each result may agree with either. Where that is not enough, the spread of the
    original's own results decides, those of inputs that differ in the last place among them, for a long chain of layers
    may enlarge any rounding; at last those of such constants, for a quantization now and then makes a whole step of
    it. Outputs that a second such run gives other numbers for are left out, for the original draws them at random, and
    so are those of such a spread that any number would pass. `original` opens it, and `nudged` with such constants,
    others for each number.
    """
    errors = partial(_errors, allowed.least_scale)
    found_errors = [errors(reference, each) for each in found]
    if all(error <= allowed.relative for each in found_errors for error in each.values()):
        return _checks(found_errors, dict.fromkeys(reference, allowed.relative))
    runner = original()
    optimized, again = runner.run(feeds), runner.run(feeds)
    # A session's first draw is the same as another's, its second is not.
    repeatable = [name for name, error in errors(optimized, again).items() if error <= allowed.relative]
    both = zip(found_errors, (errors(optimized, each) for each in found), strict=True)
    either = [{name: min(a[name], b[name]) for name in repeatable} for a, b in both]
    if all(error <= allowed.relative for each in either for error in each.values()):
        return _checks(either, dict.fromkeys(repeatable, allowed.relative))
    rounding = {name: min(error, _MOST_ROUNDING) for name, error in errors(reference, optimized).items()}
    spread = {name: _SPREADS * rounding[name] for name in repeatable}

    def checked_with(neighbours: Iterable[Outputs]) -> tuple[OutputCheck, ...]:
        for neighbour in neighbours:
            found = errors(reference, neighbour)
            spread.update({name: max(s, _SPREADS * found[name]) for name, s in spread.items()})
        return _checks(either, {name: max(allowed.relative, s) for name, s in spread.items() if s < 1})

    checks = checked_with([original(use="reference").run(nudge(feeds, 0))])
    if nudged is None or all(check.ok for check in checks):
        return checks
    return checked_with(nudged(seed).run(nudge(feeds, seed)) for seed in range(_NUDGES))


def _errors(least_scale: float, expected: Outputs, found: Outputs) -> dict[str, float]:
    """The error of every output; infinite if `found` lacks it."""
    return {
        name: largest_error(array, found[name], least_scale) if name in found else float("inf")
        for name, array in expected.items()
    }


def _checks(errors: Sequence[Mapping[str, float]], allowed: Mapping[str, float]) -> tuple[OutputCheck, ...]:
    worst = {name: max((each[name] for each in errors), default=0.0) for name in allowed}
    return tuple(OutputCheck(name, worst[name], tolerance) for name, tolerance in allowed.items())


def nudge(arrays: Mapping[str, Array], seed: int) -> dict[str, Array]:
    """The same arrays, every float moved to one of its neighbours (the largest stays finite)."""
    rng = np.random.default_rng(seed)
    nudged = dict(arrays)
    for name, array in arrays.items():
        if array.dtype.kind == "f" or array.dtype == ml_dtypes.bfloat16:
            towards = np.where(rng.random(array.shape) < 0.5, np.inf, -np.inf).astype(array.dtype)
            moved = np.nextafter(array, towards)
            nudged[name] = np.where(np.isfinite(moved), moved, array)
    return nudged
