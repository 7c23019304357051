"""Weights that are computed from constants at every run, and convolutions whose end is cut off."""

from __future__ import annotations

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
NUMBERS = {"axes": [0, 1], "none": [0], "one": [1], "two": [2], "minus": [-1], "far": [2**40], "half": [2**62]}


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
    assert {"WeightNorm"} == rules(found)
    assert not {"ReduceL2", "ReduceSum", "ReduceSumSquare", "Div"}.intersection(operators(found).split())


def test_weights_of_older_opsets_are_too() -> None:
    found = same(
        model_of(NORM.replace("(v, axes)", "(v)").replace("keepdims", "axes = [0, 1], keepdims") + CONV, opset=13)
    )
    assert "WeightNorm" in rules(found)


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


@pytest.mark.parametrize(
    ("body", "inputs"),
    [
        (f"{NORM} {CONV}", f"{LINES}, float[1, 1, 4] g"),
        (f"w = Exp (v) {CONV}", LINES),
        (f"{NORM} c = Conv <pads = [2, 1]> (x, w) z = ReduceMax <keepdims = 0> (v) y = Add (c, z)", LINES),
        (f"{NORM} c = Conv <pads = [2, 1]> (x, w) z = ReduceMax <keepdims = 0> (l) y = Mul (c, z)", LINES),
        (f"l = ReduceL2 <keepdims = 1> (v) s = Div (g, l) w = Mul (v, s) {CONV}", LINES),
        (f"o = Sub (v, v) l = ReduceL2 <keepdims = 1> (o, axes) w = Div (v, l) {CONV}", LINES),
    ],
    ids=["an input", "no norm", "read elsewhere", "its norm read elsewhere", "over no axes that are named", "infinite"],
)
def test_what_is_no_constant_of_the_layer_is_left(body: str, inputs: str) -> None:
    proto = model_of(body, inputs)
    if inputs != LINES:
        del proto.graph.initializer[[i.name for i in proto.graph.initializer].index("g")]
    assert "WeightNorm" not in rules(simplify(ir.from_proto(proto), lambda: ir.from_proto(proto)))


CUT = "c = Conv <pads = [2, 3]{1}> (x, v) y = Slice (c, none, {0}, two)"


@pytest.mark.parametrize(
    ("body", "inputs", "pads"),
    [
        (CUT.format("minus", ""), LINES, [2, 2]),
        (CUT.format("minus", ", strides = [2]"), LINES, [2, 1]),
        (CUT.format("far", ""), "float[n, 6, 9] x", [2, 3]),
        (CUT.format("two", ""), "float[n, 6, 2] x", [2, 1]),
    ],
    ids=["one", "steps", "nothing", "from the start"],
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
