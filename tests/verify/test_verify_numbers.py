"""How errors are measured, and how large they may be."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from fusion_cli.sessions import Array
from fusion_cli.verify import Limit, compare, largest_error, limit


def test_error_is_relative_to_the_largest_magnitude() -> None:
    reference = np.array([1.0, -100.0, 0.001], np.float32)
    other = reference + np.array([0.5, 0.0, 0.0], np.float32)
    assert largest_error(reference, other) == pytest.approx(0.005)


def test_zero_reference_is_compared_absolutely() -> None:
    assert largest_error(np.zeros(3, np.float32), np.full(3, 1e-4, np.float32)) == pytest.approx(1e-4)


def test_equal_nan_and_infinities_are_no_error() -> None:
    values = np.array([np.nan, np.inf, -np.inf, 2.0], np.float16)
    assert largest_error(values, values.copy()) == 0.0


@pytest.mark.parametrize("other", [[np.nan, 2.0], [1.0, np.inf], [1.0, np.nan]])
def test_not_finite_in_other_places_is_an_infinite_error(other: list[float]) -> None:
    assert largest_error(np.array([1.0, 2.0]), np.array(other)) == float("inf")


def test_infinities_of_other_sign_differ() -> None:
    assert largest_error(np.array([np.inf, 1.0]), np.array([-np.inf, 1.0])) == float("inf")


def test_other_shape_is_an_infinite_error() -> None:
    assert largest_error(np.zeros((2, 3)), np.zeros((3, 2))) == float("inf")


def test_empty_arrays_agree() -> None:
    assert largest_error(np.zeros((0, 4)), np.zeros((0, 4))) == 0.0


def test_strings_booleans_and_complex() -> None:
    assert largest_error(np.array(["a", "b"]), np.array(["a", "c"])) == float("inf")
    assert largest_error(np.array([True, False]), np.array([True, True])) == 1.0
    assert largest_error(np.array([2j]), np.array([2j + 1])) == pytest.approx(0.5)


def test_bfloat16_is_compared_in_double() -> None:
    reference = np.array([1.0, 4.0], ml_dtypes.bfloat16)
    assert largest_error(reference, np.array([1.0, 5.0], ml_dtypes.bfloat16)) == pytest.approx(0.25)


def test_narrowest_float_gives_the_limit() -> None:
    assert limit({"float32", "int64"}).relative == 1e-3
    assert limit({"float32", "float16"}).relative == 2e-2
    assert limit({"bfloat16", "float16", "float32"}).relative == 8e-2
    assert limit({"int64"}).relative == 1e-3


def test_a_tail_of_tiny_values_may_be_off_by_rounding_of_values_around_one() -> None:
    allowed = limit({"float32"})
    tail = np.array([1e-6, 1e-9], np.float32)
    near, far = tail + np.float32(3e-7), tail + np.float32(1e-6)
    assert largest_error(tail, near, allowed.least_scale) <= allowed.relative < largest_error(tail, near)
    assert largest_error(tail, far, allowed.least_scale) > allowed.relative


def gives(outputs: Sequence[float], nudged: float = 1.0) -> Callable[..., Any]:
    """Opens a model that gives one result after the other, and another as a reference."""
    results = iter(outputs)

    class Model:
        def __init__(self, value: float | None) -> None:
            self.value = value

        def run(self, feeds: Mapping[str, Array]) -> dict[str, np.ndarray]:
            assert self.value is None or (feeds["x"] != X).all(), "not one number differs"
            return outputs_of(next(results) if self.value is None else self.value)

    return lambda use="timing": Model(nudged if use == "reference" else None)


def outputs_of(value: float) -> dict[str, np.ndarray]:
    return {"y": np.full(3, value)}


X = np.linspace(-1, 1, 5, dtype=np.float32)


@pytest.mark.parametrize(
    ("found", "optimized", "nudged", "expected"),
    [
        ((1.0, 1.01), (), 1.0, (0.01, 0.1)),
        ((1.0, 2.0), (2.0, 2.0), 1.0, (0.0, 0.1)),
        ((1.0, 2.0), (3.0, 3.0), 1.0, (1 / 3, 0.1)),
        ((3.0,), (2.0, 2.0), 1.0, (0.5, 0.1)),
        ((3.0,), (2.0, 4.0), 1.0, None),
        ((1.3,), (1.0, 1.0), 1.2, (0.3, 0.8)),
        ((2.0,), (1.0, 1.0), 1.2, (1.0, 0.8)),
        ((2.0,), (1.0, 1.0), 1.5, None),
    ],
    ids=[
        "as written",
        "one as written, one as optimized",
        "neither",
        "worse than both",
        "random",
        "as far as inputs that round otherwise",
        "further than these",
        "these are anywhere",
    ],
)
def test_what_a_result_may_agree_with(
    found: tuple[float, ...], optimized: tuple[float, ...], nudged: float, expected: tuple[float, float] | None
) -> None:
    results = [outputs_of(f) for f in found]
    checks = compare(outputs_of(1.0), results, Limit(0.1, 0.0), gives(optimized, nudged), {"x": X})
    assert [(c.error, c.tolerance) for c in checks] == ([] if expected is None else [pytest.approx(expected)])


def test_what_the_optimizer_changes_counts_as_rounding_up_to_a_share() -> None:
    (check,) = compare(outputs_of(1.0), [outputs_of(2.0)], Limit(1e-3, 0.0), gives((1.5, 1.5)), {"x": X})
    assert (check.error, check.tolerance) == pytest.approx((1 / 3, 0.08))
