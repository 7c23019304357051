"""Outputs and constants that few exporters write: equal, random, sparse, sequences, strings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import fusion_cli
from fusion_cli.sessions import open_model
from fusion_cli.types import Options
from fusion_cli.verify.whole_model import reference_for, verify_model
from tests.helpers.foreign import Both, X, refused, same
from tests.helpers.graphs import parse

# ---- what a graph gives out


def test_outputs_of_equal_values_stay_apart(both: Both) -> None:
    model = parse(
        "g (float[2, 3, 4] x) => (float[2, 3, 4] a, float[2, 3, 4] b, float[2, 3, 4] c, float[2, 3, 4] d) "
        "{ r = Relu (x) a = Identity (r) b = Identity (r) s = Relu (x) c = Identity (s) d = Identity (x) }"
    )
    assert len(same(both(model), x=X)) == 4


def test_a_body_gives_out_a_value_from_around_it_and_one_value_twice(both: Both) -> None:
    model = parse(
        "g (float[2, 3, 4] x, bool c) => (float[2, 3, 4] p, float[2, 3, 4] q) { r = Relu (x) p, q = If (c) "
        "<then_branch: graph = yes () => (a, b) { a = Identity (r) b = Identity (r) }, "
        "else_branch: graph = no () => (d, e) { n = Neg (r) d = Identity (n) e = Identity (n) }> }"
    )
    runs = both(model)
    for c in (True, False):
        same(runs, x=X, c=np.array(c))


def test_an_output_that_a_gemm_reads_transposed(both: Both) -> None:
    model = parse(
        "g (float[3, 4] x, float[5, 4] w) => (float[3, 5] y, float[4, 3] z) "
        "{ t = Transpose (x) u = Transpose (w) y = Gemm <transA = 1> (t, u) z = Identity (t) }"
    )
    same(both(model), x=X[0], w=np.ones((5, 4), np.float32))


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


def test_random_numbers_are_not_compared(tmp_path: Path) -> None:
    body = "r = RandomUniformLike (x) y = Add (x, r)"
    graph = "g (float[2, 3, 4] x) => (float[2, 3, 4] y, float[2, 3, 4] z) {{ {} z = Relu (x) }}"
    for name, text in {"one": body, "other": f"q = RandomUniformLike (x) p = Sub (q, q) {body}"}.items():
        onnx.save(parse(graph.format(text.replace("(x, r)", "(p, r)") if name == "other" else text)), tmp_path / name)
    checked = verify_model(reference_for(tmp_path / "one", Options()), [lambda: open_model(tmp_path / "other")])
    assert [(o.output, o.error) for o in checked.outputs] == [("z", 0.0)]


# ---- sequences and strings


def test_sequences_are_compared(both: Both, tmp_path: Path) -> None:
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


def test_old_sequences(both: Both) -> None:
    model = parse(
        "g (float[2, 3, 4] x) => (float[2, 3, 4] y, float[n, 2, 3, 4] z) { s = SplitToSequence <axis = 1> (x) "
        "y = ConcatFromSequence <axis = 1> (s) t = SequenceConstruct (x, y) "
        "z = ConcatFromSequence <axis = 0, new_axis = 1> (t) }",
        opset=11,
    )
    same(both(model), x=X)


def test_strings(both: Both) -> None:
    model = parse("g (float[2] x) => (bool[2] e, float[2] y) { e = Equal (a, b) y = Neg (x) }", opset=19)
    for name, words in {"a": [b"one", b"two"], "b": [b"one", b"three"]}.items():
        model.graph.initializer.append(helper.make_tensor(name, TensorProto.STRING, [2], words))
    assert same(both(model), x=np.ones(2, np.float32))[0].tolist() == [True, False]


def test_a_string_is_handed_on(both: Both) -> None:
    model = parse('g () => (string[2] s) { c = Constant <value_strings = ["a", "b"]> () s = Identity (c) }')
    assert [list(run()[0]) for run in both(model)] == [["a", "b"]] * 2


# ---- sparse constants


def sparse(dims: list[int], indices: np.ndarray, values: list[float]) -> onnx.SparseTensorProto:
    made = onnx.SparseTensorProto(dims=dims)
    made.values.CopyFrom(numpy_helper.from_array(np.array(values, np.float32), "w"))
    made.indices.CopyFrom(numpy_helper.from_array(indices.astype(np.int64), "w_indices"))
    return made


@pytest.mark.parametrize("indices", [np.array([1, 7]), np.array([[0, 1], [1, 3]])], ids=["flat", "coordinates"])
def test_sparse_initializers_become_dense(indices: np.ndarray, both: Both) -> None:
    model = parse("g (float[2, 4] x) => (float[2, 4] y) { y = Add (x, w) }")
    model.graph.sparse_initializer.append(sparse([2, 4], indices, [5.0, 6.0]))
    out = same(both(model), x=np.zeros((2, 4), np.float32))[0]
    assert out.ravel().tolist() == [0, 5, 0, 0, 0, 0, 0, 6]


def test_a_sparse_constant_becomes_dense(both: Both) -> None:
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
