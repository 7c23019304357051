"""Activations are recognised by what they compute, in whatever arrangement, and nothing else is."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.graphs import matches, parse, rejections

ROOT2, HALF, ROOT_2_PI = "1.41421356", "0.5", "0.79788456"
ARRANGEMENTS = {
    "GeluErf": [
        "s = Div (x, root2) e = Erf (s) a = Add (one, e) m = Mul (a, x) y = Mul (half, m)",
        "s = Mul (x, inv) e = Erf (s) a = Add (e, one) h = Mul (x, half) y = Mul (h, a)",
        "s = Mul (inv, x) e = Erf (s) h = Mul (e, half) a = Add (h, half) y = Mul (a, x)",
        "s = Mul (inv, x) e = Erf (s) h = Mul (x, half) g = Mul (h, e) y = Add (g, h)",
        "n = Neg (x) s = Mul (n, inv) e = Erf (s) c = Sub (one, e) m = Mul (c, x) y = Div (m, two)",
    ],
    "GeluTanh": [
        "c = Pow (x, three) k = Mul (c, cubic) i = Add (x, k) j = Mul (i, root) t = Tanh (j) a = Add (t, one)"
        " h = Mul (x, half) y = Mul (h, a)",
        "q = Mul (x, x) k = Mul (q, cubic) i = Add (one, k) p = Mul (x, root) j = Mul (p, i) t = Tanh (j)"
        " a = Add (t, one) m = Mul (x, a) y = Mul (m, half)",
        "q = Mul (x, x) c = Mul (q, x) k = Mul (cubic, c) i = Add (k, x) p = Mul (i, root) j = Mul (p, two)"
        " t = Sigmoid (j) y = Mul (t, x)",
    ],
    "QuickGelu": [
        "m = Mul (x, k1702) s = Sigmoid (m) y = Mul (x, s)",
        "m = Mul (k1702, x) n = Neg (m) e = Exp (n) a = Add (one, e) y = Div (x, a)",
    ],
    "Silu": [
        "s = Sigmoid (x) y = Mul (s, x)",
        "n = Neg (x) e = Exp (n) a = Add (one, e) y = Div (x, a)",
        "n = Neg (x) e = Exp (n) a = Add (e, one) r = Reciprocal (a) y = Mul (r, x)",
        "h = Mul (x, half) t = Tanh (h) a = Add (t, one) y = Mul (a, h)",
    ],
    "Mish": [
        "p = Softplus (x) t = Tanh (p) y = Mul (x, t)",
        "e = Exp (x) a = Add (e, one) p = Log (a) t = Tanh (p) y = Mul (t, x)",
    ],
    "HardSwish": [
        "s = HardSigmoid <alpha = 0.16666667, beta = 0.5> (x) y = Mul (s, x)",
        "a = Add (x, three) c = Clip (a, zero, six) m = Mul (x, c) y = Div (m, six)",
        "a = Add (x, three) r = Relu (a) c = Min (r, six) d = Div (c, six) y = Mul (d, x)",
    ],
    "Softplus": [
        "y = Softplus (x)",
        "e = Exp (x) a = Add (one, e) y = Log (a)",
    ],
}
OTHERS = [
    # A scale that is not 1/sqrt(2), a cubic term that is off, a slope of its own, halves that do not add up.
    "s = Mul (x, half) e = Erf (s) a = Add (e, one) m = Mul (x, a) y = Mul (m, half)",
    "c = Pow (x, three) k = Mul (c, half) i = Add (x, k) j = Mul (i, root) t = Tanh (j) a = Add (t, one)"
    " h = Mul (x, half) y = Mul (h, a)",
    "m = Mul (x, root2) s = Sigmoid (m) y = Mul (x, s)",
    "s = HardSigmoid <alpha = 0.2, beta = 0.5> (x) y = Mul (s, x)",
    "s = Mul (x, inv) e = Erf (s) a = Add (e, one) m = Mul (x, a) y = Mul (m, two)",
    # The gate belongs to another value.
    "s = Sigmoid (x) z = Tanh (x) w = Exp (z) y = Mul (s, w)",
]
CONSTANTS = (
    f"float root2 = {{{ROOT2}}}, float inv = {{0.70710678}}, float root = {{{ROOT_2_PI}}}, float cubic = {{0.044715}},"
    " float one = {1.0}, float half = {0.5}, float two = {2.0}, float three = {3.0}, float six = {6.0},"
    " float zero = {0.0}, float k1702 = {1.702}"
)


def graph(body: str) -> onnx.ModelProto:
    return parse(f"g (float[B, 8] x) => (float[B, 8] y) <{CONSTANTS}> {{ {body} }}")


def activations(model: onnx.ModelProto) -> dict[str, int]:
    return {k: v for k, v in matches(model).idioms.items() if k in ARRANGEMENTS}


@pytest.mark.parametrize(("idiom", "body"), [(i, b) for i, bodies in ARRANGEMENTS.items() for b in bodies])
def test_every_arrangement_is_recognised(idiom: str, body: str) -> None:
    assert activations(graph(body)).get(idiom) == 1


@pytest.mark.parametrize("body", OTHERS)
def test_another_function_is_not(body: str) -> None:
    assert not activations(graph(body))


RESHAPES = "int64[1] row = {-1}, int64[2] back = {-1, 8}, int64[2] column = {-1, 1}"
RESHAPED = [
    "r = Reshape (x, row) s = Sigmoid (r) b = Reshape (s, back) y = Mul (x, b)",
    "r = Reshape (x, row) s = Sigmoid (r) m = Mul (r, s) y = Reshape (m, back)",
    "r = Reshape (x, row) n = Neg (r) e = Exp (n) b = Reshape (e, back) a = Add (one, b) y = Div (x, a)",
]


def reshaped(shape: str, body: str) -> onnx.ModelProto:
    return parse(f"g (float[{shape}] x) => (float[p, q] y) <{CONSTANTS}, {RESHAPES}> {{ {body} }}")


@pytest.mark.parametrize("body", RESHAPED)
def test_reshapes_inside_change_nothing(body: str) -> None:
    assert activations(reshaped("4, 8", body)) == {"Silu": 1}


def test_a_gate_of_other_elements_is_another_function() -> None:
    """A column times a row is an outer product."""
    assert not activations(reshaped("8, 1", "r = Reshape (x, row) s = Sigmoid (r) y = Mul (x, s)"))
    body = "r = Reshape (x, row) c = Reshape (x, column) s = Sigmoid (r) y = Mul (c, s)"
    assert not activations(reshaped("4, 8", body))


def test_a_mistyped_constant_is_a_near_miss_that_says_where() -> None:
    result = matches(graph(OTHERS[0]))
    (miss,) = [r for r in rejections(result) if r.code == "FUS107"]
    assert miss.rule == "GeluErf", "the one written with the same operators, though SiLU is nearer in value"
    assert "'y' to be" in miss.expected
    assert " at " in miss.found


def test_the_erf_and_tanh_forms_are_told_apart() -> None:
    """They differ by less than 5e-4 everywhere."""
    for idiom, other in (("GeluErf", "GeluTanh"), ("GeluTanh", "GeluErf")):
        for body in ARRANGEMENTS[idiom]:
            assert other not in activations(graph(body))


@pytest.mark.parametrize("op", ["Gelu", "FastGelu", "QuickGelu"])
def test_contrib_operators_are_the_same_idioms(op: str) -> None:
    expected = {"Gelu": "GeluErf", "FastGelu": "GeluTanh", "QuickGelu": "QuickGelu"}[op]
    assert activations(graph(f"y = com.microsoft.{op} (x)")) == {expected: 1}


@pytest.mark.parametrize(
    ("op", "opset", "idiom"),
    [
        ("Gelu", 20, "GeluErf"),
        ('Gelu <approximate = "tanh">', 20, "GeluTanh"),
        ("Mish", 18, "Mish"),
        ("HardSwish", 14, "HardSwish"),
        ("Swish", 24, "Silu"),
        ("Swish <alpha = 1.702>", 24, "QuickGelu"),
    ],
)
def test_operators_of_newer_opsets_are_the_same_idioms(op: str, opset: int, idiom: str) -> None:
    assert activations(parse(f"g (float[B, 8] x) => (float[B, 8] y) {{ y = {op} (x) }}", opset=opset)) == {idiom: 1}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(("idiom", "body"), [(i, b[0]) for i, b in ARRANGEMENTS.items() if i != "HardSwish"])
def test_casts_inside_and_rounded_constants(idiom: str, body: str, dtype: str) -> None:
    """A half-precision model that computes its activation in float32, with constants rounded on the way."""
    last = body.rsplit("y = ", 1)
    inner = f"{last[0]}z = {last[1]}".replace("(x", "(xf").replace("x)", "xf)")
    code = {"float16": 10, "bfloat16": 16}[dtype]
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 17]> g ({dtype}[B, 8] x) => ({dtype}[B, 8] y) <{CONSTANTS}> {{'
        f" xf = Cast <to = 1> (x) {inner} y = Cast <to = {code}> (z) }}"
    )
    for tensor in model.graph.initializer:
        value = np.frombuffer(tensor.raw_data, np.float32) if tensor.raw_data else np.array(tensor.float_data)
        rounded = value.astype(np.float16) if dtype == "float16" else _bfloat16(value.astype(np.float32))
        tensor.CopyFrom(onnx.numpy_helper.from_array(rounded.astype(np.float32).reshape(tensor.dims), tensor.name))
    assert activations(model).get(idiom) == 1


def _bfloat16(value: np.ndarray) -> np.ndarray:
    return ((value.view(np.uint32) + 0x8000) & 0xFFFF0000).view(np.float32)


@given(st.data())
@settings(max_examples=40, deadline=None, derandomize=True)
def test_products_in_any_order(data: st.DataObject) -> None:
    """x, 1/2 and 1 + erf multiplied in a random order and grouping."""
    factors = ["x", "half", "a"]
    lines = []
    while len(factors) > 1:
        left = factors.pop(data.draw(st.integers(0, len(factors) - 1)))
        right = factors.pop(data.draw(st.integers(0, len(factors) - 1)))
        name = "y" if not factors else f"m{len(lines)}"
        lines.append(f"{name} = Mul ({left}, {right})")
        factors.append(name)
    body = "s = Div (x, root2) e = Erf (s) a = Add (e, one) " + " ".join(lines)
    assert activations(graph(body)) == {"GeluErf": 1}


@pytest.mark.parametrize(("op", "idiom"), [("BiasGelu", "GeluErf"), ("FastGelu", "GeluTanh")])
def test_an_operator_that_adds_a_bias_first(op: str, idiom: str) -> None:
    model = parse(f"g (float[B, 8] x) => (float[B, 8] y) {{ y = com.microsoft.{op} (x, bias) }}", {"bias": (8,)})
    assert activations(model) == {idiom: 1}
