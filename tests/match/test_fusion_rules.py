"""Which nodes the fusion rules for linear layers, norms and convolutions take as one operator."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import numpy_helper

import fusion_cli
from fusion_cli.graph.index import GraphIndex
from fusion_cli.match import MatchResult
from fusion_cli.match.make_region import make_region
from fusion_cli.plan import plan_region
from fusion_cli.score.placement import require_gpu
from tests.helpers.graphs import matches, operators, parse, simplified

X, Y = "float[batch, seq, 64] x", "float[batch, seq, 64] y"
NORM = "n = LayerNormalization (x, gamma, beta) "
WEIGHTS = {"gamma": (64,), "beta": (64,), **{f"w{i}": (64, 64) for i in range(4)}, **{f"b{i}": (64,) for i in range(4)}}
LINEARS = " ".join(f"m{i} = MatMul (n, w{i}) o{i} = Add (m{i}, b{i})" for i in range(4))


def found(
    body: str, rule: str, weights: Mapping[str, tuple[int, ...]], inputs: str = X, outputs: str = Y, opset: int = 17
) -> MatchResult:
    return matches(parse(f"g ({inputs}) => ({outputs}) {{ {body} }}", weights, opset), rule)


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("norm", [NORM, "n = Neg (x) "], ids=["norm", "no norm"])
def test_linear_layers_of_one_input(count: int, norm: str) -> None:
    linears = LINEARS.split(f" m{count} = ")[0]
    outputs = ", ".join(f"float[batch, seq, 64] o{i}" for i in range(count))
    result = found(norm + linears, "HorizontalLinear", WEIGHTS, outputs=outputs)
    whole = max(result.regions, key=lambda r: len(r.nodes))
    kinds = [n.op_type for n in whole.nodes]
    assert (kinds.count("MatMul"), kinds.count("Add")) == (count, count)
    assert ("LayerNormalization" in kinds) == (norm == NORM)
    assert {v.name for v in whole.outputs} == {f"o{i}" for i in range(count)}


def test_linear_layers_of_different_inputs_are_not_horizontal() -> None:
    body = "n = Neg (x) a = MatMul (x, w0) b = MatMul (n, w1) y = Add (a, b)"
    assert not found(body, "HorizontalLinear", WEIGHTS).regions


def test_many_linear_layers_of_one_input_are_found_in_linear_number() -> None:
    count = 60
    linears = " ".join(f"o{i} = MatMul (x, w{i})" for i in range(count))
    outputs = ", ".join(f"float[batch, seq, 8] o{i}" for i in range(count))
    result = found(linears, "HorizontalLinear", {f"w{i}": (64, 8) for i in range(count)}, outputs=outputs)
    assert 0 < len(result.regions) <= 2 * count


@pytest.mark.parametrize(
    ("norm", "rule", "opset"),
    [
        ("LayerNormalization (x, gamma, beta)", "LayerNormLinear", 17),
        ("RMSNormalization (x, gamma)", "RMSNormLinear", 23),
    ],
)
def test_a_norm_and_the_linear_layer_that_reads_it(norm: str, rule: str, opset: int) -> None:
    body = f"n = {norm} m = MatMul (n, w0) o = Add (m, b0) y = Relu (o)"
    (region,) = found(body, rule, WEIGHTS, opset=opset).regions
    assert [n.op_type for n in region.nodes][1:] == ["MatMul", "Add", "Relu"]


def test_rows_may_be_merged_between_them() -> None:
    """As frameworks write layers whose weights come first."""
    body = f"{NORM} rows = Constant <value = int64[2] {{-1, 64}}> () r = Reshape (n, rows) y = Gemm (r, w0, b0)"
    (region,) = found(body, "LayerNormLinear", WEIGHTS, outputs="float[rows, 64] y").regions
    assert [n.op_type for n in region.nodes] == ["LayerNormalization", "Reshape", "Gemm"]


PAIR = f"{X}, float[batch, seq, 64] z"
SUMS = {
    "sum": "r = Add (x, z) y = LayerNormalization (r, gamma, beta)",
    "sum the other way": "r = Add (z, x) y = LayerNormalization (r, gamma)",
    "dropout in the sum": "d = Dropout (x) r = Add (z, d) y = LayerNormalization (r, gamma, beta)",
    "bias in the sum": "b = Add (x, b0) r = Add (b, z) y = LayerNormalization (r, gamma, beta)",
    "norm first": "n = LayerNormalization (x, gamma, beta) y = Add (z, n)",
}


@pytest.mark.parametrize("body", SUMS.values(), ids=SUMS)
def test_residual_and_norm(body: str) -> None:
    regions = operators(found(body, "ResidualNorm", WEIGHTS, PAIR), "ResidualNorm")
    assert max(map(len, regions)) == body.replace("Dropout", "").count("(") - ("Dropout" in body)


def test_the_sum_of_a_residual_norm_may_be_used_too() -> None:
    body = "r = Add (x, z) n = LayerNormalization (r, gamma, beta) m = MatMul (n, w0) y = Add (m, r)"
    regions = [r for r in found(body, "ResidualNorm", WEIGHTS, PAIR).regions if r.nodes[0].op_type == "Add"]
    assert {v.name for v in regions[0].outputs} == {"r", "n"}
    body = "r = Add (x, z) y = LayerNormalization (r, gamma, beta)"
    (region,) = found(body, "ResidualNorm", WEIGHTS, PAIR, f"{Y}, float[batch, seq, 64] r").regions
    assert {v.name for v in region.outputs} == {"r", "y"}


def test_a_norm_before_a_feed_forward_is_part_of_the_block() -> None:
    body = f"{NORM} m0 = MatMul (n, w0) a = Relu (m0) m1 = MatMul (a, w1) o = Add (m1, b1) y = Add (o, x)"
    regions = operators(found(body, "FeedForwardBlock", WEIGHTS), "FeedForwardBlock")
    assert max(regions, key=len) == ["LayerNormalization", "MatMul", "Relu", "MatMul", "Add", "Add"]


IN, OUT = "float[2, 8, 6, 6] x", "float[2, 8, 6, 6] y"
CONV = {"k0": (8, 8, 3, 3), "k1": (8, 8, 3, 3), "kb": (8,), "scale": (8,), "shift": (8,), "mean": (8,), "var": (8,)}
PADS = "<pads = [1, 1, 1, 1]>"
CONVS = {
    "relu": (f"c = Conv {PADS} (x, k0, kb) y = Relu (c)", "ConvBatchNormRelu", 2),
    "no bias": (f"c = Conv {PADS} (x, k0) s = Sigmoid (c) y = Mul (c, s)", "ConvBatchNormRelu", 3),
    "residual": (f"c = Conv {PADS} (x, k0, kb) a = Add (c, x) y = Relu (a)", "ConvBatchNormRelu", 3),
    "block": (
        f"c = Conv {PADS} (x, k0, kb) a = Relu (c) d = Conv {PADS} (a, k1) r = Add (x, d) y = Relu (r)",
        "ConvBlock",
        5,
    ),
    "block without a last activation": (
        f"c = Conv {PADS} (x, k0) s = Sigmoid (c) a = Mul (s, c) d = Conv {PADS} (a, k1, kb) y = Add (d, x)",
        "ConvBlock",
        5,
    ),
}


@pytest.mark.parametrize(("body", "rule", "size"), CONVS.values(), ids=CONVS)
def test_convolutions(body: str, rule: str, size: int) -> None:
    assert max(map(len, operators(found(body, rule, CONV, IN, OUT), rule))) == size


def test_a_batch_norm_that_could_not_be_folded_comes_along() -> None:
    body = f"c = Conv {PADS} (x, k0) b = BatchNormalization (c, scale, shift, mean, var) y = Relu (b)"
    outputs = f"{OUT}, float[2, 8, 6, 6] c"
    (ops,) = operators(
        found(body, "ConvBatchNormRelu", CONV, IN, outputs),
        "ConvBatchNormRelu",
    )
    assert ops == ["Conv", "BatchNormalization", "Relu"]


def test_a_convolution_with_computed_weights_is_left_alone() -> None:
    inputs = f"{IN}, float[8, 8, 3, 3] k"
    body = f"c = Conv {PADS} (x, k) y = Relu (c)"
    assert not found(body, "ConvBatchNormRelu", {}, inputs, OUT).regions


@pytest.mark.parametrize(
    ("body", "taken"),
    [
        ("t = Gather (w0, i) e = Mul (t, z0) y = LayerNormalization (e, gamma, beta)", True),
        ("t = Gather (w0, i) e = Mul (t, z0) n = LayerNormalization (e, gamma, beta) y = Neg (n) z = Tanh (t)", True),
        ("t = Gather (w0, i) z = Tanh (t) e = Mul (t, z0) y = LayerNormalization (e, gamma, beta)", False),
        ("t = Gather (x, i) e = Mul (t, z0) y = LayerNormalization (e, gamma, beta)", True),
        ("t = Gather (v, i) e = Mul (t, z0) y = LayerNormalization (e, gamma, beta)", False),
        ("t = Gather <axis = 1> (w0, i) e = Mul (t, z0) y = LayerNormalization (e, gamma, beta)", False),
    ],
    ids=["a table", "read later too", "read before", "no constant", "any number of rows", "columns"],
)
def test_rows_of_a_table_are_read_by_the_norm_of_them(body: str, taken: bool) -> None:
    """Where nothing else needs them before: of several regions that read them only one looks them up."""
    inputs = "float[9, 64] x, float[m, 64] v, float[64, 64, 64] z0, int64[64, 64] i"
    outputs = "float[64, 64, 64] y" + (", float[64, 64, 64] z" if "z =" in body else "")
    regions = found(body, "RowwiseRegion", WEIGHTS, inputs, outputs).regions
    assert [any(n.op_type == "Gather" for n in r.nodes) for r in regions] == [taken]
    assert not taken or ("x" if "(x, i)" in body else "w0") in {v.name for v in regions[0].inputs}


@pytest.mark.parametrize(
    ("table", "rows", "products", "kernel", "taken"),
    [
        ("w0", 17, 3, "auto", True),
        ("w0", 16, 3, "auto", False),
        ("w0", 17, 4, "auto", False),
        ("w0", 17, 3, "mine", False),
        ("x", 17, 4, "auto", True),
        ("x", 16, 4, "auto", False),
    ],
)
def test_rows_of_a_table_stay_outside_where_they_are_few_or_the_region_is_a_layer_or_has_a_kernel_of_its_own(
    table: str, rows: int, products: int, kernel: str, taken: bool
) -> None:
    """One kernel goes through layers of few rows that are alike, equal regions are compiled once, and a template
    knows the operators of its rule. What is no constant is looked up by each layer: windows of an image."""
    chain = " ".join(f"m{i + 1} = MatMul (m{i}, w0)" for i in range(products))
    body = f"e = Gather ({table}, i) m0 = LayerNormalization (e, gamma, beta) {chain} y = Relu (m{products})"
    inputs = f"int64[1, {rows}] i, float[64, 64] x"
    model = simplified(parse(f"g ({inputs}) => (float[1, {rows}, 64] y) {{ {body} }}", WEIGHTS, 17))
    nodes = [n for n in model.graph if n.op_type != "Gather"]
    region = make_region(GraphIndex(model.graph), nodes, "Layer", kernel, 1)
    assert any(n.op_type == "Gather" for n in region.nodes) == taken


@pytest.mark.parametrize(
    ("body", "taken"),
    [
        ("m = MatMul (x, w0) y = Add (m, b0)", [["MatMul", "Add"]]),
        ("m = MatMul (x, w0) y = Add (b0, m)", [["MatMul", "Add"]]),
        ("y = MatMul (x, w0)", []),
        ("m = MatMul (x, w0) y = Add (m, x)", []),
    ],
    ids=["a bias behind", "a bias before", "no bias", "a residual"],
)
def test_a_linear_layer_with_its_bias(body: str, taken: list[list[str]]) -> None:
    assert operators(found(body, "BiasedLinear", WEIGHTS), "BiasedLinear") == taken


@pytest.mark.parametrize(
    ("said", "sizes", "taken"),
    [("", "2, 1", [["Pad"]]), ('<mode = "constant">', "0, 3", [["Pad"]]), ('<mode = "edge">', "2, 1", [])],
    ids=["zeros", "said", "what lies near the ends"],
)
def test_numbers_around_a_value(said: str, sizes: str, taken: list[list[str]]) -> None:
    graph = f"g (float[2, 8] x, int64[1] a) => (float[2, c] y) <int64[4] p = {{0, {sizes[0]}, 0, {sizes[-1]}}}>"
    regions = matches(parse(f"{graph} {{ y = Pad {said} (x, p) }}", {}, 17), "Padding").regions
    assert [[n.op_type for n in r.nodes] for r in regions] == taken


def test_what_others_leave_of_a_pointwise_region_is_one() -> None:
    """A product that takes the last of it leaves the others, which would run one by one."""
    body = "a = Neg (x) e = Exp (x) c = Mul (a, e) m = MatMul (x, w0) l = Add (m, b0) y = Add (l, c)"
    regions = matches(parse(f"g ({X}) => ({Y}) {{ {body} }}", WEIGHTS), "PointwiseRegion", "LinearActivation").regions
    taken = {tuple(n.op_type for n in r.nodes) for r in regions if r.rule == "PointwiseRegion"}
    assert taken == {("Neg", "Exp", "Mul", "Add", "Add"), ("Neg", "Exp", "Mul")}


def test_what_each_of_several_leaves_is_one_too() -> None:
    """Either of two products may be taken, or both."""
    body = "e = Exp (x) c = Mul (e, x) m = MatMul (x, w0) l = Sub (m, c) "
    body += "k = MatMul (x, w1) z = Mul (k, c) y = Tanh (z)"
    text = f"g ({X}) => ({Y}, {Y.replace(' y', ' l')}) {{ {body} }}"
    regions = matches(parse(text, WEIGHTS), "PointwiseRegion", "LinearActivation").regions
    taken = {tuple(n.op_type for n in r.nodes) for r in regions if r.rule == "PointwiseRegion"}
    assert {("Exp", "Mul"), ("Exp", "Mul", "Sub"), ("Exp", "Mul", "Mul", "Tanh")} < taken


@pytest.mark.parametrize(("groups", "least"), [(1, 2), (2, 1), (8, 2)], ids=["one group", "two", "depthwise"])
def test_one_convolution_is_turned_over_for_its_groups_alone(groups: int, least: int) -> None:
    convolution = f"Conv <group = {groups}, pads = [1, 1, 1, 1]>"
    weights = {"k": (8, 8 // groups, 3, 3)}
    one = f"c = {convolution} (x, k) y = Relu (c)"
    two = f"b = {convolution} (x, k) c = {convolution} (b, k) y = Relu (c)"
    sizes = [len(found(body, "Convolutions", weights, IN, OUT).regions) for body in (one, two)]
    assert [bool(n) for n in sizes] == [least == 1, True]


def test_a_norm_that_nothing_else_has_is_for_gpus(tmp_path: Path) -> None:
    model = parse("g (float16[8, 512, 2048] x) => (float16[8, 512, 2048] y) { y = LayerNormalization (x, w, b) }")
    ones = {name: np.ones(2048, np.float16) for name in ("w", "b")}
    model.graph.initializer.extend(numpy_helper.from_array(a, name) for name, a in ones.items())
    onnx.save(model, tmp_path / "model.onnx")
    report = fusion_cli.optimize(tmp_path / "model.onnx", targets=["cpu", "sm_90a"])
    assert [(f.rule, f.targets) for f in report.fusions] == [("NormRegion", ("sm_90a",))]


def test_tables_of_rotary_embeddings_are_made_at_once(tmp_path: Path) -> None:
    """Of positions that are counted on the host, as those of open sizes are."""
    body = """shape = Shape (x) n = Gather (shape, one) places = Range (none, n, one) p = Unsqueeze (places, ends)
        f = Cast <to = 1> (p) angles = Mul (f, frequencies) both = Concat <axis = -1> (angles, angles)
        cosines = Cos (both) sines = Sin (both) c = Mul (x, cosines) t = Mul (x, sines) y = Sub (c, t)"""
    constants = "int64 none = {0}, int64 one = {1}, int64[2] ends = {0, 2}"
    model = parse(f"g (float[b, n, 64] x) => (float[b, n, 64] y) <{constants}> {{ {body} }}")
    frequencies = 10.0 ** -np.linspace(0, 4, 32, dtype=np.float32)
    model.graph.initializer.append(numpy_helper.from_array(frequencies, "frequencies"))
    (region,) = matches(model, "RotaryTables").regions
    assert [(v.name, *of) for v, *of in region.positions] == [("p", -2, True)]
    plan = plan_region(region)
    require_gpu(region, plan)
    assert len(plan.stages) == 1
    path, out = tmp_path / "model.onnx", tmp_path / "out.onnx"
    onnx.save(model, path)
    fusion_cli.optimize(path, out, targets=["cpu"], force=True, rules=["RotaryTables"])
    for size in ((2, 1, 64), (1, 37, 64), (1, 0, 64)):
        x = np.random.default_rng(0).standard_normal(size).astype(np.float32)
        want = ort.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
        got = fusion_cli.session(out, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
        np.testing.assert_allclose(got, want, atol=1e-5)
