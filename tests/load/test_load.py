"""Models that must be refused, each with a message that says what, where and how to mend it."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from fusion_cli.errors import ModelError
from fusion_cli.load import is_fused, load_model
from fusion_cli.load.overridable import is_constant
from fusion_cli.sizes.dims import dims_of
from tests.helpers.graphs import parse


def small_model(opset: int = 17) -> onnx.ModelProto:
    weight = numpy_helper.from_array(np.ones((3, 3), np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], name="product")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 3])],
        [weight],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def write(tmp_path: Path, model: onnx.ModelProto, name: str = "m.onnx") -> Path:
    path = tmp_path / name
    path.write_bytes(model.SerializeToString())
    return path


def external(tmp_path: Path, location: str, **entries: str) -> Path:
    model = small_model()
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=value)
    return write(tmp_path, model)


def test_a_good_model_loads(tmp_path: Path) -> None:
    model = load_model(write(tmp_path, small_model()))
    assert [n.op_type for n in model.graph] == ["MatMul"]
    assert not is_fused(model)


def test_external_data_loads_from_the_models_folder(tmp_path: Path) -> None:
    weights = np.arange(9, dtype=np.float32)
    (tmp_path / "w.bin").write_bytes(weights.tobytes())
    model = load_model(external(tmp_path, "w.bin", length="36"))
    value = model.graph.initializers["w"].const_value
    assert value is not None
    np.testing.assert_array_equal(value.numpy(), weights.reshape(3, 3))


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"nothere\.onnx: no such file"):
        load_model(tmp_path / "nothere.onnx")


def test_folder(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="is a folder"):
        load_model(tmp_path)


@pytest.mark.parametrize("data", [b"", b"hello, this is text", b"\x89PNG\r\n\x1a\n" + bytes(64)])
def test_not_onnx(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(data)
    with pytest.raises(ModelError, match="not an ONNX model"):
        load_model(path)


def test_cut_short(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(small_model().SerializeToString()[:-20])
    with pytest.raises(ModelError, match="cut short or damaged"):
        load_model(path)


@pytest.mark.parametrize("opset", [6, 99])
def test_unsupported_opset(tmp_path: Path, opset: int) -> None:
    with pytest.raises(ModelError, match=f"opset {opset} is not supported.*convert the model"):
        load_model(write(tmp_path, small_model(opset)))


def test_no_opset(tmp_path: Path) -> None:
    model = small_model()
    del model.opset_import[:]
    with pytest.raises(ModelError, match="imports no version"):
        load_model(write(tmp_path, model))


def test_external_data_missing(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"tensor 'w'.*'gone\.bin' is missing"):
        load_model(external(tmp_path, "gone.bin"))


@pytest.mark.parametrize("location", ["../outside.bin", "/etc/hostname", ""])
def test_external_data_outside_the_folder(tmp_path: Path, location: str) -> None:
    inner = tmp_path / "model"
    inner.mkdir()
    (tmp_path / "outside.bin").write_bytes(bytes(36))
    with pytest.raises(ModelError, match="outside the model's folder"):
        load_model(external(inner, location))


def test_external_data_behind_a_link_out_of_the_folder(tmp_path: Path) -> None:
    inner = tmp_path / "model"
    inner.mkdir()
    (tmp_path / "outside.bin").write_bytes(bytes(36))
    (inner / "w.bin").symlink_to(tmp_path / "outside.bin")
    with pytest.raises(ModelError, match="outside the model's folder"):
        load_model(external(inner, "w.bin"))


@pytest.mark.parametrize("entries", [{}, {"offset": "8"}, {"length": "36"}])
def test_external_data_cut_short(tmp_path: Path, entries: dict[str, str]) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(20))
    with pytest.raises(ModelError, match="cut short"):
        load_model(external(tmp_path, "w.bin", **entries))


@pytest.mark.parametrize("entries", [{"length": "4"}, {"length": "-1"}, {"offset": "-4"}])
def test_external_data_of_a_wrong_size(tmp_path: Path, entries: dict[str, str]) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(64))
    with pytest.raises(ModelError, match="where its shape needs"):
        load_model(external(tmp_path, "w.bin", **entries))


def test_raw_data_of_a_wrong_size(tmp_path: Path) -> None:
    model = small_model()
    model.graph.initializer[0].dims[0] = 1 << 40
    with pytest.raises(ModelError, match="'w' holds 36 bytes"):
        load_model(write(tmp_path, model))


def overridable(ir_version: int) -> onnx.ModelProto:
    """y = x w + b, with w and b listed as graph inputs too."""
    model = parse("g (float[2,3] x, float[3,3] w, float[3] b) => (float[2,3] y) { m = MatMul (x, w) y = Add (m, b) }")
    for name, shape in (("w", (3, 3)), ("b", (3,))):
        model.graph.initializer.append(numpy_helper.from_array(np.ones(shape, np.float32), name))
    model.ir_version = ir_version
    return model


@pytest.mark.parametrize(
    ("ir_version", "assumed", "inputs"),
    [(8, (), ["x", "w", "b"]), (8, ("w",), ["x", "b"]), (8, ("all",), ["x"]), (4, (), ["x", "w", "b"]), (3, (), ["x"])],
)
def test_initializers_among_the_inputs(
    tmp_path: Path, ir_version: int, assumed: tuple[str, ...], inputs: list[str]
) -> None:
    model = load_model(write(tmp_path, overridable(ir_version)), assumed)
    assert [v.name for v in model.graph.inputs] == inputs
    assert set(model.graph.initializers) == {"w", "b"}
    assert {name for name, v in model.graph.initializers.items() if is_constant(v)} == {"w", "b"} - set(inputs)


@pytest.mark.parametrize(
    ("name", "message"),
    [("ww", "did you mean 'w'"), ("x", "has no initializer"), ("nothing", "no graph input 'nothing'")],
)
def test_a_name_that_cannot_be_assumed_constant(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(ModelError, match=re.escape(message)) as error:
        load_model(write(tmp_path, overridable(8)), [name])
    assert "all" in error.value.hint
    with pytest.raises(ModelError, match="leave --assume-constant out"):
        load_model(write(tmp_path, small_model()), ["w"])


def test_a_negative_dimension_is_an_unknown_one(tmp_path: Path) -> None:
    """Some exporters write -1 for a batch; no size is negative, and two such are not the same."""
    model = parse("g (float[2, 3] x, float[2, 3] z) => (float[2, 3] y) { y = Add (x, z) }")
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = -1
    onnx.save(model, tmp_path / "m.onnx")
    first, second = (dims_of(v) for v in load_model(tmp_path / "m.onnx").graph.inputs)
    assert first is not None
    assert second is not None
    assert isinstance(first[0], str)
    assert first[0] != second[0]
    assert first[1] == second[1] == 3
