"""Models that are wrong, or that a few bytes make large: an error that says what, never a fault of ours or a hang."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.helpers.cli_helpers import call
from tests.helpers.graphs import parse

X, Y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 4]) for name in "xy")
LIMITED = ("--target", "portable", "--timeout", "60")
"""What is not bounded ends in an error; nothing is asserted of how long it takes."""


def model(nodes: Sequence[onnx.NodeProto], tensors: Sequence[onnx.TensorProto] = ()) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "g", [X], [Y], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def write(folder: Path, proto: onnx.ModelProto) -> Path:
    path = folder / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def refused(path: Path, *words: str) -> None:
    """`optimize` says so in one line, and writes nothing."""
    result = call("optimize", path, "-o", path.with_name("out.onnx"), *LIMITED)
    assert result.exit_code == 1, result.output
    (line,) = result.stderr.splitlines()
    assert [w for w in words if w not in line] == [], line
    assert list(path.parent.iterdir()) == [path]


def node(op: str, inputs: Sequence[str] = ("x",), **attributes: object) -> onnx.NodeProto:
    return helper.make_node(op, inputs, ["y"], **attributes)


def odd_attribute(**fields: object) -> onnx.NodeProto:
    made = node("Softmax")
    made.attribute.append(onnx.AttributeProto(**fields))
    return made


@pytest.mark.parametrize(
    "made",
    [
        odd_attribute(),
        odd_attribute(name="axis", i=1),
        odd_attribute(name="axis", type=onnx.AttributeProto.FLOAT),
        odd_attribute(name="axis", type=onnx.AttributeProto.STRING, s=b"one"),
        node("Cast", to=99),
        node("Loop", ["", "", "x"]),
        node("If"),
        odd_attribute(name="axis", i=0, type=onnx.AttributeProto.INT, ref_attr_name="other"),
        node("MatMul"),
        node("Softmax", []),
        node("LayerNormalization"),
    ],
    ids=["nameless", "typeless", "float", "string", "cast", "loop", "if", "reference", "matmul", "softmax", "norm"],
)
def test_a_malformed_node_is_the_models_fault(tmp_path: Path, made: onnx.NodeProto) -> None:
    refused(write(tmp_path, model([made])), "m.onnx: ")


def tensor(**fields: object) -> onnx.ModelProto:
    return model([node("Add", ["x", "w"])], [TensorProto(name="w", **fields)])


def test_tensors_without_a_type_or_without_data(tmp_path: Path) -> None:
    refused(write(tmp_path, tensor(data_type=0, dims=[4], raw_data=b"1234")), "malformed", "UNDEFINED")
    refused(write(tmp_path, tensor(data_type=77, dims=[4], raw_data=b"1234")), "malformed", "77")
    refused(write(tmp_path, tensor(data_type=1, dims=[1 << 20, 1 << 20])), "tensor 'w' holds no data")


def test_a_location_that_is_no_path(tmp_path: Path) -> None:
    location = onnx.StringStringEntryProto(key="location", value="a\0b")
    proto = tensor(data_type=1, dims=[4], data_location=TensorProto.EXTERNAL, external_data=[location])
    refused(write(tmp_path, proto), "lies outside the model's folder")


def test_a_name_that_is_no_text(tmp_path: Path) -> None:
    proto = model([node("Relu")])
    proto.graph.node[0].name = "AAAA"
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString().replace(b"AAAA", b"\xff\xfe\xfd\xfc"))
    refused(tmp_path / "m.onnx", "is not text")


def test_bodies_that_are_nested_too_deep(tmp_path: Path) -> None:
    def field(number: int, content: bytes) -> bytes:
        size, head = len(content), [number << 3 | 2]
        while size > 127:
            head.append(size & 127 | 128)
            size >>= 7
        return bytes([*head, size]) + content

    body = b""
    for _ in range(34):  # Python's protobuf cannot write them either
        body = field(1, field(4, b"If") + field(5, field(1, b"then_branch") + field(6, body) + b"\xa0\x01\x05"))
    (tmp_path / "m.onnx").write_bytes(b"\x08\x08" + field(7, body) + field(8, b"\x10\x11"))
    refused(tmp_path / "m.onnx", "nested too deep")


def with_functions(bodies: Sequence[Sequence[str]]) -> onnx.ModelProto:
    """Functions F0, F1...: one call after the other; the last one is called."""
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]
    functions = []
    for i, ops in enumerate(bodies):
        values = ["a", *(f"t{k}" for k in range(1, len(ops))), "b"]
        nodes = [
            helper.make_node(op, [values[k]], [values[k + 1]], domain="f" if op[0] == "F" else "")
            for k, op in enumerate(ops)
        ]
        functions.append(helper.make_function("f", f"F{i}", ["a"], ["b"], nodes, imports))
    proto = model([node(f"F{len(bodies) - 1}", domain="f")])
    proto.functions.extend(functions)
    proto.opset_import.append(imports[1])
    return proto


def test_functions_without_end(tmp_path: Path) -> None:
    refused(write(tmp_path, with_functions([["F1"], ["F0"]])), "functions call themselves: 'F")
    doubling = [["Relu"], *([f"F{i}", f"F{i}"] for i in range(30))]
    refused(write(tmp_path, with_functions(doubling)), "where its functions are called there are 1073741824 nodes")


def test_what_has_too_many_parts(tmp_path: Path) -> None:
    refused(write(tmp_path, model([node("Concat", ["x"] * 1_000_000, axis=0)])), "'Concat' has 1000000 inputs (divide")
    many = model([])
    many.graph.node.extend([node("Relu")] * 250_001)
    refused(write(tmp_path, many), "the model has 250001 nodes (divide")
    parts = helper.make_node("Split", ["x"], [f"s{i}" for i in range(100_000)], axis=0)
    refused(write(tmp_path, model([parts, node("Relu")])), "'Split' has 100000 outputs (divide it: 10000 are the most")
    many = model([node("Relu")])
    many.graph.output.extend([Y] * 100_000)
    refused(write(tmp_path, many), "a graph has 100001 outputs")
    many = model([node("Relu")])
    many.graph.input.extend(helper.make_tensor_value_info(f"i{k}", TensorProto.FLOAT, [1]) for k in range(100_000))
    refused(write(tmp_path, many), "a graph has 100001 inputs without a value (divide it: 10000 are the most")
    small = [TensorProto(name=f"w{k}", data_type=1, dims=[1], raw_data=b"1234") for k in range(200_000)]
    refused(write(tmp_path, model([node("Relu")], small)), "a graph has 200000 initializers (join some")
    deep = model([node("Relu")])
    deep.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", TensorProto.FLOAT, [1] * 65))
    refused(write(tmp_path, deep), "'x' has 65 axes (a tensor has 64 at the most")
    refused(write(tmp_path, tensor(data_type=1, dims=[1] * 65, raw_data=b"1234")), "'w' has 65 axes")


def test_weights_that_are_inputs_too_need_not_be_given(tmp_path: Path) -> None:
    """As all are in models of IR version 3."""
    small = [TensorProto(name=f"w{k}", data_type=1, dims=[1], raw_data=b"1234") for k in range(10_001)]
    proto = model([node("Relu")], small)
    proto.graph.input.extend(helper.make_tensor_value_info(t.name, TensorProto.FLOAT, [1]) for t in small)
    result = call("explain", write(tmp_path, proto), *LIMITED)
    assert result.exit_code == 0, result.output


def chain(op: Callable[[str, str], onnx.NodeProto], start: onnx.NodeProto | None, length: int = 40) -> onnx.ModelProto:
    """Each node reads what the one before made, twice."""
    names = ["c", *(f"v{i}" for i in range(length))]
    nodes = [*([] if start is None else [start]), *(op(a, b) for a, b in pairwise(names))]
    return model([*nodes, helper.make_node("ConstantOfShape", [names[-1]], ["y"])])


def concat(a: str, b: str) -> onnx.NodeProto:
    return helper.make_node("Concat", [a, a], [b], axis=0)


def square(a: str, b: str) -> onnx.NodeProto:
    return helper.make_node("Mul", [a, a], [b])


@pytest.mark.parametrize("op", [concat, square])
@pytest.mark.parametrize("constant", [False, True])
def test_values_that_double_with_each_node(
    tmp_path: Path, op: Callable[[str, str], onnx.NodeProto], constant: bool
) -> None:
    proto = chain(op, None if constant else helper.make_node("Shape", ["x"], ["c"]))
    if constant:
        proto.graph.initializer.append(numpy_helper.from_array(np.array([3, 5]), "c"))
    result = call("explain", write(tmp_path, proto), *LIMITED)
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    ("op", "constants"),
    [
        ("ConstantOfShape", [[1 << 40]]),
        ("Tile", [[1.0], [1 << 40]]),
        ("Expand", [[1.0], [1 << 40]]),
        ("Range", [0, 1 << 40, 1]),
        ("Pad", [[1.0], [0, 1 << 40]]),
    ],
)
def test_a_few_constants_that_make_many_are_not_folded(tmp_path: Path, op: str, constants: Sequence[object]) -> None:
    arrays = [np.array(c, np.float32 if isinstance(c, list) and c[0] == 1.0 else np.int64) for c in constants]
    tensors = [numpy_helper.from_array(array, f"c{i}") for i, array in enumerate(arrays)]
    made = helper.make_node(op, [t.name for t in tensors], ["made"])
    size = helper.make_node("Size", ["made"], ["size"])
    proto = model([made, size, helper.make_node("CastLike", ["size", "x"], ["s"]), node("Add", ["x", "s"])], tensors)
    result = call("explain", write(tmp_path, proto), *LIMITED)
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("size", ["9**9**9**9", "(" * 3000 + "n" + ")" * 3000, "n" * 100_000])
def test_sizes_that_are_hard_to_read(tmp_path: Path, size: str) -> None:
    proto = model([node("Relu")])
    for value in (*proto.graph.input, *proto.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = size
    result = call("explain", write(tmp_path, proto), *LIMITED)
    assert result.exit_code == 0, result.output


def test_a_name_begins_no_line_and_fills_no_log(tmp_path: Path) -> None:
    names = ["\n::error file=x::forged", "N" * 1_000_000]
    proto = parse("g (float[n, 4] x) => (float[n, 4] y) { a = Exp (x) y = TopK2 (a) }")
    for made, name in zip(proto.graph.node, names, strict=True):
        made.name = name
    for command in (("explain",), ("optimize", "-o", tmp_path / "out.onnx")):
        result = call(command[0], write(tmp_path, proto), *command[1:], *LIMITED)
        assert not any(line.startswith("::") for line in result.output.splitlines())
        assert len(result.output) < 50_000
