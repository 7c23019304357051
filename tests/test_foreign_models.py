"""Models in forms that ONNX Runtime runs though few exporters write them: taken as they are, or refused in words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

import fusion_cli
from fusion_cli.errors import ModelError
from fusion_cli.load import load_model
from fusion_cli.score import Baseline, load_profile
from fusion_cli.sessions import open_model
from fusion_cli.targets import resolve_targets
from fusion_cli.types import Options, Region
from fusion_cli.verify import signature_of
from fusion_cli.verify.feeds import make_feeds
from fusion_cli.verify.model import reference_for, verify_model
from tests.graphs import matches, parse, simplified

X = np.random.default_rng(5).normal(size=(2, 3, 4)).astype(np.float32)
Run = Callable[..., list[np.ndarray]]


@pytest.fixture
def both(tmp_path: Path) -> Callable[..., tuple[Run, Run]]:
    """A model and what `optimize` makes of it, ready to run in stock ONNX Runtime; both must run and be compared."""

    def make(model: onnx.ModelProto, **options: object) -> tuple[Run, Run]:
        source, output = tmp_path / "m.onnx", tmp_path / "fused.onnx"
        onnx.save(model, source)
        report = fusion_cli.optimize(source, output, **{"targets": ["portable"], **options})
        assert report.verification is not None
        assert report.verification.ok
        runs = [ort.InferenceSession(p, providers=["CPUExecutionProvider"]).run for p in (source, output)]
        return tuple(lambda run=run, **feeds: run(None, feeds) for run in runs)

    return make


def same(runs: tuple[Run, Run], **feeds: np.ndarray) -> list[np.ndarray]:
    expected, found = (run(**feeds) for run in runs)
    for a, b in zip(expected, found, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-6)
    return expected


def refused(tmp_path: Path, model: onnx.ModelProto) -> str:
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ModelError) as caught:
        load_model(path)
    return str(caught.value)


# ---- what a graph gives out


def test_outputs_of_equal_values_stay_apart(both: Callable[..., tuple[Run, Run]]) -> None:
    model = parse(
        "g (float[2, 3, 4] x) => (float[2, 3, 4] a, float[2, 3, 4] b, float[2, 3, 4] c, float[2, 3, 4] d) "
        "{ r = Relu (x) a = Identity (r) b = Identity (r) s = Relu (x) c = Identity (s) d = Identity (x) }"
    )
    assert len(same(both(model), x=X)) == 4


def test_a_body_gives_out_a_value_from_around_it_and_one_value_twice(both: Callable[..., tuple[Run, Run]]) -> None:
    model = parse(
        "g (float[2, 3, 4] x, bool c) => (float[2, 3, 4] p, float[2, 3, 4] q) { r = Relu (x) p, q = If (c) "
        "<then_branch: graph = yes () => (a, b) { a = Identity (r) b = Identity (r) }, "
        "else_branch: graph = no () => (d, e) { n = Neg (r) d = Identity (n) e = Identity (n) }> }"
    )
    runs = both(model)
    for c in (True, False):
        same(runs, x=X, c=np.array(c))


def test_an_output_that_a_gemm_reads_transposed(both: Callable[..., tuple[Run, Run]]) -> None:
    model = parse(
        "g (float[3, 4] x, float[5, 4] w) => (float[3, 5] y, float[4, 3] z) "
        "{ t = Transpose (x) u = Transpose (w) y = Gemm <transA = 1> (t, u) z = Identity (t) }"
    )
    same(both(model), x=X[0], w=np.ones((5, 4), np.float32))


def test_sequences_are_compared(both: Callable[..., tuple[Run, Run]], tmp_path: Path) -> None:
    model = parse(
        "g (float[2, 3, 4] x) => (seq(float[2, 3, 4]) s) { a = Relu (x) b = Neg (a) s = SequenceConstruct (a, b) }"
    )
    expected, found = (run(x=X)[0] for run in both(model))
    np.testing.assert_array_equal(np.stack(found), np.stack(expected))
    report = fusion_cli.optimize(tmp_path / "m.onnx", tmp_path / "f.onnx", targets=["portable"])
    assert report.verification is not None
    assert {o.output for o in report.verification.outputs} == {"s", "s[0]", "s[1]"}


def test_a_sequence_is_no_input_that_can_be_made_up(tmp_path: Path) -> None:
    onnx.save(
        parse("g (seq(float[2]) s) => (float[n, 2] y) { y = ConcatFromSequence <axis = 0, new_axis = 1> (s) }"),
        tmp_path / "m.onnx",
    )
    report = fusion_cli.optimize(tmp_path / "m.onnx", tmp_path / "f.onnx", targets=["portable"])
    assert report.verification is not None
    assert "input 's' is no tensor" in report.verification.skipped


# ---- random numbers


def test_random_numbers_are_not_compared(tmp_path: Path) -> None:
    body = "r = RandomUniformLike (x) y = Add (x, r)"
    graph = "g (float[2, 3, 4] x) => (float[2, 3, 4] y, float[2, 3, 4] z) {{ {} z = Relu (x) }}"
    for name, text in {"one": body, "other": f"q = RandomUniformLike (x) p = Sub (q, q) {body}"}.items():
        onnx.save(parse(graph.format(text.replace("(x, r)", "(p, r)") if name == "other" else text)), tmp_path / name)
    checked = verify_model(reference_for(tmp_path / "one", Options()), [lambda: open_model(tmp_path / "other")])
    assert [(o.output, o.error) for o in checked.outputs] == [("z", 0.0)]


@pytest.mark.parametrize("draw", ["Dropout (x, half, yes)", "Bernoulli (x)"])
def test_two_draws_are_not_one(draw: str) -> None:
    text = f"""g (float[2, 3, 4] x) => (float[2, 3, 4] a, float[2, 3, 4] b) {{
        half = Constant <value = float {{0.5}}> () yes = Constant <value = bool {{1}}> () a = {draw} b = {draw} }}"""
    left = simplified(parse(text))
    assert [n.op_type for n in left.graph].count(draw.split()[0]) == 2


def test_a_sum_of_two_is_an_addition() -> None:
    left = simplified(parse("g (float[2] x, float[2] y) => (float[2] z) { a = Sum (x, y) z = Sum (a, x, y) }"))
    assert [n.op_type for n in left.graph] == ["Add", "Sum"]


def test_a_size_in_writing_is_a_number() -> None:
    """A Reshape to sizes taken from shapes at run time: inference computes 2 x 4 by symbols."""
    text = """g (float[n, m, 2, 4] x) => (float[n, m, k] y) {
        zero = Constant <value_ints = [0]> () one = Constant <value_ints = [1]> () s = Shape (x)
        a = Gather (s, zero) b = Gather (s, one) last = Constant <value_ints = [-1]> ()
        shape = Concat <axis = 0> (a, b, last) r = Reshape (x, shape) y = Relu (r) }"""
    relu = next(n for n in simplified(parse(text)).graph if n.op_type == "Relu")
    assert relu.inputs[0] is not None
    assert relu.inputs[0].shape is not None
    assert relu.inputs[0].shape[2] == 8


def test_layers_on_constants_are_left_for_the_rules_and_outer_products_are_not() -> None:
    """As ONNX Runtime computes them once, they are no work that a kernel could save."""
    text = """g (float[4, 8] x) => (float[4, 8] y) { m = MatMul (q, w) a = Relu (m) t = MatMul (column, row)
        u = Cos (t) b = Add (a, u) y = Add (x, b) }"""
    model = parse(text, {"q": (4, 8), "w": (8, 8), "column": (4, 1), "row": (1, 8)})
    left = simplified(model)
    assert [n.op_type for n in left.graph] == ["MatMul", "Relu", "Add", "Add"]
    baseline = Baseline(left.graph, load_profile(resolve_targets(("cpu",))[0]))
    region = Region("r", tuple(left.graph)[:2], (), (), (left.graph[1].outputs[0],))
    assert baseline.work(region, {}) == ([], [])


def test_a_clean_up_that_breaks_off_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(model: ir.Model) -> None:
        model.graph.outputs.clear()
        raise ValueError("half done")

    monkeypatch.setattr("fusion_cli.simplify._fold_batch_norms", broken)
    left = simplified(parse("g (float[2] x) => (float[2] y) { a = Identity (x) b = Relu (a) y = Identity (b) }"))
    assert [v.name for v in left.graph.outputs] == ["y"]
    assert "Relu" in [n.op_type for n in left.graph]
    assert len(left.graph) < 3


@pytest.mark.parametrize(("training", "count"), [("", 1), ("half, no", 1), ("half, yes", 0), ("half, mode", 0)])
def test_a_dropout_is_seen_through_at_inference_only(training: str, count: int) -> None:
    text = f"""g (float[n, 64] x, bool mode) => (float[n, 64] y) {{
        half = Constant <value = float {{0.5}}> () yes = Constant <value = bool {{1}}> ()
        no = Constant <value = bool {{0}}> () s = Sigmoid (x) d = Dropout (s{", " + training if training else ""})
        y = Mul (x, d) }}"""
    assert matches(parse(text)).idioms.get("Silu", 0) == count


# ---- constants


def test_inputs_that_default_to_equal_values_stay_apart(both: Callable[..., tuple[Run, Run]]) -> None:
    model = parse(
        "g (float[4] x, float[4] v = {1, 2, 3, 4}, float[4] w = {1, 2, 3, 4}) => (float[4] y) "
        "{ a = Mul (x, v) y = Add (a, w) }"
    )
    runs = both(model)
    x = X[0, 0]
    same(runs, x=x)
    same(runs, x=x, w=2 * x)
    same(runs, x=x, v=3 * x)


def sparse(dims: list[int], indices: np.ndarray, values: list[float]) -> onnx.SparseTensorProto:
    made = onnx.SparseTensorProto(dims=dims)
    made.values.CopyFrom(numpy_helper.from_array(np.array(values, np.float32), "w"))
    made.indices.CopyFrom(numpy_helper.from_array(indices.astype(np.int64), "w_indices"))
    return made


@pytest.mark.parametrize("indices", [np.array([1, 7]), np.array([[0, 1], [1, 3]])], ids=["flat", "coordinates"])
def test_sparse_initializers_become_dense(indices: np.ndarray, both: Callable[..., tuple[Run, Run]]) -> None:
    model = parse("g (float[2, 4] x) => (float[2, 4] y) { y = Add (x, w) }")
    model.graph.sparse_initializer.append(sparse([2, 4], indices, [5.0, 6.0]))
    out = same(both(model), x=np.zeros((2, 4), np.float32))[0]
    assert out.ravel().tolist() == [0, 5, 0, 0, 0, 0, 0, 6]


def test_a_sparse_constant_becomes_dense(both: Callable[..., tuple[Run, Run]]) -> None:
    model = parse("g (float[2, 4] x) => (float[2, 4] y) { y = Add (x, w) }")
    node = helper.make_node("Constant", [], ["w"], sparse_value=sparse([2, 4], np.array([1, 7]), [5.0, 6.0]))
    model.graph.node.insert(0, node)
    same(both(model), x=np.zeros((2, 4), np.float32))


@pytest.mark.parametrize(
    ("dims", "indices", "words"),
    [([2, 4], [99], "malformed"), ([1 << 20, 1 << 20], [1], "more than 2 GiB")],
    ids=["outside", "huge"],
)
def test_bad_sparse_initializers(dims: list[int], indices: list[int], words: str, tmp_path: Path) -> None:
    model = parse("g (float[2, 4] x) => (float[2, 4] y) { y = Add (x, w) }")
    model.graph.sparse_initializer.append(sparse(dims, np.array(indices), [5.0]))
    assert words in refused(tmp_path, model)


AXES = ["-2, -1", "-1, -3", "0, -1", "1, 2"]


@pytest.mark.parametrize("axes", AXES)
def test_old_unsqueeze_of_constants(axes: str, both: Callable[..., tuple[Run, Run]]) -> None:
    model = parse(
        f"g (float[2, 3, 4] x) => (y) {{ c = Unsqueeze <axes = [{axes}]> (k) s = Shape (c) "
        f"f = Cast <to = 1> (s) t = ReduceSum (x) y = Mul (f, t) }}",
        {"k": (5,)},
        opset=11,
    )
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, None))
    same(both(model), x=X)


@pytest.mark.parametrize("operator", ["Softmax", "LogSoftmax", "Hardmax", "Softmax <axis = 1>", "Softmax <axis = -2>"])
def test_old_softmax_of_constants(operator: str, both: Callable[..., tuple[Run, Run]]) -> None:
    name, _, attributes = operator.partition(" ")
    model = parse(
        f"g (float[2, 3, 4] x) => (float[2, 3, 4] y) {{ p = {name} {attributes} (k) y = Add (x, p) }}",
        {"k": (2, 3, 4)},
        opset=11,
    )
    same(both(model), x=X)


# ---- how a model is written down


def test_nodes_in_any_order(both: Callable[..., tuple[Run, Run]]) -> None:
    model = parse("g (float[2, 3, 4] x) => (float[2, 3, 4] y) { a = Relu (x) b = Neg (a) y = Exp (b) }")
    nodes = list(model.graph.node)[::-1]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    same(both(model), x=X)


def test_the_long_name_of_the_domain(both: Callable[..., tuple[Run, Run]]) -> None:
    model = parse("g (float[n, 64] x) => (float[n, 64] y) { s = Sigmoid (x) y = Mul (x, s) }", opset=13)
    for owner in (*model.opset_import, *model.graph.node):
        owner.domain = owner.domain or "ai.onnx"
    assert matches(model).idioms == {"Silu": 1}
    same(both(model), x=np.ones((2, 64), np.float32))


def test_negative_dimensions_are_unknown_ones(both: Callable[..., tuple[Run, Run]]) -> None:
    model = parse("g (float[2, 3, 4] x) => (float[2, 3, 4] y) { y = Relu (x) }")
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = -1
    same(both(model), x=X)


def test_a_model_that_the_checker_rejects_but_that_runs(both: Callable[..., tuple[Run, Run]]) -> None:
    model = parse("g (float[2, 3, 4] x) => (float[2, 3, 4] y) { r = Relu (x) y = Neg (r) }")
    model.graph.output[0].type.tensor_type.ClearField("shape")
    with pytest.raises(onnx.checker.ValidationError):
        onnx.checker.check_model(model)
    same(both(model), x=X)


def test_a_model_that_is_wrong_about_the_rank_of_its_output(both: Callable[..., tuple[Run, Run]]) -> None:
    model = parse(
        "g (float[2, 3, 4] x) => (float[2, 3, n] y) { i = Constant <value = int64[1] {1}> () s = Shape (x) "
        "d = Gather (s, i) m = Constant <value = int64[1] {-1}> () t = Concat <axis = 0> (d, m) y = Reshape (x, t) }"
    )
    same(both(model), x=X)


def test_a_layer_norm_from_before_opset_17_is_no_function(both: Callable[..., tuple[Run, Run]]) -> None:
    model = parse(
        "g (float[2, 3, 4] x) => (float[2, 3, 4] y) { a = Add (x, x) y = LayerNormalization (a, k) }",
        {"k": (4,)},
        opset=12,
    )
    found = matches(model)
    assert found.idioms == {"LayerNorm": 1}
    assert not [r for r in found.regions if any(n.op_type == "LayerNormalization" for n in r.nodes)]
    assert "FUS115" in {r.code for r in found.rejections}
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


def test_omitted_outputs_stay_omitted(tmp_path: Path) -> None:
    text = """g (float[1, 2, 8, 8] x) => (float[1, 2, 4, 4] y, float[1, n] h) {
        s = Constant <value = int64[3] {1, -1, 4}> () p, _ = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x)
        r = Reshape (x, s) _, h0, _ = LSTM <hidden_size = 3> (r, w, u) f = Flatten (h0) h = Tanh (f) y = Relu (p) }"""
    model = parse(text, {"w": (1, 12, 4), "u": (1, 12, 3)})
    for node in model.graph.node:
        node.output[:] = ["" if name == "_" else name for name in node.output]
    onnx.save(model, tmp_path / "m.onnx")
    fusion_cli.optimize(tmp_path / "m.onnx", tmp_path / "f.onnx", targets=["portable"])
    found = onnx.load(tmp_path / "f.onnx")
    nodes = [n for owner in (found.graph, *found.functions) for n in owner.node]
    assert [[bool(name) for name in n.output] for n in nodes if n.op_type == "LSTM"] == [[False, True]]


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
    assert max(n for shapes in tried for shape in shapes for n in shape) < 224


def test_old_sequences(both: Callable[..., tuple[Run, Run]]) -> None:
    model = parse(
        "g (float[2, 3, 4] x) => (float[2, 3, 4] y, float[n, 2, 3, 4] z) { s = SplitToSequence <axis = 1> (x) "
        "y = ConcatFromSequence <axis = 1> (s) t = SequenceConstruct (x, y) "
        "z = ConcatFromSequence <axis = 0, new_axis = 1> (t) }",
        opset=11,
    )
    same(both(model), x=X)


def test_strings(both: Callable[..., tuple[Run, Run]]) -> None:
    model = parse("g (float[2] x) => (bool[2] e, float[2] y) { e = Equal (a, b) y = Neg (x) }", opset=19)
    for name, words in {"a": [b"one", b"two"], "b": [b"one", b"three"]}.items():
        model.graph.initializer.append(helper.make_tensor(name, TensorProto.STRING, [2], words))
    assert same(both(model), x=np.ones(2, np.float32))[0].tolist() == [True, False]


@pytest.mark.parametrize("opset", [7, 11, 15])
def test_a_known_shape_is_an_output(opset: int, both: Callable[..., tuple[Run, Run]]) -> None:
    model = parse(
        "g (float[2, 3, 4] x) => (int64[3] s, int64[2] d) { s = Shape (x) i = Constant <value = int64[2] {2, 0}> () "
        "d = Gather (s, i) }",
        opset=opset,
    )
    same(both(model), x=X)


def test_a_string_is_handed_on(both: Callable[..., tuple[Run, Run]]) -> None:
    model = parse('g () => (string[2] s) { c = Constant <value_strings = ["a", "b"]> () s = Identity (c) }')
    assert [list(run()[0]) for run in both(model)] == [["a", "b"]] * 2
