"""Activations written out: how HardSwish is named before its opset, and what is another function."""

from __future__ import annotations

import pytest

from tests.helpers.algebra_models import GATE, PAD, assert_left, model_of, operators, same

LEFT = {
    "other bounds": "a = Add (x, three) g = Clip (a, half, six) q = Mul (x, g) y = Div (q, six)",
    "another x": "a = Add (x, three) g = Clip (a, zero, six) r = Relu (x) q = Mul (r, g) y = Div (q, six)",
    "another slope": "g = HardSigmoid (x) y = Mul (x, g)",
    "factors of an activation": "e = Erf (x) a = Mul (x, e) h = Mul (a, half) y = Mul (h, three)",
}


@pytest.mark.parametrize("case", LEFT)
def test_what_would_not_be_the_same_is_left(case: str) -> None:
    assert_left(LEFT[case])


@pytest.mark.parametrize(
    ("opset", "gate", "left"),
    [
        (13, GATE, "Relu HardSigmoid Mul"),
        (9, "a = Add (c, three) g = Clip <min = 0.0, max = 6.0> (a)", "Relu HardSigmoid Mul"),
        (9, "a = Add (c, three) g = Clip <min = 0.0> (a)", "Relu Add Clip Mul Div"),
    ],
)
def test_hard_swish_before_the_opset_that_has_it(opset: int, gate: str, left: str) -> None:
    found = same(model_of(f"c = Relu (x) {gate} q = Mul (c, g) y = Div (q, six)", opset=opset))
    assert operators(found) == left


@pytest.mark.parametrize(("attributes", "left"), [("", "Conv"), (PAD, "BatchNormalization Conv")])
def test_what_follows_a_hard_swish_before_its_opset(attributes: str, left: str) -> None:
    body = f"c = Relu (x) {GATE} q = Mul (c, g) d = Div (q, six) e = Mul (d, half) f = Add (e, m) "
    found = same(model_of(f"{body} y = Conv {attributes} (f, w)", opset=13))
    assert operators(found) == f"Relu HardSigmoid Mul {left}"
