"""What positions say before they are counted: comparisons, tensors looked up place by place, and shapes that are
spread too early."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper

import fusion_cli
from fusion_cli.sessions import open_model
from fusion_cli.simplify import simplify
from fusion_cli.simplify.algebra.numbers import decided, uniform
from fusion_cli.simplify.libraries import infer_shapes
from tests.helpers.algebra_models import operators, same
from tests.helpers.graphs import parse

INTS = "int64 none = {0}, int64 one = {1}, int64 minus = {-1}, int64 ten = {10}, float zero = {0.0}"


def decision(body: str) -> bool | None:
    model = ir.from_proto(parse(f"g (int64 n, int64[k] given) => (bool[m] y) <{INTS}> {{ {body} }}"))
    node = model.graph.outputs[0].producer()
    assert node is not None
    return decided(node)


@pytest.mark.parametrize(
    ("comparison", "expected"),
    [
        ("GreaterOrEqual (c, none)", True),
        ("GreaterOrEqual (c, one)", None),
        ("GreaterOrEqual (none, c)", None),
        ("Greater (c, minus)", True),
        ("Greater (c, none)", None),
        ("Greater (minus, c)", False),
        ("Greater (none, c)", False),
        ("LessOrEqual (none, c)", True),
        ("LessOrEqual (one, c)", None),
        ("LessOrEqual (c, minus)", False),
        ("LessOrEqual (c, none)", None),
        ("Less (minus, c)", True),
        ("Less (none, c)", None),
        ("Less (c, none)", False),
        ("Less (c, one)", None),
        ("Less (c, given)", None),
    ],
)
def test_what_is_counted_is_never_below_where_it_begins(comparison: str, expected: bool | None) -> None:
    assert decision(f"c = Range (none, n, one) y = {comparison}") is expected


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        ("c = Range (one, n, ten)", True),
        ("c = Range (minus, n, one)", None),
        ("c = Range (ten, n, minus)", None),
        ("c = Range (n, n, one)", None),
        ("c = Range (none, n, n)", None),
        ("c = Identity (given)", None),
        ("c = Abs (given)", None),
        ("p = Range (none, n, one) c = Cast <to = 7> (p)", None),
        ("p = Range (none, n, one) c = Unsqueeze (p, one)", True),
    ],
)
def test_how_it_is_counted(made: str, expected: bool | None) -> None:
    assert decision(f"{made} y = GreaterOrEqual (c, none)") is expected


@pytest.mark.parametrize(
    ("to", "bound", "expected"), [("1", "zero", True), ("10", "zero", True), ("6", "none", None), ("3", "none", None)]
)
def test_casts_keep_the_order_unless_they_wrap_around(to: str, bound: str, expected: bool | None) -> None:
    body = f"p = Range (none, n, one) c = Cast <to = {to}> (p) y = GreaterOrEqual (c, {bound})"
    text = f"g (int64 n) => (bool[m] y) <{INTS}> {{ {body} }}"
    model = ir.from_proto(onnx.shape_inference.infer_shapes(parse(text)))
    node = model.graph.outputs[0].producer()
    assert node is not None
    assert decided(node) is expected


@pytest.mark.parametrize(("numbers", "expected"), [([0, 3, 1], True), ([2, -1], None), ([np.nan, 1], None), ([], None)])
def test_constants_are_compared_by_their_least(numbers: list[float], expected: bool | None) -> None:
    model = parse("g (float[k] x) => (bool[m] y) { y = GreaterOrEqual (given, bound) }")
    for name, array in (("given", numbers), ("bound", [0.0])):
        model.graph.initializer.append(numpy_helper.from_array(np.array(array, np.float32), name))
    node = ir.from_proto(model).graph.outputs[0].producer()
    assert node is not None
    assert decided(node) is expected


LOOKED_UP = """shape = Shape ({source}) height = Gather (shape, none) width = Gather (shape, one)
    more = Add (height, one) p = Range ({first}, {end}, one) q = Range (none, width, {step})
    rows = Unsqueeze (p, {rest}) columns = Unsqueeze (q, {before}) both = Max (rows, columns) whole = Shape (both)
    r = Expand (rows, whole) s = Expand (columns, whole) i = Unsqueeze (r, last) j = Unsqueeze (s, last)
    places = Concat <axis = -1> ({order}) y = GatherND (x, places)"""
KINDS = {
    "source": "x",
    "first": "none",
    "end": "height",
    "step": "one",
    "rest": "behind",
    "before": "ahead",
    "order": "i, j",
}
AXES = "int64[1] last = {-1}, int64[3] behind = {1, 2, 3}, int64[3] ahead = {0, 1, 2}, int64[2] next = {1, 2}"


def looked_up(changes: Mapping[str, str], inputs: str = "bool[n, k] x", opset: int = 18) -> onnx.ModelProto:
    body = LOOKED_UP.format(**KINDS | changes)
    return parse(f"g ({inputs}) => (bool[a, b, c, d] y) <int64 two = {{2}}, {INTS}, {AXES}> {{ {body} }}", opset=opset)


def operators_of(model: onnx.ModelProto) -> list[str]:
    return [n.op_type for n in simplify(ir.from_proto(model), lambda: ir.from_proto(model)).model.graph]


def run(model: onnx.ModelProto, feeds: Mapping[str, Any]) -> list[Any]:
    return list(open_model(model.SerializeToString(), use="reference").run(dict(feeds)).values())


@pytest.mark.parametrize("inputs", ["bool[n, k] x", "bool[3, k] x", "bool[1, k] x", "bool[n, 1] x"])
@pytest.mark.parametrize("size", [0, 1, 5])
def test_elements_taken_in_their_turn_are_the_tensor(inputs: str, size: int) -> None:
    model = looked_up({}, inputs)
    assert operators_of(model) == ["Unsqueeze"]
    simplified = ir.to_proto(simplify(ir.from_proto(model), lambda: ir.from_proto(model)).model)
    shape = [size if d.dim_param else d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    x = np.random.default_rng(0).integers(0, 2, shape).astype(np.bool_)
    (expected,), (got,) = run(model, {"x": x}), run(simplified, {"x": x})
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(
    ("changes", "inputs"),
    [
        ({"first": "one"}, "bool[n, k] x"),
        ({"first": "one", "end": "more"}, "bool[n, k] x"),
        ({"step": "two"}, "bool[n, k] x"),
        ({"order": "j, i"}, "bool[n, k] x"),
        ({"order": "j, i"}, "bool[n, n] x"),
        ({"order": "i, i"}, "bool[n, n] x"),
        ({"source": "z"}, "bool[n, k] x, float[n, m] z"),
        ({"order": "i"}, "bool[n, k] x"),
    ],
    ids=["from one", "up to one more", "every other", "turned", "turned square", "the diagonal", "other sizes", "rows"],
)
def test_what_is_taken_otherwise_is_gathered(changes: Mapping[str, str], inputs: str) -> None:
    assert "GatherND" in operators_of(looked_up(changes, inputs))


def test_older_opsets_gather() -> None:
    model = parse(
        """g (bool[n] x) => (bool[m] y) <int64 none = {0}, int64 one = {1}>
        { s = Shape (x) n = Squeeze (s)
        p = Range (none, n, one) i = Unsqueeze <axes = [-1]> (p) y = GatherND (x, i) }""",
        opset=12,
    )
    assert "GatherND" in operators_of(model)


SPREAD = """s = Shape (x) e = Expand (mask, s) h = Sub (unit, e) g = Mul (h, e) a = {reader}
    y = Softmax <axis = -1> (a)"""


@pytest.mark.parametrize(
    ("reader", "mask", "goes"),
    [
        ("Add (x, h)", "float[b, 1, 1, k] mask", True),
        ("Add (h, h)", "float[b, 1, 1, k] mask", False),
        ("MatMul (x, h)", "float[b, 1, 1, k] mask", False),
        ("Add (x, h)", "float[1, k] mask", True),
        ("Add (x, g)", "float[b, 1, 1, k] mask", True),
        ("Add (h, g)", "float[b, 1, 1, k] mask", False),
    ],
    ids=["meets scores", "meets itself", "no elementwise reader", "fewer axes", "by two paths", "nothing of its size"],
)
def test_an_expand_goes_where_its_readers_spread_as_far(reader: str, mask: str, goes: bool) -> None:
    body = SPREAD.format(reader=reader)
    model = parse(f"g (float[b, 3, k, k] x, {mask}) => (float[b, 3, k, k] y) <float unit = {{1.0}}> {{ {body} }}")
    assert ("Expand" not in operators(same(model))) == goes


def test_an_expand_that_is_a_result_stays() -> None:
    model = parse(
        "g (float[b, 3, k, k] x, float[k] m) => (float[b, 3, k, k] y, float[b, 3, k, k] e) "
        "{ s = Shape (x) e = Expand (m, s) y = Add (x, e) }"
    )
    assert "Expand" in operators_of(model)


ENCODER = """agraph (int64[b, s, 32] unused, float[b, s, 32] x, int64[b, s] mask) => (float[b, s, 32] y) <{constants}>
{{
    xs = Shape <start = 1, end = 2> (x)
    length = Squeeze (xs)
    ms = Shape <start = 0, end = 1> (mask)
    batch = Squeeze (ms)
    seen = Cast <to = 9> (mask)
    p = Range (none, batch, one)
    q = Range (none, length, one)
    rows = Unsqueeze (p, behind)
    queries = Unsqueeze (q, around)
    keys = Unsqueeze (q, ahead)
    counted = GreaterOrEqual (queries, none)
    every = And (true, counted)
    both = Max (rows, keys)
    whole = Shape (both)
    r = Expand (rows, whole)
    t = Expand (keys, whole)
    i = Unsqueeze (r, last)
    j = Unsqueeze (t, last)
    places = Concat <axis = -1> (i, j)
    visible = GatherND (seen, places)
    met = And (every, visible)
    added = Where (met, zero, low)
    {layers}
}}"""
LAYER = """q{n} = MatMul ({x}, wq{n}) k{n} = MatMul ({x}, wk{n}) v{n} = MatMul ({x}, wv{n})
    qs{n} = Reshape (q{n}, split) ks{n} = Reshape (k{n}, split) vs{n} = Reshape (v{n}, split)
    qh{n} = Transpose <perm = [0, 2, 1, 3]> (qs{n}) kh{n} = Transpose <perm = [0, 2, 3, 1]> (ks{n})
    vh{n} = Transpose <perm = [0, 2, 1, 3]> (vs{n})
    d{n} = MatMul (qh{n}, kh{n}) e{n} = Mul (d{n}, scale) f{n} = Add (e{n}, added)
    w{n} = Softmax <axis = -1> (f{n}) o{n} = MatMul (w{n}, vh{n})
    u{n} = Transpose <perm = [0, 2, 1, 3]> (o{n}) m{n} = Reshape (u{n}, merge) {y} = Add ({x}, m{n})"""


def encoder() -> onnx.ModelProto:
    """Two layers whose mask torch.export looks up by batch and key, and meets with what is true of every query."""
    constants = (
        "int64 none = {0}, int64 one = {1}, bool true = {1}, int64[3] behind = {1, 2, 3}, "
        "int64[3] around = {0, 1, 3}, int64[3] ahead = {0, 1, 2}, int64[1] last = {-1}, "
        "int64[4] split = {0, 0, 2, 16}, int64[3] merge = {0, 0, 32}, "
        "float zero = {0.0}, float low = {-65504.0}, float scale = {0.25}"
    )
    layers = LAYER.format(n=0, x="x", y="between") + LAYER.format(n=1, x="between", y="y")
    model = parse(ENCODER.format(constants=constants, layers=layers), opset=18)
    del model.graph.input[0]
    rng = np.random.default_rng(0)
    for name in (f"w{kind}{n}" for n in range(2) for kind in "qkv"):
        model.graph.initializer.append(numpy_helper.from_array(rng.normal(size=(32, 32)).astype(np.float32), name))
    return model


def test_the_mask_of_an_encoder_has_a_row_for_all_queries() -> None:
    model = encoder()
    found = simplify(ir.from_proto(model), lambda: ir.from_proto(model)).model
    (mask,) = (node.outputs[0] for node in found.graph if node.op_type == "Where")
    assert mask.shape == ir.Shape(["b", 1, 1, "s"])
    assert not {"GatherND", "Range", "And", "Expand", "GreaterOrEqual"} & {node.op_type for node in found.graph}


@pytest.mark.parametrize(("batch", "length"), [(2, 5), (1, 1), (3, 33)])
def test_an_encoder_computes_what_it_did(batch: int, length: int, tmp_path: Path) -> None:
    """Also where a row of the batch hides all of its keys."""
    model = encoder()
    onnx.save(model, tmp_path / "model.onnx")
    fusion_cli.optimize(tmp_path / "model.onnx", tmp_path / "fused.onnx", targets=["cpu"], verify=False)
    rng = np.random.default_rng(1)
    mask = rng.integers(0, 2, (batch, length))
    mask[-1] = 0
    feeds = {"x": rng.normal(size=(batch, length, 32)).astype(np.float32), "mask": mask}
    (expected,) = run(model, feeds)
    fused = fusion_cli.session(tmp_path / "fused.onnx", providers=["CPUExecutionProvider"])
    (got,) = fused.run(None, feeds)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


PACKED = """shape = Shape (x) n = Gather (shape, {of}) end = Unsqueeze (n, axis) next = Add (n, {more})
    last = Unsqueeze (next, axis) places = Range ({first}, n, {by}) head = Slice (places, start, begin, axis)
    before = Sub (head, {less})
    whole = Concat <axis = 0> ({joined}) later = Slice (whole, begin, last, axis) earlier = Slice (whole, {cut}, axis)
    y = Sub ({difference})"""
AS_IT_IS = {
    "of": "one",
    "more": "one",
    "first": "none",
    "by": "one",
    "less": "one",
    "joined": "before, places",
    "cut": "start, end",
    "difference": "later, earlier",
}


def step_between(**changes: str) -> Any:
    """What is known of the differences between positions and those before them."""
    body = PACKED.format(**AS_IT_IS | changes)
    constants = f"{INTS}, int64 two = {{2}}, int64[1] axis = {{0}}, int64[1] start = {{0}}, int64[1] begin = {{1}}"
    model = ir.from_proto(parse(f"g (float[m, k] x) => (int64[j] y) <{constants}> {{ {body} }}"))
    infer_shapes(model)
    return uniform(model.graph.outputs[0])


def test_positions_differ_by_one_from_those_before_them() -> None:
    assert step_between() == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"less": "two"},
        {"by": "two"},
        {"first": "one"},
        {"more": "two"},
        {"joined": "places, before"},
        {"joined": "before, before"},
        {"cut": "start, last"},
        {"cut": "begin, last"},
        {"difference": "earlier, later"},
        {"difference": "later, places"},
    ],
    ids=" ".join,
)
def test_other_differences_are_not_known(changes: dict[str, str]) -> None:
    assert step_between(**changes) is None


def test_older_opsets_cut_otherwise() -> None:
    """The places of a Slice are attributes there."""
    body = """head = Slice <axes = [0], starts = [0], ends = [1]> (places) before = Sub (head, one)
        whole = Concat <axis = 0> (before, places) later = Slice <axes = [0], starts = [1], ends = [5]> (whole)
        earlier = Slice <axes = [0], starts = [0], ends = [4]> (whole) y = Sub (later, earlier)"""
    text = f"g (int64 x) => (int64[j] y) <{INTS}, int64[4] places = {{0, 1, 2, 3}}> {{ {body} }}"
    model = ir.from_proto(parse(text, opset=9))
    assert uniform(model.graph.outputs[0]) is None


@pytest.mark.parametrize(
    ("made", "number"),
    [
        ("y = Cast <to = 7> (truth)", 1),
        ("y = Cast <to = 7> (lie)", 0),
        ("y = Not (lie)", True),
        ("c = Cast <to = 7> (lie) y = CumSum (c, none)", 0),
        ("c = Cast <to = 7> (truth) y = CumSum (c, none)", None),
        ("c = Cast <to = 7> (lie) s = CumSum (c, none) y = Gather (s, at)", 0),
        ("y = CumSum (given, none)", None),
        ("y = Cast <to = 7> (given)", None),
    ],
)
def test_what_is_counted_of_truth(made: str, number: Any) -> None:
    constants = f"{INTS}, bool[3] truth = {{1, 1, 1}}, bool[3] lie = {{0, 0, 0}}"
    model = ir.from_proto(parse(f"g (int64[k] given, int64[j] at) => (int64[m] y) <{constants}> {{ {made} }}"))
    assert uniform(model.graph.outputs[0]) == number
