"""Weights that are computed from constants at every run, and convolutions whose end is cut off."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper

from fusion_cli.simplify import Simplified, simplify
from tests.helpers.algebra_models import operators, same
from tests.helpers.graphs import parse

NORM = "l = ReduceL2 <keepdims = 1> (v, axes) s = Div (g, l) w = Mul (v, s)"
CONV = "y = Conv <pads = [2, 1]> (x, w)"
LINES = "float[n, 6, l] x"
SHAPES = {"v": (4096, 6, 4), "g": (1, 1, 4), "b": (4096,)}
"""More than what is folded anyhow."""
NUMBERS = {"axes": [0, 1], "none": [0], "one": [1], "two": [2], "minus": [-1], "half": [2**62]}


def model_of(
    body: str, inputs: str = LINES, outputs: str = "float[a, b, c] y", opset: int = 18, dtype: type = np.float32
) -> onnx.ModelProto:
    rng = np.random.default_rng(0)
    text = f"g ({inputs}) => ({outputs}) {{ {body} }}"
    model = parse(text.replace("float[", "float16[") if dtype is np.float16 else text, {}, opset)
    arrays = {n: rng.standard_normal(s).astype(dtype) for n, s in SHAPES.items()}
    arrays |= {n: np.array(v) for n, v in NUMBERS.items()}
    model.graph.initializer.extend(
        numpy_helper.from_array(a, n) for n, a in arrays.items() if f"({n}" in body or f", {n}" in body
    )
    return model


def rules(found: Simplified) -> set[str]:
    return {r.rule for r in found.algebra}


@pytest.mark.parametrize(
    "body",
    [
        f"{NORM} {CONV}",
        f"{NORM} y = Conv <pads = [2, 1]> (x, w, b)",
        f"q = Mul (v, v) l = ReduceSum <keepdims = 1> (q, axes) r = Sqrt (l) w = Div (v, r) {CONV}",
        f"l = ReduceSumSquare <keepdims = 1> (v, axes) r = Sqrt (l) w = Div (v, r) {CONV}",
        f"{NORM} c = Conv <pads = [2, 1]> (x, w) e = Tanh (x) d = Conv <pads = [2, 1]> (e, w) y = Add (c, d)",
    ],
    ids=["a length", "a bias", "written out", "squares", "two layers"],
)
def test_weights_are_computed_once(body: str) -> None:
    found = same(model_of(body))
    assert {"ConstantFolding"} == rules(found)
    assert not {"ReduceL2", "ReduceSum", "ReduceSumSquare", "Div"}.intersection(operators(found).split())


def test_weights_of_older_opsets_are_too() -> None:
    found = same(
        model_of(NORM.replace("(v, axes)", "(v)").replace("keepdims", "axes = [0, 1], keepdims") + CONV, opset=13)
    )
    assert "ConstantFolding" in rules(found)


def test_half_precision_is_rounded_once() -> None:
    proto = model_of(f"{NORM} {CONV}", dtype=np.float16)
    found = simplify(ir.from_proto(proto), lambda: ir.from_proto(proto))
    conv = next(n for n in found.model.graph if n.op_type == "Conv")
    v, g = (numpy_helper.to_array(i).astype(np.float64) for i in proto.graph.initializer if i.name in "vg")
    want = v * (g / np.sqrt((v**2).sum(axis=(0, 1), keepdims=True)))
    weight = conv.inputs[1]
    assert weight is not None
    assert weight.const_value is not None
    np.testing.assert_array_equal(weight.const_value.numpy(), want.astype(np.float16))


TABLE = """t = LayerNormalization (table, scale, shift) k = MatMul (t, square) b = Add (k, scale)
    r = Reshape (b, split) h = Transpose <perm = [1, 2, 0]> (r) y = MatMul (x, h)"""
RESIZED = """i = Resize <mode = "linear"> (image, , , larger) f = Reshape (i, flat) c = Concat <axis = 0> (f, row)
    p = Add (places, one) q = ScatterElements <axis = 0> (p, one, zero) u = Unsqueeze (q, one)
    m = GatherND (c, u) a = Mul (m, half) z = Expand (half, whole) w = Add (a, z) y = Add (x, w)"""


def with_tables(body: str, inputs: str, dtype: type = np.float32) -> onnx.ModelProto:
    """A graph with a table of 1024 rows and an image of 160 by 160, and integers and small numbers beside."""
    rng = np.random.default_rng(1)
    floats = {"table": (1024, 32), "square": (32, 32), "scale": (32,), "shift": (32,), "image": (1, 1, 160, 160)}
    arrays = {n: rng.standard_normal(s).astype(dtype) for n, s in floats.items()}
    arrays |= {
        "line": rng.standard_normal((1, 800)).astype(dtype),
        "column": rng.standard_normal((82, 1)).astype(dtype),
        "bytes": np.ones((1024, 32), np.int8),
        "large": np.ones((64, 512), dtype),
        "huge": np.full((1024, 32), 3e38, np.float32),
    }
    arrays["table"][::3] = 0
    arrays |= {"none": np.zeros((), np.float64), "low": np.array(-100, dtype)}
    arrays |= {"row": np.ones(1, dtype), "half": np.array([0.5], dtype), "weight": np.ones((1024, 512), dtype)}
    integers = {
        "split": [1024, 4, 8],
        "larger": [1, 1, 180, 180],
        "flat": [-1],
        "one": [1],
        "zero": [0],
        "whole": [9, 1],
    }
    arrays |= {n: np.array(v) for n, v in integers.items()} | {"places": rng.integers(0, 4096, 40)}
    text = f"g ({inputs}) => (float[a, b, c] y, float[1024, d] other) {{ {body} other = MatMul (weight, e) }}"
    model = parse(text.replace("float[", np.dtype(dtype).name.replace("32", "") + "["), {}, 17)
    model.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in arrays.items())
    return model


@pytest.mark.parametrize(
    ("body", "inputs", "left"),
    [
        (TABLE, "float[4, n, 8] x, float[512, m] e", "Reshape Transpose MatMul MatMul"),
        (RESIZED, "float[n, 9, 40] x, float[512, m] e", "Add MatMul"),
        (
            "w = Mul (table, half) v = MatMul (x, w) t = Transpose (w) y = MatMul (v, t)",
            "float[2, n, 1024] x, float[512, m] e",
            "MatMul Transpose MatMul MatMul",
        ),
        (
            "h = Cast <to = 11> (table) e0 = Equal (h, none) d = Not (e0) m = Where (d, low, table) "
            "w = Where (e0, half, m) y = MatMul (x, w)",
            "float[2, n, 1024] x, float[512, m] e",
            "MatMul MatMul",
        ),
    ],
    ids=["projected", "resized and looked up", "read in two ways", "a mask, as of Swin's windows"],
)
def test_tables_are_computed_once(body: str, inputs: str, left: str) -> None:
    found = same(with_tables(body, inputs))
    assert "ConstantFolding" in rules(found)
    assert operators(found) == left


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_a_table_in_16_bits_is_rounded_once(dtype: type) -> None:
    proto = with_tables(TABLE, "float[4, n, 8] x, float[512, m] e", dtype)
    found = simplify(ir.from_proto(proto), lambda: ir.from_proto(proto))
    assert rules(found) == {"ConstantFolding"}
    given = {i.name: numpy_helper.to_array(i).astype(np.float64) for i in proto.graph.initializer}
    centred = given["table"] - given["table"].mean(axis=1, keepdims=True)
    normal = centred / np.sqrt(centred.var(axis=1, keepdims=True) + 1e-5)
    want = (normal * given["scale"] + given["shift"]) @ given["square"] + given["scale"]
    (made,) = (v for v in found.model.graph.initializers.values() if str(v.name).startswith("b_computed"))
    assert made.const_value is not None
    np.testing.assert_array_equal(made.const_value.numpy(), want.astype(dtype))


def test_casts_on_the_way_round_nothing() -> None:
    body = "f = Cast <to = 1> (table) m = Mul (f, f) h = Cast <to = 10> (m) w = Mul (h, scale) y = MatMul (x, w)"
    proto = with_tables(body, "float[4, n, 1024] x, float[512, m] e", np.float16)
    found = simplify(ir.from_proto(proto), lambda: ir.from_proto(proto))
    given = {i.name: numpy_helper.to_array(i).astype(np.float64) for i in proto.graph.initializer}
    (made,) = (v for v in found.model.graph.initializers.values() if str(v.name).startswith("w_computed"))
    assert made.const_value is not None
    want = (given["table"] ** 2 * given["scale"]).astype(np.float16)
    np.testing.assert_array_equal(made.const_value.numpy(), want)


def test_no_more_than_their_share_is_computed() -> None:
    body = "a = Exp (table) b = Tanh (table) k = Neg (table) c = MatMul (x, a) d = MatMul (x, b) "
    body += "g = MatMul (x, k) h = MatMul (x, table)"
    found = same(with_tables(f"{body} y = Sum (c, d, g, h)", "float[2, n, 1024] x, float[512, m] e"))
    assert [r.places for r in found.algebra if r.rule == "ConstantFolding"] == [2]


LEFT = "y = MatMul (x, w)"


@pytest.mark.parametrize(
    "body",
    [
        f"w = Concat <axis = 1> (table, table) {LEFT}",
        f"w = Exp (weight) {LEFT}",
        f"w = Floor (table) {LEFT}",
        f"h = Cast <to = 10> (table) l = Cast <to = 10> (shift) b = Less (h, l) w = Where (b, table, shift) {LEFT}",
        f"i = Cast <to = 7> (large) g = Gather <axis = 0> (scale, i) w = Exp (g) {LEFT}",
        f"w = Mul (column, line) {LEFT}",
        f'i = Resize <mode = "nearest"> (image, , , larger) w = Squeeze (i) {LEFT}',
        f"d = Sub (table, table) q = Div (table, d) w = Mul (q, shift) {LEFT}",
        f"q = Mul (table, huge) w = Div (q, huge) {LEFT}",
        f"c = Cast <to = 1> (bytes) w = Mul (c, half) {LEFT}",
        f"w = com.microsoft.QuickGelu <alpha = 1.7> (table) {LEFT}",
        f"m = Gather <axis = 0> (table, places) w = Exp (m) {LEFT}",
    ],
    ids=[
        "moved alone",
        "more than its share",
        "a jump",
        "a mask of what was rounded",
        "integers of floats",
        "of few numbers",
        "of the nearest",
        "no numbers",
        "too large on the way",
        "quantized",
        "of another domain",
        "beyond the table",
    ],
)
def test_what_is_no_weight_that_is_computed_is_left(body: str) -> None:
    proto = with_tables(body, "float[2, n, 1024] x, float[512, m] e")
    found = simplify(ir.from_proto(proto), lambda: ir.from_proto(proto))
    assert "ConstantFolding" not in rules(found)
    assert len(operators(found).split()) > 2


CUT = "c = Conv <pads = [2, 3]{1}> (x, v) y = Slice (c, none, {0}, two)"


@pytest.mark.parametrize(
    ("body", "inputs", "pads"),
    [
        (CUT.format("minus", ""), LINES, [2, 2]),
        (CUT.format("minus", ", strides = [2]"), LINES, [2, 1]),
        (CUT.format("two", ""), "float[n, 6, 2] x", [2, 1]),
    ],
    ids=["one", "steps", "from the start"],
)
def test_a_convolution_pads_less_where_its_end_is_cut_off(body: str, inputs: str, pads: list[int]) -> None:
    found = same(model_of(body, inputs))
    assert "ConvSlice" in rules(found)
    (conv,) = (n for n in found.model.graph if n.op_type == "Conv")
    assert list(conv.attributes.get_ints("pads") or ()) == pads


@pytest.mark.parametrize(
    ("body", "inputs"),
    [
        (CUT.format("minus", "").replace("none", "one"), LINES),
        (CUT.format("minus", "").replace("two)", "two, two)"), LINES),
        (CUT.format("minus", "").replace("two)", "one)"), LINES),
        (CUT.format("minus", "").replace("[2, 3]", "[2, 0]"), LINES),
        (CUT.format("two", ""), LINES),
        (CUT.format("minus", "").replace("y =", "z =") + " e = ReduceMax <keepdims = 0> (c) y = Add (z, e)", LINES),
        (CUT.format("minus", "").replace("pads = [2, 3]", 'auto_pad = "SAME_UPPER"'), LINES),
    ],
    ids=["its start", "others", "channels", "no padding", "sizes not known", "read twice", "padded by the runtime"],
)
def test_what_else_is_cut_is_left(body: str, inputs: str) -> None:
    assert "ConvSlice" not in rules(same(model_of(body, inputs)))
