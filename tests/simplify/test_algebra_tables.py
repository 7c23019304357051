"""Rows of constant tables: which products take them, which nodes are computed before, and what is left."""

from __future__ import annotations

from functools import partial

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper

from fusion_cli.sessions import open_model
from fusion_cli.simplify import Simplified, simplify
from tests.helpers.graphs import parse, read_in

TABLE = np.random.default_rng(4).normal(size=(5, 3)).astype(np.float32)
CONSTANTS = {
    "table": TABLE,
    "rows": np.arange(5),
    "column": np.arange(5).reshape(5, 1),
    "odd": np.array([0, 1, 2, 4, 3]),
    "from_one": np.arange(1, 6),
    "infinite": np.where(TABLE > 1, np.inf, TABLE).astype(np.float32),
    "shift": np.array([[1, 2, 3]], np.float32),
    "by_place": np.ones((4, 1), np.float32),
    "planes": np.ones((1, 1, 1, 3), np.float32),
    "tenth": np.float32(0.1),
    "huge": np.float32(3e38),
    "large": np.zeros((1 << 15, 3), np.float32),
    "cube": np.ones((5, 3, 2), np.float32),
    "wide": np.ones((5, 20_000), np.float32),
}
ONE_HOT = "f = Cast <to = 1> (h) y = MatMul (f, table)"
INDICES = "int64[n, 4, 1] i"


def model_of(body: str, inputs: str = INDICES, outputs: str = "float[a, b, c] y", opset: int = 17) -> onnx.ModelProto:
    model = parse(f"g ({inputs}) => ({outputs}) {{ {body} }}", opset=opset)
    taken = {v.name for v in model.graph.input}
    arrays = {k: v for k, v in read_in(body, CONSTANTS).items() if k not in taken}
    model.graph.initializer.extend(numpy_helper.from_array(np.asarray(v), k) for k, v in arrays.items())
    return model


def simplified(model: onnx.ModelProto, low: int = 0, high: int = 5) -> Simplified:
    """What is left of a model, which computes the same for indices between these."""
    found = simplify(ir.from_proto(model), partial(ir.from_proto, model))
    rng, feeds = np.random.default_rng(1), {}
    for value in ir.from_proto(model).graph.inputs:
        assert value.shape is not None
        assert value.dtype is not None
        shape = [d if isinstance(d, int) else 3 for d in value.shape]
        feeds[str(value.name)] = rng.integers(low, high, size=shape).astype(value.dtype.numpy())
    protos = (model, ir.to_proto(found.model))
    before, after = (open_model(p.SerializeToString(), use="reference").run(feeds).values() for p in protos)
    for expected, got in zip(before, after, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
    return found


def operators(found: Simplified) -> str:
    return " ".join(n.op_type for n in found.model.graph)


@pytest.mark.parametrize("opset", [13, 17, 21])
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_indices_of_no_row_find_zeros(dtype: str, opset: int) -> None:
    model = model_of(f"h = Equal (i, rows) {ONE_HOT}", INDICES.replace("int64", dtype), opset=opset)
    rows = next(t for t in model.graph.initializer if t.name == "rows")
    rows.CopyFrom(numpy_helper.from_array(np.arange(5, dtype=dtype), "rows"))
    found = simplified(model, -4, 9)
    assert operators(found) == "Squeeze Clip Gather"
    onnx.checker.check_model(ir.to_proto(found.model), full_check=True)
    extremes = np.array([np.iinfo(dtype).min, -6, -1, 0, 4, 5, 6, np.iinfo(dtype).max]).reshape(2, 4, 1)
    for proto in (model, ir.to_proto(found.model)):
        got = open_model(proto.SerializeToString(), use="reference").run({"i": extremes.astype(dtype)})["y"]
        np.testing.assert_array_equal(got.reshape(8, 3), [*[[0] * 3] * 3, TABLE[0], TABLE[4], *[[0] * 3] * 3])


LEFT = {
    "other numbers": f"h = Equal (i, odd) {ONE_HOT}",
    "numbers from one": f"h = Equal (i, from_one) {ONE_HOT}",
    "numbers along another axis": "t = Transpose <perm = [0, 2, 1]> (i) h = Equal (t, column) "
    "k = Transpose <perm = [0, 2, 1]> (h) f = Cast <to = 1> (k) y = MatMul (f, table)",
    "a table with an infinity": f"h = Equal (i, rows) {ONE_HOT.replace('table', 'infinite')}",
    "a large table that others read": (
        f"h = Equal (i, rows) {ONE_HOT.replace('y =', 'z =')} b = Equal (i, odd) e = Cast <to = 1> (b) "
        "m = MatMul (e, table) y = Add (z, m)"
    ).replace("table", "wide"),
    "vectors times vectors": "h = Equal (i, rows) f = Cast <to = 1> (h) y = MatMul (table, f)",
}


@pytest.mark.parametrize("case", LEFT)
def test_products_that_are_left(case: str) -> None:
    body = LEFT[case]
    inputs = "int64[1, 3, 1] i" if case == "vectors times vectors" else INDICES
    assert "OneHotMatMul" not in {r.rule for r in simplified(model_of(body, inputs)).algebra}


def test_indices_are_compared_with_all_numbers_each() -> None:
    assert not simplified(model_of(f"h = Equal (i, rows) {ONE_HOT}", "int64[2, 4, 5] i")).algebra


def test_tables_of_callers_are_left() -> None:
    assert not simplified(model_of(f"h = Equal (i, rows) {ONE_HOT}", f"{INDICES}, float[5, 3] table")).algebra


def test_one_hot_vectors_of_old_opsets_and_floats_are_left() -> None:
    assert not simplified(model_of(f"h = Equal (i, rows) {ONE_HOT}", opset=12)).algebra
    model = model_of(f"k = Cast <to = 1> (i) r = Cast <to = 1> (rows) h = Equal (k, r) {ONE_HOT}")
    assert not simplified(model).algebra


PLACES = "int64[2, 4] i"
COMPUTED = {
    "an activation": "g = Gather (table, i) s = Add (g, shift) t = Sigmoid (s) y = Mul (s, t)",
    "attributes": "g = Gather (table, i) r = LeakyRelu (g) y = Elu <alpha = 0.5> (r)",
    "bounds": "g = Gather (table, i) y = Clip (g, , tenth)",
    "the same rows twice": "g = Gather (table, i) k = Tanh (g) y = Sub (k, g)",
}


@pytest.mark.parametrize("case", COMPUTED)
def test_what_is_computed_of_rows_is_computed_before(case: str) -> None:
    found = simplified(model_of(COMPUTED[case], PLACES))
    assert operators(found) == "Gather"
    assert [r.rule for r in found.algebra] == ["GatherTable"]


def test_one_hot_vectors_lead_to_what_is_computed_of_zeros() -> None:
    body = f"h = Equal (i, rows) {ONE_HOT.replace('y =', 'm =')} s = Add (m, shift) y = Exp (s)"
    assert operators(simplified(model_of(body), -4, 9)) == "Squeeze Clip Gather"


def test_rows_that_are_read_on_the_way_are_where_it_ends() -> None:
    body = "g = Gather (table, i) s = Exp (g) r = Tanh (s) k = ReduceMax <axes = [-1]> (s) y = Mul (r, k)"
    assert operators(simplified(model_of(body, PLACES))) == "Gather Tanh ReduceMax Mul"
    outputs = "float[a, b, c] y, float[d, e, f] s"
    found = simplified(model_of("g = Gather (table, i) s = Exp (g) y = Tanh (s)", PLACES, outputs))
    assert operators(found) == "Gather Tanh"


KEPT = {
    "no activation": "y = Gather (table, i)",
    "columns": "g = Gather <axis = 1> (table, i) y = Exp (g)",
    "another table's rows": "g = Gather (table, i) k = Neg (i) e = Gather (table, k) y = Add (g, e)",
    "rows that others read": "g = Gather (table, i) s = Exp (g) m = ReduceMax <axes = [-1]> (g) y = Mul (s, m)",
    "numbers by place": "g = Gather (table, i) y = Add (g, by_place)",
    "numbers of more axes": "g = Gather (table, i) e = Mul (g, planes) y = ReduceMax <axes = [0], keepdims = 0> (e)",
    "what rounds": "g = Gather (table, i) y = Round (g)",
    "what is too large": "g = Gather (table, i) y = Mul (g, huge)",
    "a large table": "g = Gather (large, i) y = Exp (g)",
    "a table of planes": "g = Gather (cube, i) k = Exp (g) y = ReduceMax <axes = [-1], keepdims = 0> (k)",
}


@pytest.mark.parametrize("case", KEPT)
def test_what_is_computed_of_rows_and_stays(case: str) -> None:
    model = model_of(KEPT[case], PLACES)
    found = simplify(ir.from_proto(model), partial(ir.from_proto, model))
    assert "Gather" in operators(found)
    assert not found.algebra
