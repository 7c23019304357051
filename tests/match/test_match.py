"""What the bundled rules recognise, in the forms that exporters write, and what they must leave alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from fusion_cli.graph.index import GraphIndex
from fusion_cli.graph.value_shapes import Shapes
from fusion_cli.match import find_regions, load_rules
from fusion_cli.match.search import is_number
from tests.helpers.graphs import idioms, matches, operators, parse, rejections, simplified

X = "float[batch, seq, 64] x"
Y = "float[batch, seq, 64] y"


def c(name: str, value: float) -> str:
    return f"{name} = Constant <value = float {{{value}}}> ()"


SQUARES = {"power": f"{c('two', 2.0)} q = Pow (d, two)", "product": "q = Mul (d, d)"}
ROOTS = {
    "divide": "s = Sqrt (e) n = Div (d, s)",
    "reciprocal": "s = Sqrt (e) r = Reciprocal (s) n = Mul (r, d)",
    "one over": f"{c('one', 1.0)} s = Sqrt (e) r = Div (one, s) n = Mul (d, r)",
    "power": f"{c('half', -0.5)} r = Pow (e, half) n = Mul (d, r)",
}


@pytest.mark.parametrize("opset", [13, 18])
@pytest.mark.parametrize("square", SQUARES.values(), ids=SQUARES)
@pytest.mark.parametrize("root", ROOTS.values(), ids=ROOTS)
@pytest.mark.parametrize("centred", [True, False], ids=["LayerNorm", "RMSNorm"])
def test_norms(opset: int, square: str, root: str, centred: bool) -> None:
    axes = "<axes = [-1]> ({})" if opset < 18 else "({}, axis)"
    centre = f"m = ReduceMean {axes.format('x')} d = Sub (x, m)" if centred else "d = Identity (x)"
    body = f"""axis = Constant <value = int64[1] {{-1}}> () {centre} {square} v = ReduceMean {axes.format("q")}
               {c("eps", 1e-5)} e = Add (v, eps) {root} g = Mul (n, gamma) {
        "y = Add (g, beta)" if centred else "y = Identity (g)"
    }"""
    weights = {"gamma": (64,), "beta": (64,)} if centred else {"gamma": (64,)}
    found = idioms(body, weights, opset)
    assert found == {"LayerNorm": 1} if centred else found == {"RMSNorm": 1}


@pytest.mark.parametrize(
    ("body", "count"),
    [
        (
            "m = ReduceMean <axes = [-2]> (x) d = Sub (x, m) q = Mul (d, d) v = ReduceMean <axes = [-2]> (q) {eps} "
            "e = Add (v, eps) s = Sqrt (e) y = Div (d, s)",
            {},
        ),
        (
            "m = ReduceMean <axes = [-1]> (x) d = Sub (x, m) q = Mul (d, d) v = ReduceSum <keepdims = 1> (q, axis) "
            "{eps} e = Add (v, eps) s = Sqrt (e) y = Div (d, s)",
            {},
        ),
        (
            "m = ReduceMean <axes = [-1]> (x) d = Sub (x, m) q = Mul (d, x) v = ReduceMean <axes = [-1]> (q) {eps} "
            "e = Add (v, eps) s = Sqrt (e) y = Div (d, s)",
            {},
        ),
    ],
)
def test_what_is_no_norm(body: str, count: dict[str, int]) -> None:
    prefix = "axis = Constant <value = int64[1] {-1}> () "
    assert idioms(prefix + body.replace("{eps}", c("eps", 1e-5))) == count


HALF, ONE = c("half", 0.5), c("one", 1.0)
ERF = f"{ONE} {HALF} {c('r', 1.4142135)} d = Div (x, r) e = Erf (d) a = Add (e, one)"
TANH = (
    f"{ONE} {HALF} {c('k', 0.044715)} {c('three', 3.0)} {c('r', 0.7978846)} p = Pow (x, three) q = Mul (k, p) "
    "i = Add (q, x) j = Mul (r, i) t = Tanh (j) a = Add (one, t)"
)
OUTER = ["m = Mul (x, a) y = Mul (m, half)", "m = Mul (x, half) y = Mul (a, m)", "m = Mul (half, a) y = Mul (m, x)"]


@pytest.mark.parametrize("outer", OUTER)
@pytest.mark.parametrize(("inner", "name"), [(ERF, "GeluErf"), (TANH, "GeluTanh")])
def test_gelu(inner: str, outer: str, name: str) -> None:
    assert idioms(f"{inner} {outer}")[name] == 1


def test_gelu_with_another_factor_is_not_gelu() -> None:
    assert "GeluErf" not in idioms(f"{ERF.replace('1.4142135', '1.7')} {OUTER[0]}")
    assert "GeluErf" not in idioms(f"{ERF} {OUTER[0]}".replace("0.5", "0.6"))


def test_sigmoid_of_another_value_is_not_silu() -> None:
    assert idioms("s = Sigmoid (x) m = Neg (x) y = Mul (m, s)") == {}


QKV = "float[b, 4, s, 16] q, float[b, 4, s, 16] k, float[b, 4, s, 16] v"
OUT = "float[b, 4, s, 16] y"
KT = "t = Transpose <perm = [0, 1, 3, 2]> (k)"


@pytest.mark.parametrize(
    "body",
    [
        f"{KT} m = MatMul (q, t) p = Softmax <axis = -1> (m) y = MatMul (p, v)",
        f"{KT} {c('d', 4.0)} m = MatMul (q, t) n = Div (m, d) p = Softmax <axis = 3> (n) y = MatMul (p, v)",
        f"{KT} {c('d', 0.5)} a = Mul (q, d) c = Mul (d, t) m = MatMul (a, c) p = Softmax (m) y = MatMul (p, v)",
        f"{KT} {c('cap', 30.0)} m = MatMul (q, t) d = Div (m, cap) h = Tanh (d) n = Mul (h, cap) p = Softmax (n) "
        f"i = IsNaN (p) {c('zero', 0.0)} w = Where (i, zero, p) o = Dropout (w) y = MatMul (o, v)",
    ],
)
def test_attention(body: str) -> None:
    model = parse(f"g ({QKV}) => ({OUT}) {{ {body} }}")
    result = matches(model, "AttentionHeads")
    assert result.idioms["Attention"] == 1
    assert any("Softmax" in ops and ops.count("MatMul") == 2 for ops in operators(result, "AttentionHeads"))


def test_attention_with_masks() -> None:
    body = f"{KT} m = MatMul (q, t) a = Add (mask, m) p = Softmax (a) y = MatMul (p, v)"
    model = parse(f"g ({QKV}, float[b, 1, 1, s] mask) => ({OUT}) {{ {body} }}")
    assert matches(model).idioms["Attention"] == 1
    body = f"{KT} {c('low', -1e9)} m = MatMul (q, t) a = Where (mask, m, low) p = Softmax (a) y = MatMul (p, v)"
    model = parse(f"g ({QKV}, bool[b, 1, s, s] mask) => ({OUT}) {{ {body} }}")
    assert matches(model).idioms["Attention"] == 1


def test_softmax_over_another_axis_is_not_attention_and_says_so() -> None:
    model = parse(f"g ({QKV}) => ({OUT}) {{ {KT} m = MatMul (q, t) p = Softmax <axis = 2> (m) y = MatMul (p, v) }}")
    result = matches(model)
    assert "Attention" not in result.idioms
    misses = [r for r in rejections(result) if r.rule == "Attention"]
    assert ("FUS103", "axis = -2") in [(r.code, r.found) for r in misses]


def test_opset_12_softmax_flattens_from_axis_1() -> None:
    body = f"{KT} m = MatMul (q, t) p = Softmax (m) y = MatMul (p, v)"
    assert "Attention" not in matches(parse(f"g ({QKV}) => ({OUT}) {{ {body} }}", opset=12)).idioms


def test_linear_forms() -> None:
    weights = {"w": (64, 64), "b": (64,)}
    assert idioms("m = MatMul (x, w) y = Add (b, m)", weights) == {"Linear": 1}
    assert idioms("y = MatMul (x, w)", {"w": (64, 64)}) == {"Linear": 1}
    assert idioms("y = Gemm <transB = 1> (x, w, b)", weights, inputs="float[n, 64] x", outputs="float[n, 64] y") == {
        "Linear": 1
    }
    assert idioms("y = MatMul (x, z)", inputs=f"{X}, float[64, 64] z") == {}


FFN = "h = MatMul (x, w) a = Add (h, b) s = Sigmoid (a) y = Mul (a, s)"


def test_linear_with_its_activation_is_one_region() -> None:
    model = parse(f"g ({X}) => ({Y}) {{ {FFN} }}", {"w": (64, 64), "b": (64,)})
    assert operators(matches(model, "LinearActivation"), "LinearActivation") == [["MatMul", "Add", "Sigmoid", "Mul"]]


def test_a_value_that_is_a_graph_output_stays_one() -> None:
    model = parse(f"g ({X}) => ({Y}, float[batch, seq, 64] a) {{ {FFN} }}", {"w": (64, 64), "b": (64,)})
    (region,) = matches(model, "LinearActivation").regions
    assert {v.name for v in region.outputs} == {"a", "y"}


def test_a_value_read_by_a_nested_body_leaves_the_region() -> None:
    branch = (
        "{} = If (flag) <then_branch = t () => (float[batch, seq, 64] u) {{ u = Neg (a) }}, "
        "else_branch = e () => (float[batch, seq, 64] w2) {{ w2 = Abs (a) }}>".format("z")
    )
    model = parse(
        f"g ({X}, bool flag) => ({Y}, float[batch, seq, 64] z) {{ {FFN} {branch} }}", {"w": (64, 64), "b": (64,)}
    )
    regions = [r for r in matches(model, "LinearActivation").regions if len(r.nodes) == 4]
    assert len(regions) == 1
    assert {v.name for v in regions[0].outputs} == {"a", "y"}


def test_a_region_that_needs_its_own_result_is_refused() -> None:
    """The norm's sum goes through a convolution-like detour (a reduction over another axis) and back."""
    body = "h = MatMul (x, w) a = Add (h, b) r = ReduceMax <axes = [1], keepdims = 1> (a) s = Sub (a, r) y = Mul (a, s)"
    model = parse(f"g ({X}) => ({Y}) {{ {body} }}", {"w": (64, 64), "b": (64,)})
    for region in matches(model).regions:
        kinds = {n.op_type for n in region.nodes}
        assert not {"MatMul", "Sub"} <= kinds


def test_fp16_casts_inside_do_not_hide_a_norm() -> None:
    body = f"""f = Cast <to = 1> (x) m = ReduceMean <axes = [-1]> (f) d = Sub (f, m) {SQUARES["power"]}
               v = ReduceMean <axes = [-1]> (q) {c("eps", 1e-5)} e = Add (v, eps) s = Sqrt (e) n = Div (d, s)
               h = Cast <to = 10> (n) g = Mul (h, gamma) y = Add (g, beta)"""
    model = parse(
        f"g (float16[b, s, 64] x) => (float16[b, s, 64] y) {{ {body} }}",
        {"gamma": (64,), "beta": (64,)},
        dtype=np.float16,
    )
    assert matches(model).idioms == {"LayerNorm": 1}


def test_shape_arithmetic_comes_along_as_a_copy() -> None:
    body = """m = MatMul (x, w) sh = Shape (m) i = Constant <value = int64[1] {0}> ()
              j = Constant <value = int64[1] {1}> ()
              b0 = Gather (sh, i) s0 = Gather (sh, j) k = Constant <value = int64[1] {-1}> ()
              t = Concat <axis = 0> (b0, s0, k) a = Sigmoid (m) r = Reshape (a, t) y = Mul (r, r)"""
    model = parse(f"g (float[b, s, 8, 8] x) => (float[b, s, n] y) {{ {body} }}", {"w": (8, 8)})
    for region in matches(model).regions:
        assert all(v.dtype is not None for v in region.outputs)
        assert not any(v.name == "sh" for v in region.outputs)


HALVES = {
    "slices": "zero = Constant <value = int64[1] {0}> () eight = Constant <value = int64[1] {8}> () "
    "end = Constant <value = int64[1] {9223372036854775807}> () last = Constant <value = int64[1] {3}> () "
    "f = Slice (q, zero, eight, last) s = Slice (q, eight, end, last)",
    "split": "f, s = Split <axis = 3> (q)",
}


@pytest.mark.parametrize("halves", HALVES.values(), ids=HALVES)
def test_rotary_embedding(halves: str) -> None:
    text = f"g (float[b, 4, s, 16] q, float[b, 1, s, 16] c, float[b, 1, s, 16] i) => ({OUT}) {{ {halves} n = Neg (s) "
    rotated = "r = Concat <axis = -1> (n, f) a = Mul (q, c) m = Mul (i, r) y = Add (m, a) }"
    assert matches(parse(text + rotated)).idioms == {"RotaryEmbedding": 1}
    assert matches(parse(text + rotated.replace("(n, f)", "(f, n)"))).idioms == {}


def test_gated_halves_of_one_linear_layer() -> None:
    slices = HALVES["slices"].replace("(q,", "(x,").replace("{8}", "{32}").replace("{3}", "{2}")
    for gate, up in (("f", "s"), ("s", "f")):
        body = f"{slices} sg = Sigmoid ({gate}) a = Mul ({gate}, sg) y = Mul ({up}, a)"
        assert idioms(body, outputs="float[batch, seq, 32] y") == {"Silu": 1, "SwiGLU": 1}


def test_a_cast_that_only_the_wrong_order_of_operands_passes_is_no_part(tmp_path: Path) -> None:
    (tmp_path / "pair.rule").write_text(
        """# summary: for a test
<domain: "fusion.rules", opset_import: ["": 17]>
Pair (x, z) => (y)
{
    e = Exp (x)
    y = Add (e, z)
}
"""
    )
    text = """<ir_version: 10, opset_import: ["": 17]>
    g (float[4] x, float16[4] z) => (float[4] y, float[4] n, float16[4] u)
    { w = Cast <to = 1> (z) e = Exp (x) y = Add (w, e) n = Neg (w) u = Exp (z) }"""
    model = ir.from_proto(onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text)))
    (region,) = find_regions(model, load_rules(["Pair"], [tmp_path])).regions
    assert [n.op_type for n in region.nodes] == ["Exp", "Add"]


def test_a_norm_has_the_shape_that_it_reads_whatever_the_graph_calls_it() -> None:
    text = "g (float[b,s,64] x, float[b,s,64] z) => (float[m,n,64] y) { r = Add (x, z) y = LayerNormalization (r, w) }"
    found = matches(parse(text, {"w": (64,)}), "RowwiseRegion")
    assert operators(found, "RowwiseRegion") == [["Add", "LayerNormalization"]]


def test_a_region_ends_before_what_needs_it_by_another_way() -> None:
    """The sum reads the activation, and a softmax of it, which is no part of the region."""
    text = """g (float[n, 8] x) => (float[n, 8] y) {
        m = MatMul (x, w) a = Sigmoid (m) p = Softmax (a) y = Add (a, p)
    }"""
    regions = find_regions(simplified(parse(text, {"w": (8, 8)})), load_rules(["LinearActivation"])).regions
    assert [sorted(n.op_type for n in r.nodes) for r in regions] == [["MatMul", "Sigmoid"]]


def test_elementwise_operators_around_another_are_two_regions() -> None:
    text = """g (float[n, 8] x) => (float[n, 8] y) {
        a = Sin (x) b = Cos (a) p = Softmax (b) c = Add (a, p) y = Tanh (c)
    }"""
    regions = find_regions(simplified(parse(text)), load_rules(["PointwiseRegion"])).regions
    assert sorted(sorted(n.op_type for n in r.nodes) for r in regions) == [["Add", "Tanh"], ["Cos", "Sin"]]


def test_one_node_is_not_two_calls_of_a_pattern(tmp_path: Path) -> None:
    rule = """# summary: two of one kind
<domain: "fusion.rules", opset_import: ["": 17]>
Twice (x, z) => (y) {
    a = Sin (x)
    b = Sin (z)
    y = Sub (a, b)
}
"""
    (tmp_path / "twice.rule").write_text(rule)
    text = "g (float[n] x, float[n] z) => (float[n] y) {{ a = Sin (x) b = Sin (z) y = Sub ({}) }}"
    for operands, count in (("a, b", 1), ("b, a", 1), ("a, a", 0)):
        found = matches(parse(text.format(operands)), "Twice", rule_paths=(tmp_path,))
        assert len(operators(found, "Twice")) == count


def test_moves_are_counted_where_a_pattern_is_of_moves(tmp_path: Path) -> None:
    rule = """# summary: moved twice at least
Moved (x) => (y) {
    m = pattern.Move <min_ops = 2, max_ops = 3> (x)
    y = Sin (m)
}
"""
    (tmp_path / "moved.rule").write_text(rule)
    turn = "{} = Transpose <perm = [0, 2, 1]> ({})"
    for body, count in ((turn.format("m", "x"), 0), (f"{turn.format('t', 'x')} m = Flatten (t)", 1)):
        text = f"g (float[n, 4, 4] x) => (float y) {{ {body} y = Sin (m) }}"
        found = find_regions(
            ir.from_proto(onnx.shape_inference.infer_shapes(parse(text))), load_rules(["Moved"], [tmp_path])
        )
        assert len(found.regions) == count


@pytest.mark.parametrize(
    ("body", "count"),
    [
        (f"{(turn := 'Transpose <perm = [0, 2, 1]>')} (x) c = Cast <to = 10> (t) m = Flatten (c)", 1),
        (f"{turn} (x) m = Cast <to = 10> (t)", 0),
        (f"{turn} (x) f = Flatten (t) m = Cast <to = 10> (f)", 1),
        (f"Cast <to = 10> (x) f = {turn} (t) m = Flatten (f)", 1),
    ],
    ids=["between", "one move", "after", "before"],
)
def test_moves_go_through_casts(body: str, count: int, tmp_path: Path) -> None:
    """Which are no moves of their own."""
    rule = """# summary: moved twice at least
Moved (x) => (y) {
    s = Cos (x)
    m = pattern.Move <min_ops = 2, max_ops = 4> (s)
    y = Sin (m)
}
"""
    (tmp_path / "moved.rule").write_text(rule)
    text = f"g (float[n, 4, 4] i) => (float16[n, 16] y) {{ x = Cos (i) t = {body} y = Sin (m) }}"
    model = ir.from_proto(onnx.shape_inference.infer_shapes(parse(text)))
    assert len(find_regions(model, load_rules(["Moved"], [tmp_path])).regions) == count


def test_a_norm_whose_statistics_are_read_is_no_row_operator() -> None:
    text = """g (float[n, 8] x) => (float[n, 8] y, float[n, 1] s) {{
        a = Sin (x) l{} = LayerNormalization (a, w) y = Cos (l) s = Neg ({})
    }}"""
    for mean, nodes in (("", [["Cos", "LayerNormalization", "Sin"]]), (", m", [])):
        model = parse(text.format(mean, "m" if mean else "x"), {"w": (8,)})
        found = matches(model, "RowwiseRegion")
        rows = [r for r in operators(found, "RowwiseRegion") if "LayerNormalization" in r]
        assert [sorted(r) for r in rows] == nodes


def test_a_size_that_is_broadcast_is_not_one() -> None:
    text = "g (float[n, 4] x, float[1, 4] b, float[m, 4] z) => (float[n, 4] y) { s = Add (x, b) y = Mul (s, z) }"
    model = simplified(parse(text))
    sizes = Shapes(GraphIndex(model.graph))
    x, b, z = map(sizes.with_one_name, model.graph.inputs)
    assert x == z
    assert x not in (b, None)


@pytest.mark.parametrize(
    ("found", "dtype", "agrees"),
    [
        (0.044715, ir.DataType.FLOAT, True),
        (0.0448, ir.DataType.FLOAT, False),
        (0.04474, ir.DataType.FLOAT16, True),
        (0.0449, ir.DataType.FLOAT16, False),
        (0.0449, ir.DataType.BFLOAT16, True),
        (0.0453, ir.DataType.BFLOAT16, False),
    ],
)
def test_numbers_agree_as_far_as_their_type_holds_them(found: float, dtype: ir.DataType, agrees: bool) -> None:
    assert is_number(found, 0.044715, dtype) == agrees


@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
def test_groups_with_a_way_from_one_to_the_other_are_two(order: tuple[str, str]) -> None:
    """Of elementwise operators around a norm, those before it and those behind it, whichever is read first."""
    first, second = order
    body = f"b0 = Exp (x) b = Neg (b0) s = Softmax (b) a0 = Sin (s) a = Neg (a0) y = Add ({first}, {second})"
    regions = matches(parse(f"g ({X}) => ({Y}) {{ {body} }}"), "PointwiseRegion").regions
    assert sorted(sorted(n.op_type for n in r.nodes) for r in regions) == [["Add", "Neg", "Sin"], ["Exp", "Neg"]]
