"""Norms over the last axis in the forms that exporters and people write them, and what is no norm."""

from __future__ import annotations

import pytest

from tests.helpers.graphs import idioms
from tests.helpers.norm_graphs import CENTRED, CONSTANTS, ROOT, reduce

WEIGHTS = {"gamma": (64,), "beta": (64,), "gamma3": (1, 1, 64), "beta3": (1, 1, 64)}
LAYER_NORM = {
    "product": CENTRED + ROOT + "u = Div (d, s) g = Mul (u, gamma) y = Add (g, beta)",
    "power": "m = Mean (x) d = Sub (x, m) q = Pow (d, two) v = Mean (q) " + ROOT + "u = Div (d, s) y = Mul (gamma, u)",
    "bare": CENTRED + ROOT + "y = Div (d, s)",
    "reciprocal": CENTRED + ROOT + "r = Reciprocal (s) u = Mul (r, d) g = Mul (gamma, u) y = Add (beta, g)",
    "one over": CENTRED + ROOT + "r = Div (one, s) u = Mul (d, r) g = Mul (u, gamma) y = Add (g, beta)",
    "root of the inverse": CENTRED + "e = Add (v, eps) r = Reciprocal (e) s = Sqrt (r) y = Mul (d, s)",
    "power -0.5": CENTRED + "e = Add (eps, v) r = Pow (e, minus_half) u = Mul (d, r) y = Mul (u, gamma)",
    "power 0.5": CENTRED + "e = Add (v, eps) s = Pow (e, half) u = Div (d, s) g = Mul (u, gamma) y = Add (g, beta)",
    "sum over n": "t = Total (x) m = Div (t, n) d = Sub (x, m) q = Mul (d, d) w = Total (q) v = Mul (w, inverse_n) "
    + ROOT
    + "u = Div (d, s) g = Mul (u, gamma) y = Add (g, beta)",
    "sum of squares": "m = Mean (x) d = Sub (x, m) w = Squares (d) v = Div (w, n) " + ROOT + "y = Div (d, s)",
    "two differences": "m = Mean (x) d = Sub (x, m) f = Sub (x, m) q = Mul (f, f) v = Mean (q) "
    + ROOT
    + "y = Div (d, s)",
    "mean of squares": "m = Mean (x) d = Sub (x, m) p = Mul (x, x) q = Mean (p) f = Mul (m, m) v = Sub (q, f) "
    + ROOT
    + "u = Div (d, s) g = Mul (u, gamma) y = Add (g, beta)",
    "mean of squares, at least 0": "m = Mean (x) d = Sub (x, m) p = Pow (x, two) q = Mean (p) f = Pow (m, two) "
    "z = Sub (q, f) v = Max (zero, z) e = Add (v, eps) s = Sqrt (e) r = Reciprocal (s) g = Mul (r, gamma) "
    "u = Mul (d, g) y = Add (u, beta)",
    "mean of squares, rectified": "m = Mean (x) d = Sub (x, m) p = Mul (x, x) q = Mean (p) f = Mul (m, m) "
    "z = Sub (q, f) v = Relu (z) " + ROOT + "y = Div (d, s)",
    "as a batch norm": CENTRED + ROOT + "r = Reciprocal (s) g = Mul (r, gamma) a = Mul (x, g) c = Mul (m, g) "
    "o = Sub (beta, c) y = Add (a, o)",
    "gain first": CENTRED + ROOT + "r = Reciprocal (s) g = Mul (gamma, r) u = Mul (g, d) y = Add (u, beta)",
    "scaled before": CENTRED + ROOT + "g = Mul (gamma, d) u = Div (g, s) y = Add (u, beta)",
    "weights of rank 3": CENTRED + ROOT + "u = Div (d, s) g = Mul (u, gamma3) y = Add (g, beta3)",
    "casts": "h = Cast <to = 11> (x) m = Mean (h) d = Sub (h, m) q = Mul (d, d) v = Mean (q) e = Add (v, small) "
    "s = Sqrt (e) u = Div (d, s) f = Cast <to = 1> (u) g = Mul (f, gamma) y = Add (g, beta)",
    "mean variance": "y = MeanVarianceNormalization <axes = [-1]> (x)",
}


@pytest.mark.parametrize("opset", [13, 18])
@pytest.mark.parametrize("body", LAYER_NORM.values(), ids=LAYER_NORM)
def test_layer_norm(body: str, opset: int) -> None:
    constants = CONSTANTS + " small = Constant <value = double {1e-5}> () "
    assert idioms(constants + reduce(body, opset), WEIGHTS, opset) == {"LayerNorm": 1}


@pytest.mark.parametrize(
    ("opset", "mean"), [(11, "<axes = [-1], keepdims = 0> ({})"), (18, "<keepdims = 0> ({}, axes)")]
)
def test_moments_whose_axis_comes_back_afterwards(opset: int, mean: str) -> None:
    back = "Unsqueeze <axes = [2]> ({})" if opset < 13 else "Unsqueeze ({}, axes)"
    body = f"""axes = Constant <value = int64[1] {{-1}}> () t = ReduceMean {mean.format("x")} m = {back.format("t")}
        d = Sub (x, m) q = Mul (d, d) w = ReduceMean {mean.format("q")} v = {back.format("w")} {ROOT} y = Div (d, s)"""
    assert idioms(f"{CONSTANTS} {body}", opset=opset) == {"LayerNorm": 1}


@pytest.mark.parametrize(
    "variance",
    [
        "w = ReduceMean <keepdims = 0> (q, axes) v = Reshape (w, rows)",
        "w = ReduceMean <keepdims = 0> (q, axes) r = Reshape (w, rows) v = Expand (r, rows)",
        "t = ReduceSum <keepdims = 0> (q, axes) r = Reshape (t, rows) v = Div (r, n)",
    ],
    ids=["reshaped", "expanded", "sum"],
)
def test_a_variance_with_a_mean_of_its_own(variance: str) -> None:
    """As exporters write variance and mean in half precision: the one in single precision, the other not."""
    body = f"""{CONSTANTS} axes = Constant <value = int64[1] {{-1}}> ()
        rows = Constant <value = int64[3] {{2, 8, 1}}> () m = ReduceMean (x, axes) h = Cast <to = 1> (x)
        k = ReduceMean (h, axes) c = Sub (h, k) q = Mul (c, c)
        {variance} b = Cast <to = 16> (v) d = Sub (x, m) small = Cast <to = 16> (eps)
        e = Add (b, small) s = Sqrt (e) y = Div (d, s)"""
    found = idioms(body, opset=18, inputs="bfloat16[2, 8, 64] x", outputs="bfloat16[2, 8, 64] y")
    assert found == {"LayerNorm": 1}


def test_a_mean_that_is_taken_before_a_transpose() -> None:
    body = f"""{CONSTANTS} m = ReduceMean <axes = [1]> (x) c = Sub (x, m) d = Transpose <perm = [0, 2, 3, 1]> (c)
        q = Mul (d, d) v = ReduceMean <axes = [-1]> (q) {ROOT} u = Div (d, s) g = Mul (u, gamma) y = Add (g, beta)"""
    found = idioms(body, WEIGHTS, 17, "float[b, 64, 6, 6] x", "float[b, 6, 6, 64] y")
    assert found == {"LayerNorm": 1}


@pytest.mark.parametrize(
    ("body", "name"),
    [
        ("y = LayerNormalization (x, gamma, beta)", "LayerNorm"),
        ("y = LayerNormalization <axis = 2> (x, gamma)", "LayerNorm"),
        ("y, a, b, t = com.microsoft.SkipLayerNormalization (x, skip, gamma, beta)", "LayerNorm"),
        ("y = com.microsoft.SkipLayerNormalization (x, skip, gamma, beta, beta)", "LayerNorm"),
        ("y = SimplifiedLayerNormalization (x, gamma)", "RMSNorm"),
        ("y = com.microsoft.SkipSimplifiedLayerNormalization (x, skip, gamma)", "RMSNorm"),
    ],
)
def test_norms_as_one_operator(body: str, name: str) -> None:
    found = idioms(body, WEIGHTS, inputs="float[2, 8, 64] x, float[2, 8, 64] skip", outputs="float[2, 8, 64] y")
    assert found == {name: 1}


def test_rms_normalization() -> None:
    assert idioms("y = RMSNormalization (x, gamma)", WEIGHTS, 23) == {"RMSNorm": 1}


SQUARED = "q = Mul (x, x) v = Mean (q) "
RMS_NORM = {
    "division": SQUARED + ROOT + "u = Div (x, s) y = Mul (u, gamma)",
    "power": "q = Pow (x, two) v = Mean (q) " + ROOT + "r = Reciprocal (s) u = Mul (x, r) y = Mul (gamma, u)",
    "bare": SQUARED + ROOT + "y = Div (x, s)",
    "power -0.5": SQUARED + "e = Add (v, eps) r = Pow (e, minus_half) u = Mul (x, r) y = Mul (gamma, u)",
    "at least epsilon": SQUARED + "e = Max (v, eps) s = Sqrt (e) r = Reciprocal (s) y = Mul (x, r)",
    "clipped": SQUARED + "e = Clip (v, eps) s = Sqrt (e) u = Div (x, s) y = Mul (u, gamma)",
    "no epsilon": SQUARED + "s = Sqrt (v) r = Reciprocal (s) u = Mul (x, r) y = Mul (u, gamma)",
    "no epsilon, divided": SQUARED + "s = Sqrt (v) u = Div (x, s) y = Mul (u, gamma)",
    "one plus weight": SQUARED + ROOT + "u = Div (x, s) g = Add (gamma, one) y = Mul (u, g)",
    "gain first": SQUARED + ROOT + "r = Reciprocal (s) g = Mul (gamma, r) y = Mul (x, g)",
    "scaled before": SQUARED + ROOT + "g = Mul (gamma, x) y = Div (g, s)",
    "sum of squares": "t = Squares (x) v = Mul (t, inverse_n) " + ROOT + "u = Div (x, s) y = Mul (u, gamma)",
    "length over root n": "l = Length (x) m = Mul (l, inverse_root_n) e = Add (m, eps) u = Div (x, e) "
    "y = Mul (u, gamma)",
    "length divided": "l = Length (x) m = Div (l, root_n) e = Max (m, eps) u = Div (x, e) y = Mul (gamma, u)",
    "unit vector": "l = Length (x) e = Clip (l, eps) u = Div (x, e) k = Mul (u, root_n) y = Mul (k, gamma)",
    "unit vector, expanded": "l = Length (x) e = Max (l, eps) sh = Shape (x) w = Expand (e, sh) u = Div (x, w) "
    "k = Mul (root_n, u) y = Mul (k, gamma)",
    "unit vector operator": "u = LpNormalization <axis = 2, p = 2> (x) k = Mul (u, root_n) y = Mul (k, gamma)",
    "unit vector, weighted first": "l = Length (x) e = Clip (l, eps) u = Div (x, e) g = Mul (gamma, u) "
    "y = Mul (g, root_n)",
    "casts": "h = Cast <to = 11> (x) q = Mul (h, h) v = Mean (q) e = Add (v, small) s = Sqrt (e) u = Div (h, s) "
    "f = Cast <to = 1> (u) y = Mul (f, gamma)",
}


@pytest.mark.parametrize(
    "second",
    [
        "q2 = Pow (d, two) v2 = Mean (q2) e2 = Add (v2, small) s2 = Sqrt (e2) u2 = Div (d, s2) g2 = Mul (u2, gamma3) ",
        "g2 = Mul (gamma3, u) ",
    ],
    ids=["deviation", "standardized"],
)
def test_norms_share_what_they_are_computed_from(second: str) -> None:
    """As exporters write two norms of one value side by side."""
    small = " small = Constant <value = float {1e-4}> () "
    first = CENTRED + ROOT + "u = Div (d, s) g = Mul (u, gamma) a = Add (g, beta) "
    body = first + second + "b = Add (g2, beta3) y = Mul (a, b)"
    assert idioms(CONSTANTS + small + reduce(body, 17), WEIGHTS, 17) == {"LayerNorm": 2}


@pytest.mark.parametrize("opset", [13, 18])
@pytest.mark.parametrize("body", RMS_NORM.values(), ids=RMS_NORM)
def test_rms_norm(body: str, opset: int) -> None:
    constants = CONSTANTS + " small = Constant <value = double {1e-6}> () "
    assert idioms(constants + reduce(body, opset), WEIGHTS, opset) == {"RMSNorm": 1}


@pytest.mark.parametrize(
    "body",
    [
        "m = Mean (x) d = Sub (x, m) q = Mul (d, d) t = Total (q) v = Div (t, n1) " + ROOT + "y = Div (d, s)",
        "m = Mean (x) d = Sub (x, m) q = Mul (d, x) v = Mean (q) " + ROOT + "y = Div (d, s)",
        "m = Mean (x) d = Sub (x, m) q = Mul (d, d) v = Mean (q) e = Add (v, big) s = Sqrt (e) y = Div (d, s)",
        "m = Mean (x) d = Sub (x, m) q = Mul (x, x) v = Mean (q) e = Add (v, eps) s = Sqrt (e) y = Div (d, s)",
        "q = Mul (x, x) t = Total (q) v = Div (t, n1) " + ROOT + "y = Div (x, s)",
        "l = Length (x) e = Max (l, eps) u = Div (x, e) y = Mul (u, n)",
        "a = Abs (x) v = Mean (a) " + ROOT + "y = Div (x, s)",
    ],
)
@pytest.mark.parametrize("opset", [13, 18])
def test_what_is_no_norm(body: str, opset: int) -> None:
    assert idioms(f"{CONSTANTS} {reduce(body, opset)}", opset=opset) == {}


def test_moments_over_different_axes_make_no_norm() -> None:
    first, second = "ReduceMean <axes = [-1]>", "ReduceMean <axes = [-2, -1]>"
    for a, b in ((first, second), (second, first)):
        body = f"{CONSTANTS} m = {a} (x) d = Sub (x, m) q = Mul (d, d) v = {b} (q) {ROOT} y = Div (d, s)"
        assert "LayerNorm" not in idioms(body)


def test_a_gain_that_the_model_computes_is_outside_of_the_norm() -> None:
    """Adaptive norms: the norm is bare, its modulation another matter."""
    body = f"{CONSTANTS} {reduce(CENTRED, 13)} {ROOT} u = Div (d, s) g = Mul (u, scale) y = Add (g, shift)"
    inputs = "float[batch, seq, 64] x, float[batch, 1, 64] scale, float[batch, 1, 64] shift"
    assert idioms(body, opset=13, inputs=inputs) == {"LayerNorm": 1}


def test_a_weight_that_is_a_graph_input_is_still_the_norms() -> None:
    body = f"{CONSTANTS} {reduce(SQUARED, 13)} {ROOT} u = Div (x, s) y = Mul (u, scale)"
    assert idioms(body, opset=13, inputs="float[batch, seq, 64] x, float[64] scale") == {"RMSNorm": 1}


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("s = Div (x, n) t = Tanh (s) y = Mul (n, t)", {"Softcap": 1}),
        ("s = Mul (inverse_n, x) t = Tanh (s) y = Mul (t, n)", {"Softcap": 1}),
        ("s = Div (x, n) t = Tanh (s) y = Mul (t, root_n)", {}),
        ("s = Mul (x, half) t = Tanh (s) y = Mul (t, root_n)", {}),
    ],
)
def test_softcap(body: str, found: dict[str, int]) -> None:
    assert idioms(f"{CONSTANTS} {body}") == found
