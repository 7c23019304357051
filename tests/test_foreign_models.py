"""Models in forms that ONNX Runtime runs though few exporters write them: taken as they are, or refused in words."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto

from fusion_cli.types import Options
from fusion_cli.verify.feeds import make_feeds
from fusion_cli.verify.signature import signature_of
from tests.helpers.foreign import Both, X, refused, same
from tests.helpers.graphs import matches, parse, rejections


def test_nodes_in_any_order(both: Both) -> None:
    model = parse("g (float[2, 3, 4] x) => (float[2, 3, 4] y) { a = Relu (x) b = Neg (a) y = Exp (b) }")
    nodes = list(model.graph.node)[::-1]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    same(both(model), x=X)


def test_the_long_name_of_the_domain(both: Both) -> None:
    model = parse("g (float[n, 64] x) => (float[n, 64] y) { s = Sigmoid (x) y = Mul (x, s) }", opset=13)
    for owner in (*model.opset_import, *model.graph.node):
        owner.domain = owner.domain or "ai.onnx"
    assert matches(model).idioms == {"Silu": 1}
    same(both(model), x=np.ones((2, 64), np.float32))


def test_negative_dimensions_are_unknown_ones(both: Both) -> None:
    model = parse("g (float[2, 3, 4] x) => (float[2, 3, 4] y) { y = Relu (x) }")
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = -1
    same(both(model), x=X)


def test_a_model_that_the_checker_rejects_but_that_runs(both: Both) -> None:
    model = parse("g (float[2, 3, 4] x) => (float[2, 3, 4] y) { r = Relu (x) y = Neg (r) }")
    model.graph.output[0].type.tensor_type.ClearField("shape")
    with pytest.raises(onnx.checker.ValidationError):
        onnx.checker.check_model(model)
    same(both(model), x=X)


def test_a_model_that_is_wrong_about_the_rank_of_its_output(both: Both) -> None:
    model = parse(
        "g (float[2, 3, 4] x) => (float[2, 3, n] y) { i = Constant <value = int64[1] {1}> () s = Shape (x) "
        "d = Gather (s, i) m = Constant <value = int64[1] {-1}> () t = Concat <axis = 0> (d, m) y = Reshape (x, t) }"
    )
    same(both(model), x=X)


def test_a_layer_norm_from_before_opset_17_is_no_function(both: Both) -> None:
    model = parse(
        "g (float[2, 3, 4] x) => (float[2, 3, 4] y) { a = Add (x, x) y = LayerNormalization (a, k) }",
        {"k": (4,)},
        opset=12,
    )
    found = matches(model)
    assert found.idioms == {"LayerNorm": 1}
    assert not [r for r in found.regions if any(n.op_type == "LayerNormalization" for n in r.nodes)]
    assert "FUS115" in {r.code for r in rejections(found)}
    same(both(model), x=X)


def test_maps_are_refused(tmp_path: Path) -> None:
    model = parse("g (float[2] x) => (float[2] y) { y = Relu (x) }")
    kind = model.graph.output[0].type
    kind.ClearField("tensor_type")
    kind.sequence_type.elem_type.map_type.key_type = TensorProto.INT64
    kind.sequence_type.elem_type.map_type.value_type.tensor_type.elem_type = TensorProto.FLOAT
    assert "'y' is a map" in refused(tmp_path, model)
    assert "zipmap=False" in refused(tmp_path, model)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("y = Add (x, gone)", "no node or input makes 'gone', an input of 'Add'"),
        ("z = Relu (x)", "no node or input makes 'y', an output of the graph 'g'"),
        ("a = Add (x, b) b = Neg (a) y = Relu (b)", "need each other's results"),
        ("y = Relu (x) y = Neg (x)", "Output 'y' is redeclared"),
    ],
)
def test_what_is_no_graph(body: str, words: str, tmp_path: Path) -> None:
    assert words in refused(tmp_path, parse(f"g (float[2] x) => (float[2] y) {{ {body} }}"))


def test_a_graph_that_an_unknown_operator_runs(tmp_path: Path) -> None:
    model = parse(
        "g (float[2] x) => (float[2] y) { y = com.microsoft.Search (x) <body: graph = b () => (e) { e = Neg (x) }> }"
    )
    assert "'Search' of 'com.microsoft' runs a graph of its own" in refused(tmp_path, model)


def test_a_body_that_gives_out_a_value_of_another_graph(tmp_path: Path) -> None:
    model = parse(
        "g (float[2] x, bool c) => (float[2] y) { r = Relu (x) y = If (c) "
        "<then_branch: graph = yes () => (r) { }, else_branch: graph = no () => (e) { e = Neg (r) }> }"
    )
    assert "no node or input makes 'r', an output of the graph 'yes'" in refused(tmp_path, model)


def test_sizes_that_cost_much_come_last() -> None:
    model = ir.from_proto(parse("g (float[a, b, 4] x, float[c, d, e] z) => (float[a, b, 4] y) { y = Relu (x) }"))
    tried: list[list[tuple[int, ...]]] = []

    def reject(feeds: dict[str, np.ndarray]) -> str:
        tried.append([v.shape for v in feeds.values()])
        return "" if tried[-1][0] == (1, 1, 4) else "no"

    make_feeds(signature_of(model), Options(), reject)
    assert max(n for shapes in tried for shape in shapes for n in shape) < 1024
