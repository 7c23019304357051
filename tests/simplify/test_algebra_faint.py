"""Weights too small to matter become zeros, wherever only layers and norms read them, and nothing else does."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper

from fusion_cli.simplify import simplify
from tests.helpers.graphs import parse

FAINT, LEAST = np.float32(1e-40), np.float32(2.0**-100)
IMAGE = "float[1, 2, 4, 4] x"
LAYERS = {
    "Conv": (IMAGE, "y = Conv (x, w, b)", (3, 2, 1, 1), (3,)),
    "ConvTranspose": (IMAGE, "y = ConvTranspose (x, w, b)", (2, 3, 2, 2), (3,)),
    "Gemm": ("float[4, 2] x", "y = Gemm (x, w, b)", (2, 3), (3,)),
    "MatMul": ("float[4, 2] x", "y = MatMul (x, w)", (2, 3), ()),
    "BatchNormalization": (
        "float[1, 3, 4, 4] x",
        "r = Relu (x) s = Sigmoid (r) y = BatchNormalization (s, w, b, mean, var)",
        (3,),
        (3,),
    ),
}


def weights_left(
    body: str, arrays: dict[str, np.ndarray], given: str = IMAGE, outputs: str = ""
) -> dict[str, np.ndarray]:
    """Constants that simplification leaves, by name."""

    def model() -> ir.Model:
        proto = parse(f"g ({given}) => (float[a, c, d, e] y{outputs}) {{ {body} }}")
        proto.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in arrays.items())
        onnx.checker.check_model(proto)
        return ir.from_proto(proto)

    found = simplify(model(), model).model.graph
    return {n: v.const_value.numpy() for n, v in found.initializers.items() if v.const_value is not None}


def constants(weight: Sequence[int], bias: Sequence[int], value: np.float32 = FAINT) -> dict[str, np.ndarray]:
    w, b = np.ones(weight, np.float32), np.ones(bias, np.float32)
    w.flat[1] = b.flat[0] = value
    arrays = {"w": w, "mean": np.zeros(3, np.float32), "var": np.array([value, 1, 2], np.float32)}
    return arrays | ({"b": b} if bias else {})


@pytest.mark.parametrize("name", LAYERS)
def test_of_layers_and_norms_faint_weights_and_biases_become_zeros(name: str) -> None:
    given, body, weight, bias = LAYERS[name]
    left = weights_left(body, constants(weight, bias), given)
    assert left["w"].flat[1] == 0
    assert (np.delete(left["w"], 1) == 1).all()
    if bias:
        assert left["b"].tolist() == [0, 1, 1]
    if name == "BatchNormalization":
        assert left["var"][0] == FAINT  # what is divided by stays


@pytest.mark.parametrize("value", [LEAST, -LEAST, np.float32(np.nan), np.float32(np.inf)])
def test_the_smallest_that_matters_stays_and_what_is_no_number_too(value: np.float32) -> None:
    given, body, weight, bias = LAYERS["Conv"]
    left = weights_left(body, constants(weight, bias, value), given)
    np.testing.assert_array_equal(left["w"].flat[1], value)
    np.testing.assert_array_equal(left["b"][0], value)


def test_just_below_it_negative_ones_go_too() -> None:
    given, body, weight, bias = LAYERS["Conv"]
    left = weights_left(body, constants(weight, bias, -np.nextafter(LEAST, np.float32(0))), given)
    assert left["w"].flat[1] == left["b"][0] == 0


@pytest.mark.parametrize(
    "body",
    ["y = Conv (x, w) z = Mul (x, w)", "y = Conv (x, w) z = Identity (w)", "y = Conv (w, v) z = Relu (x)"],
    ids=["read by something else", "an output", "data"],
)
def test_constants_that_are_more_than_weights_stay(body: str) -> None:
    arrays = {"w": constants((3, 2, 1, 1), ())["w"]}
    given = "float[3, 2, 4, 4] x, float[3, 2, 1, 1] v"
    left = weights_left(body, arrays, given, ", float[f, g, h, i] z")
    assert any(FAINT in array for array in left.values())  # an output may be a constant of its own


def test_what_two_layers_read_is_mended_once_for_both() -> None:
    arrays = {"w": constants((3, 2, 1, 1), ())["w"]}
    left = weights_left("c = Conv (x, w) r = Relu (x) d = Conv (r, w) y = Sub (c, d)", arrays)
    assert left["w"].flat[1] == 0


def test_in_double_precision_such_numbers_are_like_any_other() -> None:
    arrays = {"w": np.full((3, 2), float(FAINT))}
    body = "h = Cast <to = 11> (x) c = MatMul (h, w) y = Cast <to = 1> (c)"
    assert (weights_left(body, arrays, "float[1, 1, 4, 3] x")["w"] == float(FAINT)).all()
