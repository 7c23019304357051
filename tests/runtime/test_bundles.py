"""Where the bundle of a model lies, and what its manifest may say."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import fusion_cli
from fusion_cli.errors import ModelError
from fusion_cli.files import file_sha256
from fusion_cli.runtime import read_manifest, session, write_manifest
from fusion_cli.runtime.manifest import inside
from fusion_cli.types import Library
from tests.helpers.emit_helpers import CPU, library
from tests.helpers.graphs import parse
from tests.helpers.plus_one import FALLBACK, KERNEL, X, plus_one, quietly, result, write_model


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


@pytest.mark.parametrize("bundle", ["../elsewhere", "/tmp", "a/../../b", "", ".", "a\\..\\b"])
def test_a_bundle_outside_the_models_folder_is_refused(tmp_path: Path, bundle: str) -> None:
    path = tmp_path / "m.onnx"
    write_model(path, bundle)
    with pytest.warns(UserWarning, match="leads out of its folder"):
        np.testing.assert_array_equal(result(path), FALLBACK)


def test_a_model_that_is_written_as_it_was_may_name_any_bundle(tmp_path: Path) -> None:
    """A fuzzer's model: its own metadata have nothing to do with the bundle that lies beside it now."""
    model = parse("g (float[2] x) => (float[2] y) { y = Relu (x) }")
    model.metadata_props.add(key="fusion.bundle", value="../../etc")
    (tmp_path / "in.onnx").write_bytes(model.SerializeToString())
    report = fusion_cli.optimize(tmp_path / "in.onnx", tmp_path / "out.onnx", targets="portable")
    assert report.choice is not None
    assert report.choice.chosen == "original"
    np.testing.assert_array_equal(quietly(tmp_path / "out.onnx"), np.maximum(X, 0))


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
