"""Gated linear units and feed-forward blocks, and what only looks like one."""

from __future__ import annotations

import pytest

from tests.helpers.graphs import idioms, matches, operators, parse

HALF = {"outputs": "float[batch, seq, 32] y"}
SQUARE = {"a": (64, 64), "b": (64, 64), "c": (64,), "d": (64,), "packed": (64, 128), "bias": (128,), "down": (64, 64)}
NUMBERS = {"half": 0.5, "one": 1.0, "inv": 0.70710678, "k1702": 1.702, "k": 0.044715, "root": 0.79788456, "three": 3.0}
CONSTANTS = " ".join(f"{name} = Constant <value = float {{{value!r}}}> ()" for name, value in NUMBERS.items())
GATES = {
    "SwiGLU": "s = Sigmoid (g) h = Mul (g, s) ",
    "SwiGLU of QuickGELU": "m = Mul (g, k1702) s = Sigmoid (m) h = Mul (s, g) ",
    "GEGLU": "m = Mul (g, inv) e = Erf (m) n = Add (one, e) p = Mul (g, n) h = Mul (p, half) ",
    "GEGLU of tanh": "p = Pow (g, three) q = Mul (p, k) i = Add (g, q) j = Mul (root, i) t = Tanh (j) n = Add (t, one) "
    "o = Mul (g, half) h = Mul (o, n) ",
    "ReGLU": "h = Relu (g) ",
    "GLU": "h = Sigmoid (g) ",
    "Bilinear": "h = Identity (g) ",
}
SOURCES = {
    "two linear layers": "m1 = MatMul (x, a) g = Add (m1, c) m2 = MatMul (x, b) u = Add (d, m2) ",
    "without biases": "u = MatMul (x, b) g = MatMul (x, a) ",
    "split": "w = MatMul (x, packed) z = Add (w, bias) g, u = Split <axis = -1> (z) ",
    "split, gate last": "z = MatMul (x, packed) u, g = Split <axis = 2> (z) ",
    "rows": "flat = Constant <value = int64[2] {-1, 64}> () sh = Shape (x) r = Reshape (x, flat) m1 = MatMul (r, a) "
    "n1 = Add (m1, c) g = Reshape (n1, sh) m2 = MatMul (r, b) u = Reshape (m2, sh) ",
    "every second": "i0 = Constant <value = int64[1] {0}> () i1 = Constant <value = int64[1] {1}> () "
    "i2 = Constant <value = int64[1] {2}> () end = Constant <value = int64[1] {9223372036854775807}> () "
    "last = Constant <value = int64[1] {-1}> () "
    "z = MatMul (x, packed) g = Slice (z, i0, end, last, i2) u = Slice (z, i1, end, last, i2) ",
    "slices": "i0 = Constant <value = int64[1] {0}> () i1 = Constant <value = int64[1] {64}> () "
    "i2 = Constant <value = int64[1] {128}> () last = Constant <value = int64[1] {-1}> () "
    "z = MatMul (x, packed) g = Slice (z, i0, i1, last) u = Slice (z, i1, i2, last) ",
    "slices, gate last": "i0 = Constant <value = int64[1] {0}> () i1 = Constant <value = int64[1] {64}> () "
    "i2 = Constant <value = int64[1] {9223372036854775807}> () last = Constant <value = int64[1] {2}> () "
    "z = MatMul (x, packed) g = Slice (z, i1, i2, last) u = Slice (z, i0, i1, last) ",
}


@pytest.mark.parametrize("product", ["y = Mul (h, u)", "y = Mul (u, h)"])
@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
@pytest.mark.parametrize("gate", GATES, ids=GATES)
def test_gated_units(gate: str, source: str, product: str) -> None:
    found = idioms(f"{CONSTANTS} {source} {GATES[gate]} {product}", SQUARE)
    gated = {k: n for k, n in found.items() if k in {name.split(" ")[0] for name in GATES}}
    assert gated == {gate.split(" ")[0]: 1}
    assert found["Linear"] == (2 if "b)" in source else 1)


LIMITS = {
    "clip": "low = Constant <value = float {-7.0}> () high = Constant <value = float {7.0}> () "
    "gl = Clip (g, , high) ul = Clip (u, low, high) ",
    "least and most": "low = Constant <value = float {-7.0}> () high = Constant <value = float {7.0}> () "
    "gl = Min (high, g) um = Max (u, low) ul = Min (um, high) ",
    "most and least": "low = Constant <value = float {-7.0}> () high = Constant <value = float {7.0}> () "
    "gl = Min (g, high) um = Min (u, high) ul = Max (low, um) ",
}


@pytest.mark.parametrize("limit", LIMITS.values(), ids=LIMITS)
@pytest.mark.parametrize("source", [SOURCES["two linear layers"], SOURCES["split"]], ids=["linears", "split"])
@pytest.mark.parametrize("shift", ["up = Add (ul, one)", "up = Identity (ul)"], ids=["plus one", "as it is"])
def test_gated_units_with_limits(limit: str, source: str, shift: str) -> None:
    gate = f"m = Mul (gl, k1702) s = Sigmoid (m) h = Mul (gl, s) {shift} y = Mul (up, h)"
    assert idioms(f"{CONSTANTS} {source} {limit} {gate}", SQUARE)["SwiGLU"] == 1


@pytest.mark.parametrize("source", [SOURCES["two linear layers"], SOURCES["split"]], ids=["linears", "split"])
def test_gated_units_with_a_limit_on_the_activation(source: str) -> None:
    gate = "s = Sigmoid (g) h = Mul (g, s) hl = Clip (h, , high) ul = Clip (u, low, high) y = Mul (hl, ul)"
    limits = "low = Constant <value = float {-7.0}> () high = Constant <value = float {7.0}> ()"
    assert idioms(f"{CONSTANTS} {source} {limits} {gate}", SQUARE)["SwiGLU"] == 1


@pytest.mark.parametrize(
    "body",
    [
        # A gate of another value, a sum, three parts, an activation on both sides, two slices of three, a gate of the
        # layer's own input.
        "g = MatMul (x, a) n = Neg (x) u = MatMul (n, b) s = Sigmoid (g) h = Mul (g, s) y = Mul (h, u)",
        "g = MatMul (x, a) u = MatMul (x, b) s = Sigmoid (g) h = Mul (g, s) y = Add (h, u)",
        "z = MatMul (x, triple) g, u, v = Split <axis = -1> (z) s = Sigmoid (g) h = Mul (g, s) p = Mul (h, u) "
        "y = Add (p, v)",
        "g = MatMul (x, a) u = MatMul (x, b) s = Sigmoid (g) t = Tanh (u) y = Mul (s, t)",
        "i0 = Constant <value = int64[1] {0}> () i1 = Constant <value = int64[1] {64}> () last = Constant "
        "<value = int64[1] {2}> () i2 = Constant <value = int64[1] {128}> () z = MatMul (x, triple) "
        "g = Slice (z, i0, i1, last) u = Slice (z, i1, i2, last) s = Sigmoid (g) h = Mul (g, s) y = Mul (h, u)",
        "g = MatMul (x, a) s = Sigmoid (g) y = Mul (s, x)",
    ],
)
def test_what_is_no_gated_unit(body: str) -> None:
    found = idioms(body, {**SQUARE, "triple": (64, 192)})
    assert not {name.split(" ")[0] for name in GATES} & set(found)


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_a_gated_feed_forward_is_one_region(source: str) -> None:
    body = f"{source} {GATES['SwiGLU']} p = Mul (h, u) f = MatMul (p, down) y = Add (f, x)"
    model = parse(f"g (float[batch, seq, 64] x) => (float[batch, seq, 64] y) {{ {body} }}", SQUARE)
    regions = operators(matches(model, "FeedForwardBlock"), "FeedForwardBlock")
    whole = max(regions, key=len)
    assert whole[-2:] == ["MatMul", "Add"]
    assert whole.count("MatMul") == (3 if "b)" in source else 2)
    assert matches(model).idioms["FeedForward"] == 1


def test_a_gated_unit_is_one_region() -> None:
    for source, products in ((SOURCES["without biases"], 2), (SOURCES["split"], 1)):
        body = f"{source} {GATES['SwiGLU']} y = Mul (h, u)"
        model = parse(f"g (float[batch, seq, 64] x) => (float[batch, seq, 64] y) {{ {body} }}", SQUARE)
        regions = operators(matches(model, "GatedLinear"), "GatedLinear")
        assert max(ops.count("MatMul") for ops in regions) == products


ROWS = {
    "two linear layers": "m1 = Gemm (r, a, c) g = Reshape (m1, back) m2 = Gemm (r, b) u = Reshape (m2, back) ",
    "split": "z2 = Gemm (r, packed, bias) z = Reshape (z2, wide) g, u = Split <axis = -1> (z) ",
    "rows throughout": "g = Gemm (r, a) u = Gemm (r, b, d) ",
}
SHAPES = (
    "flat = Constant <value = int64[2] {-1, 64}> () back = Constant <value = int64[3] {2, 8, 64}> () "
    "wide = Constant <value = int64[3] {2, 8, 128}> () heads = Constant <value = int64[4] {2, 8, 2, 64}> () "
    "r = Reshape (x, flat) "
)


def of_rows(body: str) -> dict[str, int]:
    three = "float[2, 8, 64]"
    return idioms(f"{SHAPES} {CONSTANTS} {body}", SQUARE, inputs=f"{three} x", outputs=f"{three} y")


@pytest.mark.parametrize("source", ROWS.values(), ids=ROWS)
@pytest.mark.parametrize("gate", ["SwiGLU", "GEGLU", "ReGLU"])
def test_a_feed_forward_of_rows(gate: str, source: str) -> None:
    """Where every linear layer is one of rows, with reshapes on both sides of it."""
    down = "product = Mul (h, u) deep = Reshape (product, flat) f = Gemm (deep, down) y = Reshape (f, back)"
    found = of_rows(f"{source} {GATES[gate]} {down}")
    assert (found[gate], found["FeedForward"], found["Linear"]) == (1, 1, 2 if "packed" in source else 3)


def test_gates_within_heads_are_no_feed_forward() -> None:
    body = f"""z2 = Gemm (r, packed, bias) z = Reshape (z2, heads) g, u = Split <axis = -1> (z) {GATES["SwiGLU"]}
        product = Mul (h, u) deep = Reshape (product, flat) f = Gemm (deep, down) y = Reshape (f, back)"""
    found = of_rows(body)
    assert found["SwiGLU"] == 1
    assert "FeedForward" not in found


CHANNELS = {
    "a sequence": ("float[n, 64, t]", (128, 64, 1), 1),
    "an image": ("float[n, 64, t, t]", (128, 64, 1, 1), -3),
}


@pytest.mark.parametrize(("value", "weight", "axis"), CHANNELS.values(), ids=CHANNELS)
@pytest.mark.parametrize("order", ["g, u", "u, g"])
@pytest.mark.parametrize("gate", ["SwiGLU", "GEGLU", "GLU"])
def test_gated_channels(gate: str, order: str, value: str, weight: tuple[int, ...], axis: int) -> None:
    body = f"{CONSTANTS} z = Conv (x, wide) {order} = Split <axis = {axis}> (z) {GATES[gate]} y = Mul (u, h)"
    assert idioms(body, {"wide": weight}, inputs=f"{value} x", outputs=f"{value} y").get(gate) == 1
