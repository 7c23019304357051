"""What every rule of algebra heeds: who else reads a value, names, and what the rules before it have made."""

from __future__ import annotations

from functools import partial

import onnx_ir as ir
import pytest

from fusion_cli.simplify import simplify
from tests.helpers.algebra_models import GATE, IMAGE, OUT, PAD, model_of, operators, same

TOGETHER = {
    "a gate by name makes an activation": (
        f"c = Relu (x) {GATE} q = Div (g, six) y = Mul (c, q)",
        "Relu HardSwish",
        {"HardSigmoid", "HardSwish"},
    ),
    "two bounds make an activation": (
        "a = Add (x, three) r = Relu (a) g = Min (r, six) q = Mul (x, g) y = Div (q, six)",
        "HardSwish",
        {"ClipClip", "HardSwish"},
    ),
    "an activation keeps its own factor": (
        f"c = Relu (x) {GATE} q = Mul (c, g) d = Div (q, six) y = Mul (d, three)",
        "Relu HardSwish Mul",
        {"HardSwish"},
    ),
    "what a convolution leaves is a batch norm": (
        f"r = Relu (x) q = Mul (r, m) a = Add (q, half) y = Conv {PAD} (a, w)",
        "Relu BatchNormalization Conv",
        {"AffineConv", "BatchNorm"},
    ),
}


@pytest.mark.parametrize("case", TOGETHER)
def test_rules_go_on_where_others_have_been(case: str) -> None:
    body, left, rules = TOGETHER[case]
    found = same(model_of(body))
    assert operators(found) == left
    assert {r.rule for r in found.algebra} == rules


BESIDE = {
    "weights of two": ("c = Conv (x, w) q = Mul (c, s) r = Relu (x) o = Conv (r, w) y = Add (q, o)", 5),
    "a second reader": ("c = Conv (x, w) q = Mul (c, s) y = Sub (q, c)", 3),
    "twice the same": ("c = Conv (x, w) y = Mul (c, c)", 2),
    "a reader in a body": (
        "c = Conv (x, w) q = Mul (c, s) k = ReduceSum <keepdims = 0> (q) i = Cast <to = 9> (k) "
        "e = If (i) <then_branch = f () => (float[a, c, d, e] o) { o = Neg (c) }, "
        "else_branch = g () => (float[a, c, d, e] r) { r = Exp (c) }> y = Add (q, e)",
        6,
    ),
    "a reader in a body alone": (
        "c = Conv (x, w) k = ReduceSum <keepdims = 0> (x) i = Cast <to = 9> (k) "
        "y = If (i) <then_branch = f () => (float[a, c, d, e] o) { o = Mul (c, s) }, "
        "else_branch = g () => (float[a, c, d, e] r) { r = Relu (x) }>",
        4,
    ),
}


@pytest.mark.parametrize("case", BESIDE)
def test_what_others_read_is_left(case: str) -> None:
    body, nodes = BESIDE[case]
    found = same(model_of(body))
    assert len(found.model.graph) == nodes
    assert not found.algebra


def test_results_that_are_outputs_are_left_and_keep_their_names() -> None:
    outputs = "float[a, c, d, e] c, float[a, c, d, e] y"
    found = same(model_of("c = Conv (x, w) q = Mul (c, s) y = Add (q, t)", outputs=outputs))
    assert operators(found) == "Conv Mul Add"
    outputs = "float[a, c, d, e] a, float[f, g, h, i] y"
    found = same(model_of(f"r = Relu (x) q = Mul (r, m) a = Add (q, n) y = Conv {PAD} (a, w)", outputs=outputs))
    assert operators(found) == "Relu Mul Add Conv"
    found = same(model_of("c = Conv (x, w) y = Mul (c, s)"))
    assert [v.name for v in found.model.graph.outputs] == ["y"]


def test_constants_that_callers_may_override_are_none() -> None:
    model = model_of("c = Conv (x, w) y = Mul (c, s)", f"{IMAGE}, float[{OUT}, 1, 1] s")
    assert operators(same(model)) == "Conv Mul"


def test_what_was_applied_is_listed_and_can_be_left_out() -> None:
    model = model_of("c = Conv (x, w) q = Mul (c, s) y = Add (q, t) ")
    (found,) = same(model).algebra
    assert (found.rule, found.places, found.nodes) == ("ConvAffine", 1, ("Conv->c", "Mul->q", "Add->y"))
    plain = simplify(ir.from_proto(model), partial(ir.from_proto, model), algebra=False)
    assert (operators(plain), plain.algebra) == ("Conv Mul Add", ())
