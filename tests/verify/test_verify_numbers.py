"""How errors are measured, and how large they may be."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from fusion_cli.verify import largest_error, tolerance


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


def test_narrowest_float_gives_the_tolerance() -> None:
    assert tolerance({"float32", "int64"}) == 1e-3
    assert tolerance({"float32", "float16"}) == 2e-2
    assert tolerance({"bfloat16", "float16", "float32"}) == 8e-2
    assert tolerance({"int64"}) == 1e-3
