"""Convolutions along one axis as those of images: which, what goes along with them, and that the layout takes them."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import numpy_helper

from fusion_cli.simplify import Simplified, simplify
from tests.helpers.algebra_models import assert_same_results
from tests.helpers.graphs import parse, read_in

WEIGHTS = {
    "w": (32, 16, 5),
    "w2": (32, 16, 5),
    "b": (32,),
    "small": (16, 16, 3),
    "small2": (16, 16, 3),
    "point": (16, 16, 1),
    "last": (16, 32, 1),
    "gate": (32, 32, 1),
    "point2": (16, 16, 1),
    "points": (16, 64, 1),
    "odd": (16, 18, 5),
    "flat": (16, 18, 1),
    "few": (8, 16, 5),
    "each": (16, 1, 3),
    "halves": (32, 8, 9),
    "blocks": (32, 16, 5),
    "image": (32, 16, 5, 1),
    "t": (16, 1),
    "u": (1, 16, 1),
    "row": (6,),
}
LINE = "float[2, 16, 11] x"
RESULT = "float[a, d, e] y"


def model_of(body: str, inputs: str = LINE, outputs: str = RESULT, opset: int = 17) -> onnx.ModelProto:
    model = parse(f"g ({inputs}) => ({outputs}) {{ {body} }}", read_in(body, WEIGHTS), opset)
    sizes = read_in(body, {"one": [1]})
    model.graph.initializer.extend(numpy_helper.from_array(np.array(v), k) for k, v in sizes.items())
    return model


def lifted(model: onnx.ModelProto, size: int = 3) -> Simplified:
    found = simplify(ir.from_proto(model), partial(ir.from_proto, model), blocks=True)
    assert_same_results(model, found, size)
    return found


def operators(found: Simplified) -> str:
    return " ".join(n.op_type for n in found.model.graph)


LIFTED = {
    "one": ("y = Conv <pads = [1, 2], strides = [2]> (x, w, b)", "Unsqueeze Conv Squeeze"),
    "padded by name": ('y = Conv <auto_pad = "SAME_LOWER", strides = [2]> (x, w)', "Unsqueeze Conv Squeeze"),
    "with its activation": ("c = Conv (x, w) y = Relu (c)", "Unsqueeze Conv Relu Squeeze"),
    "by channel": ("y = Conv <group = 16> (x, each)", "Unsqueeze Conv Squeeze"),
    "in groups of blocks": (
        "c = Concat <axis = 1> (x, x) y = Conv <group = 2> (c, blocks)",
        "Concat Unsqueeze Conv Squeeze",
    ),
    "a small one before one": (
        "c = Conv (x, small) r = Relu (c) y = Conv (r, w)",
        "Unsqueeze Conv Relu Conv Squeeze",
    ),
    "a small one behind one": (
        "c = Conv <pads = [1, 1]> (x, w) r = Tanh (c) y = Conv (r, last)",
        "Unsqueeze Conv Tanh Conv Squeeze",
    ),
    "two readers": ("p = Conv (x, w) q = Conv (x, w2) y = Mul (p, q)", "Unsqueeze Conv Conv Mul Squeeze"),
    "numbers by channel": (
        "c = Conv (x, small) r = Sigmoid (c) m = Mul (r, t) a = Tanh (m) o = Add (u, a) l = LeakyRelu (o) "
        "y = Conv (l, small2)",
        "Unsqueeze Conv Sigmoid Mul Tanh Add LeakyRelu Conv Squeeze",
    ),
    "a pool": (
        "c = Conv (x, small) p = AveragePool <kernel_shape = [3], pads = [1, 1]> (c) y = Conv (p, small2)",
        "Unsqueeze Conv AveragePool Conv Squeeze",
    ),
    "points before one": ("c = Conv (x, point) r = Relu (c) y = Conv (r, w)", "Unsqueeze Conv Relu Conv Squeeze"),
    "a gate": (
        "c = Conv (x, w) p = GlobalAveragePool (c) g = Conv (p, gate) s = Sigmoid (g) y = Mul (c, s)",
        "Unsqueeze Conv GlobalAveragePool Conv Sigmoid Mul Squeeze",
    ),
    "another operator between": (
        "c = Conv (x, w) k = Softmax <axis = 1> (c) y = Exp (k)",
        "Unsqueeze Conv Squeeze Softmax Exp",
    ),
}


@pytest.mark.parametrize("case", LIFTED)
def test_lines_are_images(case: str) -> None:
    body, expected = LIFTED[case]
    found = lifted(model_of(body))
    assert operators(found) == expected
    assert [r.rule for r in found.algebra] == ["Conv1D"]
    assert {len(v.shape) for n in found.model.graph if n.op_type == "Conv" for v in n.outputs if v.shape} == {4}


LEFT = {
    "points": "c = Concat <axis = 1> (x, x, x, x) y = Conv (c, points)",
    "points behind points": "c = Conv (x, point) r = Relu (c) y = Conv (r, point2)",
    "little work": "y = Conv (x, small)",
    "little work, with an activation": "c = Conv (x, small) y = Relu (c)",
    "few channels": "y = Conv (x, few)",
    "groups of half a block": "y = Conv <group = 2> (x, halves)",
    "what a pool finds": "p = MaxPool <kernel_shape = [2]> (x) y = Relu (p)",
    "others between small ones": "c = Conv (x, small) e = Exp (c) y = Conv (e, small2)",
}


@pytest.mark.parametrize("case", LEFT)
def test_what_is_left(case: str) -> None:
    assert not lifted(model_of(LEFT[case])).algebra


def test_channels_that_would_have_to_be_padded_are_read_more_than_once() -> None:
    inputs = "float[2, 18, 11] x"
    assert [r.rule for r in lifted(model_of("y = Conv (x, odd)", inputs)).algebra] == ["Conv1D", "PadConvChannels"]
    assert not lifted(model_of("y = Conv (x, flat)", inputs)).algebra


def test_images_weights_of_callers_and_other_types_are_left() -> None:
    assert not lifted(model_of("y = Conv (x, image)", "float[2, 16, 11, 7] x", "float[a, d, e, f] y")).algebra
    assert not lifted(model_of("y = Conv (x, w)", f"{LINE}, float[32, 16, 5] w")).algebra
    half = parse(
        f"g ({LINE.replace('float', 'float16')}) => (float16[a, d, e] y) {{ y = Conv (x, w) }}",
        {"w": WEIGHTS["w"]},
        dtype=np.float16,
    )
    assert not simplify(ir.from_proto(half), partial(ir.from_proto, half), blocks=True).algebra


def test_it_is_for_machines_that_take_channels_in_blocks() -> None:
    model = model_of("y = Conv (x, w)")
    assert not simplify(ir.from_proto(model), partial(ir.from_proto, model)).algebra


@pytest.mark.parametrize("opset", [11, 12, 13, 21])
def test_axes_are_written_as_the_opset_has_them(opset: int) -> None:
    found = lifted(model_of("c = Conv (x, w) y = Relu (c)", opset=opset))
    assert operators(found) == "Unsqueeze Conv Relu Squeeze"
    onnx.checker.check_model(ir.to_proto(found.model), full_check=True)


def test_outputs_keep_their_names_and_ranks() -> None:
    body = "c = Conv (x, w) r = Relu (c) y = Exp (r)"
    found = lifted(model_of(body, outputs=f"{RESULT}, float[f, h, i] c, float[j, k, l] r"))
    assert [(v.name, len(v.shape or ())) for v in found.model.graph.outputs] == [("y", 3), ("c", 3), ("r", 3)]
    assert operators(found) == "Unsqueeze Conv Squeeze Relu Squeeze Exp"


def test_a_line_of_which_a_body_reads_the_result() -> None:
    found = lifted(
        model_of(
            "c = Conv (x, w) k = ReduceSum <keepdims = 0> (x) i = Cast <to = 9> (k) y = If (i) "
            "<then_branch = f () => (float[a, d, e] o) { o = Exp (c) }, "
            "else_branch = g () => (float[f, h, j] o) { o = Neg (c) }>"
        )
    )
    assert [r.rule for r in found.algebra] == ["Conv1D"]
    assert operators(found).startswith("Unsqueeze Conv Squeeze")


BRANCHES = (
    "k = ReduceSum <keepdims = 0> (x) i = Cast <to = 9> (k) y = If (i) "
    "<then_branch = f () => (float[a, d, e] o) { o = Conv (x, w, b) }, "
    "else_branch = g () => (float[f, h, j] o) { c = Conv (x, blocks) o = Relu (c) }>"
)


@pytest.mark.parametrize("body", [*(body for body, _ in LIFTED.values() if "Softmax" not in body), BRANCHES])
def test_onnx_runtime_takes_them_into_its_layout(body: str, tmp_path: Path) -> None:
    found = lifted(model_of(body))
    options = ort.SessionOptions()
    options.optimized_model_filepath, options.log_severity_level = str(tmp_path / "optimized.onnx"), 3
    ort.InferenceSession(ir.to_proto(found.model).SerializeToString(), options, ["CPUExecutionProvider"])
    nodes = list(ir.load(tmp_path / "optimized.onnx").graph.all_nodes())
    assert {n.domain for n in nodes if n.op_type in ("Conv", "FusedConv")} == {"com.microsoft.nchwc"}
