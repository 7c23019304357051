"""Inputs for models of all kinds: sizes that run, integers that index, masks, and a user's own arrays."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper, parser

from benchmarks.runs import default_folder
from fusion_cli.errors import ModelError
from fusion_cli.load import load_model
from fusion_cli.score import default_sizes
from fusion_cli.sessions import CannotRun
from fusion_cli.types import Options
from fusion_cli.verify.feeds import load_feeds, make_feeds, open_sizes
from fusion_cli.verify.signature import signature_of
from fusion_cli.verify.whole_model import reference_for

CORPUS = default_folder()


PREFIX = '<ir_version: 9, opset_import: ["": 17]> '
RELU = PREFIX + "g (float[n] x) => (float[n] y) { y = Relu (x) }"


def model_file(folder: Path, text: str) -> Path:
    path = folder / "model.onnx"
    onnx.save(parser.parse_model(PREFIX + text), path)
    return path


def test_symbolic_sizes_and_values_are_the_same_in_every_run(tmp_path: Path) -> None:
    path = model_file(tmp_path, "g (float[batch, seq, 4] x) => (float[batch, seq, 4] y) { y = Relu (x) }")
    first, second = reference_for(path, Options()).feeds, reference_for(path, Options()).feeds
    assert first["x"].shape == (1, 128, 4)
    assert first["x"].dtype == np.float32
    np.testing.assert_array_equal(first["x"], second["x"])


def test_options_fix_sizes(tmp_path: Path) -> None:
    path = model_file(tmp_path, "g (float[batch, seq, 4] x) => (float[batch, seq, 4] y) { y = Relu (x) }")
    assert reference_for(path, Options(dims={"batch": (3, 3), "seq": (1, 64)})).feeds["x"].shape == (3, 8, 4)
    assert reference_for(path, Options(shapes={"x": (5, 6, 4)})).feeds["x"].shape == (5, 6, 4)


def test_open_sizes_are_tried_at_two_and_said_to_be_made_up(tmp_path: Path) -> None:
    path = model_file(tmp_path, "g (float[batch, seq, 4] x) => (float[batch, seq, 4] y) { y = Relu (x) }")
    both, one = (reference_for(path, Options(dims={"seq": seq})) for seq in ((5, 5), (3, 12)))
    assert [case.feeds["x"].shape for case in both.cases] == [(1, 5, 4), (2, 5, 4)]
    assert [case.feeds["x"].shape for case in one.cases] == [(1, 6, 4), (2, 3, 4)]
    assert list(open_sizes(signature_of(load_model(path)), Options(dims={"seq": (5, 5)}))) == ["batch"]
    for case in both.cases:
        np.testing.assert_array_equal(case.outputs["y"], np.maximum(case.feeds["x"], 0))
    fixed = Options(shapes={"x": (5, 6, 4)})
    assert (len(reference_for(path, fixed).cases), open_sizes(signature_of(load_model(path)), fixed)) == (1, {})


def test_outputs_of_one_size_are_not_those_of_another(tmp_path: Path) -> None:
    split = "s = Constant <value = int64 {1}> () y = SplitToSequence <axis = 1> (x, s)"
    text = f"g (float[2, n] x) => (seq(float[2, 1]) y) {{ {split} }}"
    first, second = reference_for(model_file(tmp_path, text), Options()).cases
    for case in (first, second):
        assert len(case.outputs) == 1 + case.feeds["x"].shape[1]


def test_a_model_that_runs_at_one_size_only_is_tried_at_that(tmp_path: Path) -> None:
    path = model_file(tmp_path, "g (float[2, n] x) => (float[8, 16] y) <int64[2] s = {8, 16}> { y = Reshape (x, s) }")
    (case,) = reference_for(path, Options()).cases
    assert case.feeds["x"].shape == (2, 64)


@pytest.mark.parametrize(("operator", "sizes"), [("Concat <axis = 1>", {37, 45}), ("Add", {37})])
def test_sizes_of_the_second_run_differ_where_the_model_lets_them(
    tmp_path: Path, operator: str, sizes: set[int]
) -> None:
    text = f"g (float[2, n, 4] x, float[2, m, 4] z) => (float[a, b, c] y) {{ s = Sin (z) y = {operator} (x, s) }}"
    _, second = reference_for(model_file(tmp_path, text), Options()).cases
    assert {array.shape[1] for array in second.feeds.values()} == sizes


def test_sizes_that_are_expressions_follow_from_their_names(tmp_path: Path) -> None:
    given = {"cache": ["batch", "past", 4], "x": ["batch", "seq", 4], "bias": ["batch", "past + seq", 4]}
    inputs = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name, shape in given.items()]
    output = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["batch", "past + seq", 4])
    nodes = [helper.make_node("Concat", ["cache", "x"], ["k"], axis=1), helper.make_node("Add", ["k", "bias"], ["y"])]
    graph = helper.make_graph(nodes, "g", inputs, [output])
    onnx.save(helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "m.onnx")
    first, second = reference_for(tmp_path / "m.onnx", Options(dims={"past": (5, 5)})).cases
    assert [first.feeds[name].shape[1] for name in ("cache", "x", "bias")] == [5, 1, 6]
    assert [second.feeds[name].shape[1] for name in ("cache", "x", "bias")] == [5, 37, 42]
    (sizes,) = default_sizes(load_model(tmp_path / "m.onnx"), Options(dims={"past": (5, 5)}))
    assert sizes == {"batch": 1, "past": 5, "seq": 1}


def test_a_size_that_depends_on_another_is_found(tmp_path: Path) -> None:
    text = """g (float[batch, past, 4] cache, float[batch, 1, 4] x, float[batch, total, 4] bias) => (float[a, b, 4] y) {
        k = Concat <axis = 1> (cache, x)
        y = Add (k, bias)
    }"""
    feeds = reference_for(model_file(tmp_path, text), Options()).feeds
    assert feeds["bias"].shape[1] == feeds["cache"].shape[1] + 1


def test_integers_stay_within_what_they_index(tmp_path: Path) -> None:
    text = """g (float[7, 3] table, int64[batch, seq] ids) => (float[batch, seq, 3] y) {
        flat = Identity (ids)
        y = Gather <axis = 0> (table, flat)
    }"""
    ids = reference_for(model_file(tmp_path, text), Options()).feeds["ids"]
    assert ids.min() >= 0
    assert ids.max() < 7
    assert len(np.unique(ids)) > 2


def test_integers_that_index_nothing_are_a_mask_without_empty_rows(tmp_path: Path) -> None:
    text = """g (int64[batch, seq] attend) => (float[batch, seq] y) { y = Cast <to = 1> (attend) }"""
    mask = reference_for(model_file(tmp_path, text), Options()).cases[1].feeds["attend"]
    assert set(np.unique(mask)) == {0, 1}
    assert mask.any(axis=-1).all()


def test_a_rate_is_one_that_sound_has(tmp_path: Path) -> None:
    text = "g (float[batch, n] x, int64 sr) => (float[batch, n] y) { r = Cast <to = 1> (sr) y = Div (x, r) }"
    feeds = reference_for(model_file(tmp_path, text), Options()).feeds
    assert (int(feeds["sr"]), feeds["x"].shape) == (16_000, (1, 512))


def test_inputs_with_an_initializer_need_no_array(tmp_path: Path) -> None:
    text = """g (float[2] x, float[2] w) => (float[2] y) <float[2] w = {1, 2}> { y = Add (x, w) }"""
    assert set(reference_for(model_file(tmp_path, text), Options()).feeds) == {"x"}


def test_no_sizes_that_run_is_told_with_the_first_reason() -> None:
    proto = parser.parse_model(
        '<ir_version: 9, opset_import: ["": 17]> g (float[n] x) => (float[n] y) { y = Relu (x) }'
    )
    with pytest.raises(CannotRun, match=r"too odd.*--dim"):
        make_feeds(signature_of(ir.from_proto(proto)), Options(), lambda feeds: "too odd")


def test_input_without_a_shape_asks_for_one() -> None:
    proto = parser.parse_model(
        '<ir_version: 9, opset_import: ["": 17]> g (float[n] x) => (float[n] y) { y = Relu (x) }'
    )
    proto.graph.input[0].type.tensor_type.ClearField("shape")
    model = ir.from_proto(proto)
    with pytest.raises(CannotRun, match="--shape x="):
        make_feeds(signature_of(model), Options(), lambda feeds: "")
    assert make_feeds(signature_of(model), Options(shapes={"x": (3,)}), lambda feeds: "")["x"].shape == (3,)


def test_arrays_of_a_file(tmp_path: Path) -> None:
    model = ir.load(model_file(tmp_path, "g (float[n, 2] x) => (float[n, 2] y) { y = Relu (x) }"))
    path = tmp_path / "in.npz"
    np.savez(path, in__x=np.ones((3, 2), np.float32), out__y=np.zeros(1))
    assert load_feeds(path, signature_of(model))["x"].shape == (3, 2)
    np.savez(path, z=np.ones((3, 2), np.float32))
    with pytest.raises(ModelError, match=r"the model has no input 'z' \(there are: x\)"):
        load_feeds(path, signature_of(model))
    np.savez(path, out__y=np.zeros(1))
    with pytest.raises(ModelError, match=r"no array for the model's input 'x' \(it has: nothing\)"):
        load_feeds(path, signature_of(model))
    np.savez(path, x=np.ones((3, 2), np.int64))
    with pytest.raises(ModelError, match="must be float32, found int64"):
        load_feeds(path, signature_of(model))
    np.savez(path, x=np.ones(3, np.float32))
    with pytest.raises(ModelError, match="must have shape"):
        load_feeds(path, signature_of(model))


@pytest.mark.parametrize("content", [b"", b"no zip at all", None])
def test_a_file_that_holds_no_arrays(tmp_path: Path, content: bytes | None) -> None:
    model = ir.load(model_file(tmp_path, "g (float[n, 2] x) => (float[n, 2] y) { y = Relu (x) }"))
    path = tmp_path / "in.npz"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ModelError, match=r"in\.npz: cannot be read"):
        load_feeds(path, signature_of(model))


@pytest.mark.skipif(not CORPUS.is_dir(), reason="FUSION_CORPUS names no folder of exported models")
def test_inputs_are_found_for_every_exported_model() -> None:
    for path in sorted(CORPUS.glob("*.onnx")):
        if "bf16" in path.name:
            with pytest.raises(CannotRun, match="NOT_IMPLEMENTED"):
                assert reference_for(path, Options()).feeds
        else:
            assert reference_for(path, Options()).feeds
