"""The session helper and the bundle's manifest: what is registered, and what is refused."""

from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper

from fusion_cli.errors import ModelError
from fusion_cli.files import file_sha256
from fusion_cli.planir.stages import Pointwise, Store
from fusion_cli.runtime import METADATA_KEY, read_manifest, session, write_manifest
from fusion_cli.runtime.manifest import inside
from fusion_cli.runtime.provider import fit
from fusion_cli.types import FusedOp, Library, Target
from tests.helpers.emit_helpers import CPU, library
from tests.helpers.plan_builder import Builder, Program, fused_op, operands

X = np.array([1.0, 2.0], "f4")
KERNEL, FALLBACK = X + 1, X + 2  # what the two implementations below compute


def plus_one() -> FusedOp:
    b, p = Builder(), Program()
    x = b.input("float32", "N")
    out = b.output("float32", ("N",), 0)
    value = p("Add", p.load(0), p.const(1.0))
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


def result(path: Path, **options: object) -> np.ndarray:
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


def test_a_changed_model_does_not_use_old_kernels(model: Path) -> None:
    proto = onnx.load(model)
    proto.doc_string = "edited"
    onnx.save(proto, model)
    with pytest.warns(UserWarning, match="changed after it was optimized"):
        np.testing.assert_array_equal(result(model), FALLBACK)


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
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": 2}))
    with pytest.raises(ModelError, match="bundle version 2 is not 1"):
        read_manifest(path.parent)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 2}', '{"version": 1, "libraries": [{}]}'])
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
    from fusion_cli import runtime

    bundle = model.parent / "m.fusion"
    kernels = bundle / "lib" / "libcpu.so"
    targets = [Target(n, "cuda", n) for n in ("sm_80", "sm_86", "sm_90a")]
    libraries = [(t, Library(t.name, kernels, ("Plus_one",))) for t in [*targets, CPU]]
    write_manifest(bundle, model=model, libraries=libraries)
    manifest = read_manifest(bundle)
    expectations = {(9, 0): "sm_90a", (12, 1): "sm_86", (8, 9): "sm_86", (8, 0): "sm_80", (7, 5): None, None: None}
    for capability, expected in expectations.items():
        monkeypatch.setattr(runtime, "compute_capability", lambda _, c=capability: c)
        chosen = runtime._choose(manifest, "cuda", 0)
        assert (chosen.target if chosen else None) == expected
    chosen = runtime._choose(manifest, "cpu", 0)
    assert chosen is not None
    assert chosen.kind == "cpu"
    assert runtime._choose(manifest, "", 0) is None


def test_which_kernels_suit_which_providers() -> None:
    from fusion_cli.runtime import _kind

    both = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    assert _kind([("CUDAExecutionProvider", {}), "CPUExecutionProvider"], both) == "cuda"
    assert _kind(both, ["CPUExecutionProvider"]) == "cpu"
    assert _kind(["AzureExecutionProvider", *both[1:]], ["AzureExecutionProvider", *both[1:]]) == "cpu"
    assert _kind(["OpenVINOExecutionProvider", *both[1:]], ["OpenVINOExecutionProvider", *both]) == ""


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
