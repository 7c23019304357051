"""Products of rows that are transposed first: the transpose is a view of what they make, where that can be read so."""

from __future__ import annotations

import numpy as np
import pytest

from fusion_cli.planir.stages import Attention, Linear, Plan, Pointwise, Rowwise
from tests.helpers.region_tools import check_body, check_model, kinds

RNG = np.random.default_rng(3)
SHAPES = {
    "x": (2, 5, 8),
    "w": (8, 6),
    "t": (6, 8),
    "b": (6,),
    "c": (1,),
    "r": (2, 5, 6),
    "z": (5, 2, 6),
    "v": (6, 4),
    "k": (5, 8, 6),
    "f": (2, 6),
}
TURNED = "m = Transpose <perm = [1, 0, 2]> (x)"


def plan_of(body: str, outputs: str = "float[2, 5, 6] y") -> Plan:
    """The plan of a model, whose numbers are those of ONNX Runtime."""
    return check_body(body, outputs, SHAPES, RNG)


@pytest.mark.parametrize(
    "product",
    [
        "p = MatMul (m, w)",
        "q = MatMul (m, w) p = Add (b, q)",
        "u = Transpose <perm = [1, 0]> (t) q = MatMul (m, u) s = Add (q, b) d = Mul (s, c) p = Tanh (d)",
    ],
)
def test_a_product_between_two_transposes_is_one_kernel(product: str) -> None:
    plan = plan_of(f"{TURNED} {product} back = Transpose <perm = [1, 0, 2]> (p) y = Add (back, r)")
    assert kinds(plan) == [Linear]


def test_several_products_of_the_same_rows_are() -> None:
    body = f"""{TURNED} p = MatMul (m, w) q = Add (p, b) u = Transpose <perm = [1, 0]> (t)
        d = MatMul (m, u) h = Tanh (d)
        a = Transpose <perm = [1, 0, 2]> (q) o = Transpose <perm = [1, 0, 2]> (h) y = Mul (a, o)"""
    assert kinds(plan_of(body)) == [Linear, Linear]


def test_one_product_after_another_is_a_kernel_each() -> None:
    body = f"""{TURNED} p = MatMul (m, w) q = Add (p, b) s = Tanh (q) d = MatMul (s, v)
        y = Transpose <perm = [1, 0, 2]> (d)"""
    assert kinds(plan_of(body, "float[2, 5, 4] y")) == [Linear, Linear]


SEQUENCE_FIRST = """g (float[N, S, 16] x, float[16, 48] w, float[48] b) => (float[N, 2, S, 8] y) {
    m = Transpose <perm = [1, 0, 2]> (x)
    p = MatMul (m, w) q = Add (p, b)
    whole = Shape (x) zero = Constant <value = int64[1] {0}> () one = Constant <value = int64[1] {1}> ()
    n = Gather (whole, zero) s = Gather (whole, one)
    three = Constant <value = int64[1] {3}> () sixteen = Constant <value = int64[1] {16}> ()
    apart = Concat <axis = 0> (s, n, three, sixteen) h = Reshape (q, apart)
    first = Constant <value = int64[1] {0}> () u = Unsqueeze (h, first)
    t = Transpose <perm = [3, 1, 2, 0, 4]> (u) last = Constant <value = int64[1] {-2}> () k = Squeeze (t, last)
    i0 = Constant <value = int64 {0}> () i1 = Constant <value = int64 {1}> () i2 = Constant <value = int64 {2}> ()
    qq = Gather <axis = 0> (k, i0) kk = Gather <axis = 0> (k, i1) vv = Gather <axis = 0> (k, i2)
    two = Constant <value = int64[2] {2, 8}> () heads = Concat <axis = 0> (s, n, two)
    qh = Reshape (qq, heads) kh = Reshape (kk, heads) vh = Reshape (vv, heads)
    qt = Transpose <perm = [1, 2, 0, 3]> (qh) kt = Transpose <perm = [1, 2, 3, 0]> (kh)
    vt = Transpose <perm = [1, 2, 0, 3]> (vh)
    scores = MatMul (qt, kt) weights = Softmax <axis = -1> (scores) y = MatMul (weights, vt)
}"""


@pytest.mark.parametrize("sizes", [(2, 5), (1, 5), (3, 1)])
def test_attention_of_packed_products_with_the_sequence_first_copies_nothing(sizes: tuple[int, int]) -> None:
    shapes = {"x": (*sizes, 16), "w": (16, 48), "b": (48,)}
    plan = check_model(SEQUENCE_FIRST, {n: RNG.standard_normal(s).astype(np.float32) for n, s in shapes.items()})
    assert kinds(plan) == [Linear, Attention]


def test_what_is_stored_transposed_is_copied_before_the_product() -> None:
    """Which may have more columns."""
    assert kinds(plan_of(f"{TURNED} y = MatMul (m, w)", "float[5, 2, 6] y")) == [Pointwise, Linear]


@pytest.mark.parametrize("product", ["p = MatMul (m, k)", "q = MatMul (m, w) p = Add (q, z)"])
def test_other_operands_of_the_rows_stay_beside_them(product: str) -> None:
    plan_of(f"{TURNED} {product} back = Transpose <perm = [1, 0, 2]> (p) y = Add (back, r)")


def test_rows_that_were_columns_stay_so() -> None:
    plan = plan_of("m = Transpose <perm = [1, 2, 0]> (x) y = MatMul (m, f)", "float[5, 8, 6] y")
    assert kinds(plan) == [Pointwise, Linear]


def test_rows_of_other_axes_are_read_where_they_lie() -> None:
    plan = plan_of(f"{TURNED} p = MatMul (m, w) y = Softmax <axis = 1> (p)", "float[5, 2, 6] y")
    assert kinds(plan) == [Linear, Rowwise, Pointwise]  # the last one turns what is stored


@pytest.mark.parametrize(
    "body",
    [
        pytest.param("p = Tanh (m) q = MatMul (m, w) y = Add (q, z) o = MatMul (p, w)", id="others read the rows"),
        pytest.param("o = MatMul (m, w) y = Add (o, z)", id="others read the product"),
        pytest.param("p = MatMul (m, w) y = Tanh (p) q = Transpose <perm = [1, 0, 2]> (p) o = Add (q, r)", id="twice"),
    ],
)
def test_numbers_stay_where_more_is_read(body: str) -> None:
    last = "float[2, 5, 6] o" if "r)" in body else "float[5, 2, 6] o"
    plan_of(f"{TURNED} {body}", f"float[5, 2, 6] y, {last}")
