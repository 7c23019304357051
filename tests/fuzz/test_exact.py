"""What the fuzzer takes for as exact as ONNX Runtime, and what not."""

from __future__ import annotations

import numpy as np
import pytest

from fusion_cli.verify.whole_model import Case
from tests.fuzz.exact import is_as_exact
from tests.helpers.graphs import parse

X = np.linspace(0.1, 1.3, 24, dtype=np.float32).reshape(2, 3, 4)


@pytest.mark.parametrize(("off", "expected"), [(1e-7, True), (1e-4, False), (np.nan, False)])
def test_double_precision_says_whose_error_is_larger(off: float, expected: bool) -> None:
    model = parse("g (float[2, 3, 4] x) => (float[2, 3, 4] y) { y = Exp (x) }").SerializeToString()
    case = Case({"x": X}, {"y": np.exp(X) + np.float32(1e-6)})
    assert is_as_exact(model, [case], [{"y": np.exp(X) + np.float32(off)}]) is expected


def test_a_reference_that_gives_another_shape_says_nothing() -> None:
    """ONNX's squeezes what it pools."""
    model = parse("g (float[2, 3, 4] x) => (float[2, 3, 1] y) { y = GlobalMaxPool (x) }").SerializeToString()
    largest = X.max(axis=2, keepdims=True)
    assert not is_as_exact(model, [Case({"x": X}, {"y": largest})], [{"y": largest}])


def test_what_iterations_give_lies_along_an_axis_of_its_own() -> None:
    """ONNX's reference puts it one behind the other."""
    body = (
        "b (int64 i, bool go, float[2, 3, 4] s) => (bool more, float[2, 3, 4] t, float[2, 3, 4] u) "
        "{ more = Identity (go) t = Relu (s) u = Exp (s) }"
    )
    model = parse(
        f"g (float[2, 3, 4] x) => (float[2, 3, 4] z, float[n, 2, 3, 4] y) <int64 trips = {{2}}, bool yes = {{1}}> "
        f"{{ z, y = Loop <body = {body}> (trips, yes, x) }}"
    ).SerializeToString()
    results = {"z": X, "y": np.stack([np.exp(X), np.exp(X)])}
    assert is_as_exact(model, [Case({"x": X}, results)], [results])
