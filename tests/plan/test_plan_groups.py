"""Stages that one kernel could run together are told in the plan, and only those."""

from __future__ import annotations

import pytest

from fusion_cli.plan import plan_region
from fusion_cli.planir.stages import Group
from tests.helpers.region_tools import parsed, whole

X, W = "float[2, 8, 16] x", "float[16, 16] a, float[16, 32] b, float[16, 16] c"
QKV = "q = MatMul (x, a) k = MatMul (x, b) v = MatMul (x, c)"
GATED = "u = MatMul (x, a) g = MatMul (x, c) s = Sigmoid (g) t = Mul (g, s) y = Mul (t, u)"
NORM = "p = MatMul (x, a) y = LayerNormalization (p, s, s)"
CONVS = "c1 = Conv (x, w) r1 = Relu (c1) c2 = Conv (r1, w) r2 = Relu (c2) y = Conv (r2, w)"
HEADS = "float[1, 4, 8, 16] q, float[1, 4, 8, 16] k, float[1, 4, 8, 16] v, float[8, 16] cos"
ROTARY = "r = Mul (q, cos) t = Transpose <perm = [0, 1, 3, 2]> (k) s = MatMul (r, t) p = Softmax (s) y = MatMul (p, v)"
SHARED = f"{ROTARY} z = Neg (r)"
PATH = "p = MatMul (x, a) n = Softmax <axis = -1> (p) m = Add (x, n) q = MatMul (x, c) y = Add (q, m)"


@pytest.mark.parametrize(
    ("inputs", "outputs", "body", "kinds"),
    [
        (f"{X}, {W}", "float[2, 8, 16] q, float[2, 8, 32] k, float[2, 8, 16] v", QKV, {"products": 3}),
        (f"{X}, {W}", "float[2, 8, 16] y", GATED, {"products": 2}),
        (f"{X}, {W}, float[16] s", "float[2, 8, 16] y", NORM, {"rows": 2}),
        ("float[1, 4, 8, 8] x, float[4, 4, 1, 1] w", "float[1, 4, 8, 8] y", CONVS, {"convolutions": 3}),
        (HEADS, "float[1, 4, 8, 16] y", ROTARY, {"prologue": 2}),
        (HEADS, "float[1, 4, 8, 16] y, float[1, 4, 8, 16] z", SHARED, {}),
        (f"{X}, {W}", "float[2, 8, 16] y", PATH, {"rows": 2}),
    ],
    ids=[
        "q k v",
        "gate and up",
        "product and norm",
        "convolutions",
        "rotary",
        "read by others too",
        "a path through another kernel",
    ],
)
def test_groups(inputs: str, outputs: str, body: str, kinds: dict[str, int]) -> None:
    plan = plan_region(whole(parsed(f"g ({inputs}) => ({outputs}) {{ {body} }}", opset=17)))
    assert {g.kind: len(g.stages) for g in plan.groups} == kinds
    assert all(isinstance(g, Group) and g.stages == tuple(sorted(set(g.stages))) for g in plan.groups)
