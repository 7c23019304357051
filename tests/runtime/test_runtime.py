"""The session helper and the bundle's manifest: what is registered, and what is refused."""

from __future__ import annotations

import io
import json
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx.inliner
import onnxruntime as ort
import pytest
from onnx import helper

from fusion_cli.errors import ModelError
from fusion_cli.files import file_sha256
from fusion_cli.planir.stages import Pointwise, Store
from fusion_cli.runtime import METADATA_KEY, bundle, find_library, read_manifest, session, write_manifest
from fusion_cli.runtime.head import Head, read_head
from fusion_cli.runtime.manifest import inside
from fusion_cli.runtime.provider import fit
from fusion_cli.types import FusedOp, Library, Target
from tests.helpers.emit_helpers import CPU, library
from tests.helpers.plan_builder import Builder, Program, fused_op, operands

X = np.array([1.0, 2.0], "f4")
KERNEL, FALLBACK = X + 1, X + 2  # what the two implementations below compute


def plus_one(by: float = 1.0) -> FusedOp:
    b, p = Builder(), Program()
    x = b.input("float32", "N")
    out = b.output("float32", ("N",), 0)
    value = p("Add", p.load(0), p.const(by))
    b.stages.append(Pointwise(operands(x), p.done(), (Store(out, value),), 0))
    return fused_op("Plus_one", b.plan())


def write_model(path: Path, bundle: str | None) -> None:
    """A model whose function adds 2 where its kernel adds 1: the result tells which of them ran."""
    two = helper.make_node("Constant", [], ["two"], value=helper.make_tensor("t", 1, [], [2.0]))
    body = [two, helper.make_node("Add", ["a", "two"], ["b"])]
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("fusion", 1)]
    function = helper.make_function("fusion", "Plus_one", ["a"], ["b"], body, imports[:1])
    info = [helper.make_tensor_value_info(n, 1, ["N"]) for n in "xy"]
    node = helper.make_node("Plus_one", ["x"], ["y"], domain="fusion")
    graph = helper.make_graph([node], "g", info[:1], info[1:])
    model = helper.make_model(graph, opset_imports=imports, ir_version=8, functions=[function])
    if bundle is not None:
        helper.set_model_props(model, {METADATA_KEY: bundle})
    onnx.save(model, path)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return library([plus_one()], tmp_path_factory.mktemp("lib")).path.read_bytes()


@pytest.fixture
def model(tmp_path: Path, built: bytes) -> Path:
    path = tmp_path / "m.onnx"
    write_model(path, "m.fusion")
    kernels = tmp_path / "m.fusion" / "lib" / "libcpu.so"
    kernels.parent.mkdir(parents=True)
    kernels.write_bytes(built)
    made = Library("cpu", kernels, ("Plus_one",))
    write_manifest(tmp_path / "m.fusion", model=path, libraries=[(CPU, made)])
    return path


def result(path: Path | bytes, **options: object) -> np.ndarray:
    return session(path, providers=["CPUExecutionProvider"], **options).run(None, {"x": X})[0]  # type: ignore[arg-type]


def test_registers_the_library_of_the_provider(model: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(result(model), KERNEL)
        np.testing.assert_array_equal(session(str(model)).run(None, {"x": X})[0], KERNEL)


def test_uses_the_callers_options(model: Path) -> None:
    options = ort.SessionOptions()
    options.log_severity_level = 3
    np.testing.assert_array_equal(result(model, sess_options=options), KERNEL)


def test_session_options_serve_one_model_any_number_of_times(
    model: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    options = ort.SessionOptions()
    for _ in range(2):
        np.testing.assert_array_equal(result(model, sess_options=options), KERNEL)
    other = tmp_path_factory.mktemp("other") / "m.onnx"
    shutil.copytree(model.parent, other.parent, dirs_exist_ok=True)
    kernels = other.parent / "m.fusion" / "lib" / "libcpu.so"
    kernels.write_bytes(kernels.read_bytes() + b" ")
    made = Library("cpu", kernels, ("Plus_one",))
    write_manifest(other.parent / "m.fusion", model=other, libraries=[(CPU, made)])
    with pytest.raises(ModelError, match="another model"):
        result(other, sess_options=options)


def test_many_sessions_of_one_library(model: Path) -> None:
    opened = [session(model) for _ in range(3)]
    del opened[0]
    for s in opened:
        np.testing.assert_array_equal(s.run(None, {"x": X})[0], KERNEL)


def test_a_plain_model_just_runs(tmp_path: Path) -> None:
    path = tmp_path / "plain.onnx"
    write_model(path, None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(result(path), FALLBACK)


def test_a_missing_bundle_is_a_warning(model: Path) -> None:
    (model.parent / "m.fusion" / "manifest.json").unlink()
    with pytest.warns(UserWarning, match="no manifest"):
        np.testing.assert_array_equal(result(model), FALLBACK)


def test_a_missing_library_is_a_warning(model: Path) -> None:
    (model.parent / "m.fusion" / "lib" / "libcpu.so").unlink()
    with pytest.warns(UserWarning, match="lacks a library"):
        np.testing.assert_array_equal(result(model), FALLBACK)


def test_a_tampered_library_is_not_loaded(model: Path) -> None:
    with (model.parent / "m.fusion" / "lib" / "libcpu.so").open("ab") as file:
        file.write(b"x")
    with pytest.warns(UserWarning, match="not the one that was built"):
        np.testing.assert_array_equal(result(model), FALLBACK)


def quietly(path: Path | bytes, **options: object) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return result(path, **options)


# ---- a model that another tool has written again


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


# ---- where the bundle lies


def test_model_and_bundle_are_renamed_and_moved_together(model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere" / "1"
    folder.mkdir(parents=True)
    moved = model.rename(folder / "model.onnx")
    (tmp_path / "m.fusion").rename(folder / "model.fusion")
    np.testing.assert_array_equal(quietly(moved), KERNEL)


def test_a_model_that_is_renamed_alone_finds_the_bundle_that_it_names(model: Path) -> None:
    np.testing.assert_array_equal(quietly(model.rename(model.with_name("other.onnx"))), KERNEL)


def test_a_model_in_memory_takes_the_bundle_that_is_given(model: Path) -> None:
    place = model.parent / "m.fusion"
    data = model.read_bytes()
    model.unlink()
    np.testing.assert_array_equal(quietly(data, bundle=place), KERNEL)
    np.testing.assert_array_equal(quietly(data), FALLBACK)
    apart = place.rename(place.with_name("kernels"))
    np.testing.assert_array_equal(quietly(data, bundle=str(apart)), KERNEL)
    (apart / "lib" / "libcpu.so").write_bytes(b"other")
    with pytest.warns(UserWarning, match="not the one that was built"):
        np.testing.assert_array_equal(result(data, bundle=apart), FALLBACK)


def test_a_model_optimized_again_in_the_same_process_gets_its_new_kernels(model: Path) -> None:
    """A loader that has a library of this path open does not look at the file again."""
    first = session(model)
    kernels = model.parent / "m.fusion" / "lib" / "libcpu.so"
    other = library([plus_one(by=5.0)], model.parent / "other").path.read_bytes()
    kernels.unlink()
    kernels.write_bytes(other)
    write_manifest(model.parent / "m.fusion", model=model, libraries=[(CPU, Library("cpu", kernels, ("Plus_one",)))])
    for _ in range(2):
        np.testing.assert_array_equal(quietly(model), X + 5)
    np.testing.assert_array_equal(first.run(None, {"x": X})[0], KERNEL)


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


@pytest.mark.parametrize("bundle", ["../elsewhere", "/tmp", "a/../../b", "", ".", "a\\..\\b"])
def test_a_bundle_outside_the_models_folder_is_refused(tmp_path: Path, bundle: str) -> None:
    path = tmp_path / "m.onnx"
    write_model(path, bundle)
    with pytest.warns(UserWarning, match="leads out of its folder"):
        np.testing.assert_array_equal(result(path), FALLBACK)


def test_a_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "model" / "bundle").symlink_to(tmp_path / "outside")
    with pytest.raises(ModelError, match="leads out"):
        inside(tmp_path / "model", "bundle")


def test_a_manifest_cannot_name_files_elsewhere(model: Path) -> None:
    path = model.parent / "m.fusion" / "manifest.json"
    content = json.loads(path.read_text())
    content["libraries"][0]["path"] = "../../evil.so"
    path.write_text(json.dumps(content))
    with pytest.raises(ModelError, match="leads out"):
        read_manifest(path.parent)


def test_a_manifest_of_another_version_is_not_read(model: Path) -> None:
    path = model.parent / "m.fusion" / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": 1}))
    with pytest.raises(ModelError, match="bundle version 1 is not 2"):
        read_manifest(path.parent)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 1}', '{"version": 2, "libraries": [{}]}', "[" * 100_000])
def test_a_damaged_manifest_is_a_warning(model: Path, text: str) -> None:
    (model.parent / "m.fusion" / "manifest.json").write_text(text)
    with pytest.warns(UserWarning, match="manifest|version"):
        np.testing.assert_array_equal(result(model), FALLBACK)


def test_the_manifest_says_what_was_built(model: Path) -> None:
    manifest = read_manifest(model.parent / "m.fusion")
    (entry,) = manifest.libraries
    assert (entry.kind, entry.ops) == ("cpu", ("Plus_one",))
    assert entry.sha256 == file_sha256(entry.path)


def test_errors_of_the_model_itself(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no such file"):
        session(tmp_path / "none.onnx")
    (tmp_path / "bad.onnx").write_bytes(b"\xff\xff not a model")
    with pytest.raises(ModelError, match="not an ONNX model"):
        session(tmp_path / "bad.onnx")


def test_cuda_libraries_are_chosen_by_compute_capability(monkeypatch: pytest.MonkeyPatch, model: Path) -> None:
    folder = model.parent / "m.fusion"
    kernels = folder / "lib" / "libcpu.so"
    targets = [Target(n, "cuda", n) for n in ("sm_80", "sm_86", "sm_90a")]
    libraries = [(t, Library(t.name, kernels, ("Plus_one",))) for t in [*targets, CPU]]
    write_manifest(folder, model=model, libraries=libraries)
    manifest = read_manifest(folder)
    expectations = {(9, 0): "sm_90a", (12, 1): "sm_86", (8, 9): "sm_86", (8, 0): "sm_80", (7, 5): None, None: None}
    for capability, expected in expectations.items():
        monkeypatch.setattr(bundle, "compute_capability", lambda _, c=capability: c)
        chosen = bundle._choose(manifest, "cuda", 0)
        assert (chosen.target if chosen else None) == expected
    chosen = bundle._choose(manifest, "cpu", 0)
    assert chosen is not None
    assert chosen.kind == "cpu"
    assert bundle._choose(manifest, "", 0) is None


def test_which_kernels_suit_which_providers() -> None:
    both = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    assert bundle._kind([("CUDAExecutionProvider", {}), "CPUExecutionProvider"], both) == "cuda"
    assert bundle._kind(both, ["CPUExecutionProvider"]) == "cpu"
    assert bundle._kind(["AzureExecutionProvider", *both[1:]], ["AzureExecutionProvider", *both[1:]]) == "cpu"
    assert bundle._kind(["OpenVINOExecutionProvider", *both[1:]], ["OpenVINOExecutionProvider", *both]) == ""


@pytest.mark.parametrize(
    ("arch", "capability", "fits"),
    [
        ("sm_80", (8, 0), True),
        ("sm_80", (8, 6), True),
        ("sm_86", (8, 0), False),
        ("sm_80", (9, 0), True),
        ("sm_80", (7, 5), False),
        ("sm_80", (12, 1), True),
        ("sm_89", (8, 6), False),
        ("sm_89", (10, 0), True),
        ("sm_90a", (9, 0), True),
        ("sm_90a", (10, 0), False),
        ("sm_100a", (10, 0), True),
        ("sm_100a", (10, 3), False),
        ("gfx90", (9, 0), False),
    ],
)
def test_fit(arch: str, capability: tuple[int, int], fits: bool) -> None:
    assert bool(fit(arch, capability)) is fits
