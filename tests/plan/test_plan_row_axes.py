"""Products of rows whose axes were merged: what follows is computed by their kernel, over the axes there were."""

from __future__ import annotations

import numpy as np
import pytest

from fusion_cli.planir.stages import Linear, Plan, Pointwise, Rowwise
from tests.helpers.region_tools import check_body, check_model, kinds

RNG = np.random.default_rng(7)
SHAPES = {
    "x": (2, 3, 6),
    "w": (6, 8),
    "t": (8, 6),
    "b": (8,),
    "c": (1, 8),
    "z": (2, 3, 8),
    "r": (6, 6),
    "u": (6, 8),
    "g": (8,),
}
ROWS = """rows = Constant <value = int64[2] {-1, 6}> () back = Constant <value = int64[3] {2, 3, 8}> ()
    m = Reshape (x, rows)"""


def plan_of(body: str, outputs: str = "float[2, 3, 8] y") -> Plan:
    """The plan of a model, whose numbers are those of ONNX Runtime."""
    return check_body(f"{ROWS} {body}", outputs, SHAPES, RNG)


@pytest.mark.parametrize(
    "product",
    [
        "p = Gemm (m, w, b)",
        "p = Gemm <transB = 1, alpha = 0.5, beta = 2.0> (m, t, c)",
        "q = MatMul (m, w) p = Add (b, q)",
        "p = MatMul (m, w)",
    ],
)
def test_what_follows_is_the_products(product: str) -> None:
    plan = plan_of(f"{product} s = Reshape (p, back) a = Tanh (s) y = Add (z, a)")
    assert kinds(plan) == [Linear]
    assert plan.tensors[plan.stages[0].stores[0].tensor].shape == (2, 3, 8)


def test_axes_may_be_of_any_size() -> None:
    body = """whole = Shape (x) first = Constant <value = int64[2] {0, 1}> () lead = Gather (whole, first)
        eight = Constant <value = int64[1] {8}> () apart = Concat <axis = 0> (lead, eight)
        rows = Constant <value = int64[2] {-1, 6}> () m = Reshape (x, rows)
        p = Gemm (m, w, b) s = Reshape (p, apart) a = Tanh (s) y = Add (z, a)"""
    shapes = {"x": (2, 3, 6), "w": (6, 8), "b": (8,), "z": (2, 3, 8)}
    arrays = {n: RNG.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    inputs = "float[k, l, 6] x, float[6, 8] w, float[8] b, float[k, l, 8] z"
    assert kinds(check_model(f"g ({inputs}) => (float[k, l, 8] y) {{ {body} }}", arrays)) == [Linear]


def test_so_are_two_products_with_an_activation_between() -> None:
    plan = plan_of(
        """h = Gemm (m, w, b) s = Reshape (h, back) a = Tanh (s) flat = Constant <value = int64[2] {6, 8}> ()
        i = Reshape (a, flat) p = Gemm <transB = 1> (i, u) six = Constant <value = int64[3] {2, 3, 6}> ()
        o = Reshape (p, six) y = Add (o, x)""",
        "float[2, 3, 6] y",
    )
    assert kinds(plan) == [Linear, Linear]


def test_a_norm_after_them_reads_what_the_product_writes() -> None:
    body = "p = Gemm (m, w, b) s = Reshape (p, back) a = Add (s, z) y = LayerNormalization <axis = -1> (a, g)"
    assert kinds(plan_of(body)) == [Linear, Rowwise]


@pytest.mark.parametrize(
    ("body", "outputs"),
    [
        ("p = Gemm (m, w, b) s = Reshape (p, back) y = Tanh (s)", "float[2, 3, 8] y, float[6, 8] p"),
        ("p = Gemm (m, w, b) n = Neg (p) s = Reshape (p, back) y = Tanh (s)", "float[2, 3, 8] y, float[6, 8] n"),
        ("p = Gemm (m, w, u) s = Reshape (p, back) y = Tanh (s)", "float[2, 3, 8] y"),
        (
            """p = Gemm (m, w, b) four = Constant <value = int64[3] {6, 2, 4}> () s = Reshape (p, four)
            y = Tanh (s)""",
            "float[6, 2, 4] y",
        ),
        ("p = Gemm <transA = 1> (r, w, b) s = Reshape (p, back) y = Tanh (s)", "float[2, 3, 8] y"),
    ],
    ids=["an output", "two readers", "another number in each row", "columns split", "columns for rows"],
)
def test_others_stay_products_of_matrices(body: str, outputs: str) -> None:
    plan = plan_of(body, outputs)
    assert kinds(plan)[0] is Linear
    assert Pointwise in kinds(plan)
