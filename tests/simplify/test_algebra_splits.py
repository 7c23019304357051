"""Convolutions whose channels are split: what is left as it is."""

from __future__ import annotations

from functools import partial

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper

from fusion_cli.simplify import Simplified, simplify
from tests.helpers.algebra_models import assert_same_results
from tests.helpers.graphs import parse, read_in

WEIGHTS = {"w": (32, 4, 1, 1), "b": (32,), "w2": (32, 2, 1, 1), "s": (32, 1, 1), "w1": (32, 4, 1)}
SPLIT = "p, q = Split <axis = 1> (r, even) y = Add (p, q)"


def model_of(
    body: str, outputs: str = "float[a, e, f, h] y", inputs: str = "float[2, 4, 5, 6] x", opset: int = 17
) -> onnx.ModelProto:
    model = parse(f"g ({inputs}) => ({outputs}) {{ {body} }}", read_in(body, WEIGHTS), opset)
    sizes = read_in(body, {"even": [16, 16], "odd": [24, 8], "rows": [2, 3], "half": np.float32(0.5)})
    model.graph.initializer.extend(numpy_helper.from_array(np.array(v), k) for k, v in sizes.items())
    return model


def split(model: onnx.ModelProto) -> Simplified:
    found = simplify(ir.from_proto(model), partial(ir.from_proto, model), blocks=True)
    assert_same_results(model, found)
    return found


def test_each_part_has_its_own_numbers() -> None:
    found = split(model_of(f"k = Conv (x, w, b) r = Relu (k) {SPLIT}"))
    assert [n.op_type for n in found.model.graph] == ["Conv", "Relu", "Conv", "Relu", "Add"]
    assert [(r.rule, r.nodes) for r in found.algebra] == [("ConvSplit", ("Conv->k", "Relu->r", "Split->p"))]
    assert [v.shape for n in found.model.graph for v in n.outputs] == [[2, 16, 5, 6]] * 5
    assert sorted(v.shape[0] for v in found.model.graph.initializers.values() if v.shape) == [16] * 4


def test_sizes_may_be_an_attribute() -> None:
    body = "k = Conv (x, w) p, q = Split <axis = 1, split = [16, 16]> (k) y = Add (p, q)"
    assert [r.rule for r in split(model_of(body, opset=11)).algebra] == ["ConvSplit"]


LEFT = {
    "odd parts": "r = Conv (x, w) p, q = Split <axis = 1> (r, odd) t = Relu (p) y = Concat <axis = 1> (t, q)",
    "rows": "r = Conv (x, w) p, q = Split <axis = 2> (r, rows) y = Concat <axis = 2> (q, p)",
    "another reader": f"r = Conv (x, w) {SPLIT.replace('y =', 'z =')} m = ReduceMean <axes = [1]> (r) y = Add (z, m)",
    "another reader of what comes before": (
        f"k = Conv (x, w) r = Relu (k) {SPLIT.replace('y =', 'z =')} m = ReduceMean <axes = [1]> (k) y = Add (z, m)"
    ),
    "numbers by channel": f"k = Conv (x, w) e = Relu (k) r = Mul (e, s) {SPLIT}",
    "a gate of something else": f"k = Conv (x, w) e = Relu (k) o = Tanh (e) g = Sigmoid (k) r = Mul (o, g) {SPLIT}",
    "a gate that others read": (
        f"k = Conv (x, w) g = Sigmoid (k) r = Mul (k, g) {SPLIT.replace('y =', 'z =')} "
        "m = ReduceMean <axes = [1]> (g) y = Add (z, m)"
    ),
    "groups": f"r = Conv <group = 2> (x, w2) {SPLIT}",
    "another operator": f"k = Conv (x, w) r = Softmax <axis = 1> (k) {SPLIT}",
}


@pytest.mark.parametrize("case", LEFT)
def test_convolutions_that_are_left(case: str) -> None:
    model = model_of(LEFT[case])
    found = split(model)
    assert "ConvSplit" not in {r.rule for r in found.algebra}


@pytest.mark.parametrize("seen", ["k", "g", "r", "p"])
def test_what_others_see_is_left(seen: str) -> None:
    body = (
        f"k = Conv (x, w) g = Sigmoid (k) r = Mul (k, g) {SPLIT.replace('y =', 'z =')} t = Relu (z) y = Clip (t, half)"
    )
    found = split(model_of(body, f"float[a, e, f, h] y, float[i, j, l, m] {seen}"))
    assert [r.rule for r in found.algebra] == ["ClipClip"]


def test_weights_that_callers_may_override_of_a_line_or_of_another_type_are_left() -> None:
    body = f"k = Conv (x, w) r = Relu (k) {SPLIT}"
    assert not split(model_of(body, inputs="float[2, 4, 5, 6] x, float[32, 4, 1, 1] w")).algebra
    assert not split(model_of(body.replace("w)", "w1)"), "float[a, e, f] y", "float[2, 4, 5] x")).algebra
    text = f"g (float16[2, 4, 5, 6] x) => (float16[a, e, f, h] y) {{ {body.replace(', even', '')} }}"
    half = parse(text, {"w": WEIGHTS["w"]}, dtype=np.float16)
    assert not simplify(ir.from_proto(half), partial(ir.from_proto, half), blocks=True).algebra


def test_it_is_for_machines_that_take_channels_in_blocks() -> None:
    model = model_of(f"r = Conv (x, w) {SPLIT}")
    assert not simplify(ir.from_proto(model), partial(ir.from_proto, model)).algebra
