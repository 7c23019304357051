"""Pairs of factors and of bounds: what is left as it is."""

from __future__ import annotations

import pytest

from tests.helpers.algebra_models import assert_left

LEFT = {
    "bounds that rules know": "q = Max (x, minus) y = Min (three, q)",
    "computed bounds": "r = Relu (x) k = ReduceMax <keepdims = 0> (x) y = Clip (r, minus, k)",
    "division of a number": "q = Mul (x, half) y = Div (three, q)",
    "products of a factor that others read": "q = Mul (x, half) r = Mul (q, three) y = Sub (q, r)",
}


@pytest.mark.parametrize("case", LEFT)
def test_what_would_not_be_the_same_is_left(case: str) -> None:
    assert_left(LEFT[case])
