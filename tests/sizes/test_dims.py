"""Shapes of values as sizes and as numbers; what names may be, and what no model can do with them."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from fusion_cli.graph.index import GraphIndex
from fusion_cli.graph.value_shapes import Shapes
from fusion_cli.sizes.dims import dims_of, number, numbers, shape_of, shown_shape, symbol
from fusion_cli.sizes.parsing import DEEPEST, expression, parse, written
from tests.helpers.graphs import simplified_file

ENDLESS = [
    "9**9**9**9",
    "n**9**9**9",
    "((n**16)**16)**16",
    "2**(2**64)",
    "+".join("n" * 900),
    "-" * 998 + "n",
    "n**" * 300 + "n",
    "(" * 80 + "n" + ")" * 80,
]
NO_EXPRESSIONS = ["output-0_dim0", "16", "a b", "a#b", "1/0", "n/0", "floor()", "Mod(n)", "n if m else k", "True*n",
                  "f(x=1)", "f(*n)", "1.5*n", "n\n*m", "?", "é*2"]  # fmt: skip


@pytest.mark.parametrize("name", ENDLESS + NO_EXPRESSIONS)
def test_what_is_no_expression_is_a_name(name: str) -> None:
    spelled = symbol(name)
    assert spelled.isidentifier()
    assert written(spelled) == name
    assert parse(spelled).factors == (spelled,)


@given(st.text(st.sampled_from("ab9.*/+-%(), ?_"), max_size=30))
def test_any_text_is_some_size(text: str) -> None:
    assert str(parse(text))
    assert symbol(symbol(text)) == symbol(text)
    ir.SymbolicDim(symbol(text)).free_symbols()


@pytest.mark.parametrize("name", ["n", "décalage", "x.45_dim_1", "past + seq", "2*n", "(n - 1)//2 + 1", "Max(2, n)"])
def test_names_and_expressions_stay(name: str) -> None:
    assert symbol(name) == name
    assert expression(name) is not None


def test_brackets_up_to_the_bound_are_read() -> None:
    assert parse("(" * DEEPEST + "n" + ")" * DEEPEST) == parse("n")


@pytest.mark.parametrize("name", ENDLESS[:3])
def test_a_model_with_an_endless_size_is_read(name: str, tmp_path: Path) -> None:
    x, y = (helper.make_tensor_value_info(v, TensorProto.FLOAT, [name, 4]) for v in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    onnx.save(helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 20)]), tmp_path / "m.onnx")
    model = simplified_file(tmp_path / "m.onnx")
    assert shown_shape(model.graph.outputs[0]) == f"[{name},4]"


def test_numbers_of_shapes() -> None:
    sizes = {"n": 7, "past": 3, "whole - size": 5}
    shape = ir.Shape(["n", "2*n + past", "floor((n - 1)/2)", "whole - size", 4])
    value = ir.Value(name="v", shape=shape)
    assert numbers(value, sizes) == (7, 17, 3, 5, 4)
    assert number(ir.SymbolicDim("n + m"), sizes) is None
    assert number(ir.SymbolicDim(None), sizes) is None
    assert numbers(ir.Value(name="v", shape=ir.Shape(["m"])), sizes) is None


def test_unnamed_sizes_differ_and_are_shown_as_unknown() -> None:
    value = ir.Value(name="v", shape=ir.Shape([None, None, "n", 3]))
    shape = shape_of(value)
    assert shape is not None
    assert shape[0] != shape[1]
    assert shape == shape_of(value)
    assert shown_shape(value) == "[?,?,n,3]"
    assert (dims_of(value) or ())[2:] == ("n", 3)
    assert shape_of(ir.Value(name="w")) is None


def test_shapes_that_follow_from_operators(tmp_path: Path) -> None:
    text = """<ir_version: 10, opset_import: ["": 20]>
    g (float[B, S, 8] x, float[T, 8] z, float[8, 8] w) => (float[P, Q, 8] y, float[P, Q, 8] r) {
        a = MatMul (x, w) y = Add (a, z) r = Softmax (y)
    }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    model = simplified_file(tmp_path / "m.onnx")
    shapes = Shapes(GraphIndex(model.graph))
    y, r = model.graph.outputs
    x, z = model.graph.inputs[:2]
    # Which of S and T is 1, if one is, is not known.
    assert shapes.of(y) == shapes.of(r) == shape_of(y)
    assert shapes.of(x) == shape_of(x)
    named = [shapes.with_one_name(v) for v in (x, y)]
    assert named[0] == named[1] != shape_of(y)
    assert (shapes.with_one_name(z) or ())[0] == (named[0] or ())[1]
