"""A model that another tool has written again: what keeps its kernels, and how little of it is read."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx.inliner
import pytest
from onnx import helper

from fusion_cli.errors import ModelError
from fusion_cli.runtime import find_library
from fusion_cli.runtime.head import Head, read_head
from tests.helpers.plus_one import FALLBACK, KERNEL, X, quietly, result


def rewrite(model: Path, change: Callable[[onnx.ModelProto], object]) -> None:
    proto = onnx.load(model)
    change(proto)
    onnx.save(proto, model)


def nothing_but_names(proto: onnx.ModelProto) -> None:
    proto.doc_string = proto.functions[0].doc_string = "edited"
    proto.producer_name = "another tool"
    proto.graph.node[0].name = "renamed"
    proto.functions[0].node[0].name = "renamed too"
    proto.functions[0].metadata_props.add(key="said", value="something")
    attribute = proto.functions[0].node[0].attribute[0]
    attribute.t.name, attribute.doc_string = "other", "the number two"
    proto.ClearField("metadata_props")


def more_nodes(proto: onnx.ModelProto) -> None:
    """Twice the input, before the function."""
    proto.graph.node.insert(0, helper.make_node("Add", ["x", "x"], ["xx"]))
    proto.graph.node[1].input[0] = "xx"


def test_what_another_tool_writes_again_keeps_its_kernels(model: Path) -> None:
    rewrite(model, more_nodes)
    np.testing.assert_array_equal(quietly(model), 2 * X + 1)


def test_only_what_a_function_computes_is_looked_at(model: Path) -> None:
    before = read_head(model).functions
    rewrite(
        model, lambda proto: proto.functions[0].node[0].attribute[0].t.CopyFrom(helper.make_tensor("n", 1, [], [2.0]))
    )
    rewrite(model, lambda proto: proto.ClearField("metadata_props"))
    assert read_head(model) == Head(None, before)
    np.testing.assert_array_equal(quietly(model), KERNEL)


BODIES: dict[str, Callable[[onnx.FunctionProto], object]] = {
    "operator": lambda f: setattr(f.node[1], "op_type", "Sub"),
    "operands": lambda f: f.node[1].input.__setitem__(1, "a"),
    "number": lambda f: f.node[0].attribute[0].t.CopyFrom(helper.make_tensor("t", 1, [], [3.0])),
    "type": lambda f: f.node[0].attribute[0].t.CopyFrom(helper.make_tensor("t", 1, [1], [2.0])),
    "opset": lambda f: setattr(f.opset_import[0], "version", 18),
    "attribute": lambda f: f.node[1].attribute.add(name="axis", i=1, type=2),
    "result": lambda f: f.output.__setitem__(0, "two"),
}


@pytest.mark.parametrize("change", BODIES.values(), ids=list(BODIES))
def test_a_changed_function_does_not_use_old_kernels(
    model: Path, change: Callable[[onnx.FunctionProto], object]
) -> None:
    rewrite(model, lambda proto: change(proto.functions[0]))
    library = ["CPUExecutionProvider"]
    with pytest.raises(ModelError, match="function 'Plus_one' was changed after it was optimized"):
        find_library(model, library, library)


def test_a_changed_function_runs_on_its_nodes(model: Path) -> None:
    rewrite(model, lambda proto: BODIES["number"](proto.functions[0]))
    with pytest.warns(UserWarning, match="changed after it was optimized"):
        np.testing.assert_array_equal(result(model), X + 3)


def test_a_model_whose_functions_were_taken_out_says_so(model: Path) -> None:
    def inline(proto: onnx.ModelProto) -> None:
        proto.CopyFrom(onnx.inliner.inline_local_functions(proto))

    rewrite(model, inline)
    with pytest.warns(UserWarning, match="has no function that libcpu.so has a kernel for"):
        np.testing.assert_array_equal(result(model), FALLBACK)


def test_numbers_are_read_packed_or_one_by_one() -> None:
    """Other languages' protobuf writes repeated numbers packed, and leaves out zeros."""
    ints, packed = b"".join(bytes([8 << 3, n]) for n in (1, 0, 5)), bytes([8 << 3 | 2, 3, 1, 0, 5])
    digests = []
    for attribute in (
        b"\x0a\x04axes" + bytes([3 << 3, 0]) + ints,
        b"\x0a\x04axes" + packed,
        b"\x0a\x04axes" + ints[2:],
    ):
        node = b"\x22\x01N" + bytes([5 << 3 | 2, len(attribute)]) + attribute
        function = b"\x0a\x01F" + bytes([7 << 3 | 2, len(node)]) + node + bytes([10 << 3 | 2, 6]) + b"fusion"
        data = bytes([0xCA, 0x01, len(function)]) + function
        digests += read_head(data).functions.values()
    assert digests[0] == digests[1] != digests[2]
    assert len(digests) == 3


def test_attributes_and_imports_come_in_any_order() -> None:
    digests = set()
    for step in (1, -1):
        node = helper.make_node("Concat", ["a"], ["b"])
        node.attribute.extend([helper.make_attribute("axis", 0), helper.make_attribute("other", 1)][::step])
        imports = [helper.make_opsetid("", 17), helper.make_opsetid("fusion", 1)]
        function = helper.make_function("fusion", "F", ["a"], ["b"], [node], imports[::step])
        graph = helper.make_graph([], "g", [], [])
        digests.add(read_head(helper.make_model(graph, functions=[function]).SerializeToString()).functions["F"])
    assert len(digests) == 1


@pytest.mark.parametrize("data", [b"", b"\x0f", b"\xca\x01\x7f", b"\xca\x01\x02\x38\x05", b"\xff" * 12])
def test_what_is_no_model_is_not_read_on(data: bytes) -> None:
    if not data:
        assert read_head(data) == Head(None, {})  # ONNX Runtime says what is wrong with it
        return
    with pytest.raises(ModelError, match="the model in memory: this is not an ONNX model"):
        read_head(data)


def test_graph_and_weights_are_passed_over(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weight = onnx.numpy_helper.from_array(np.zeros(1 << 20, np.float32), "w")
    rewrite(model, lambda proto: proto.graph.initializer.append(weight))
    read: list[int] = []

    class Counting(io.FileIO):
        def read(self, size: int = -1) -> bytes:
            read.append(size)
            return super().read(size)

    monkeypatch.setattr(Path, "open", lambda path, mode: Counting(path, mode))
    assert set(read_head(model).functions) == {"Plus_one"}
    assert 0 < sum(read) < 2000
