"""An output appears whole or not at all, and takes the place of nothing but an output."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from fusion_cli.errors import FusionError, ModelError
from fusion_cli.runtime import METADATA_KEY, read_manifest, write_manifest
from fusion_cli.save import commit, save_model, staging
from fusion_cli.types import Library, Target
from tests.helpers.graphs import parse

CPU = Target("cpu", "cpu")


def content(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def write(folder: Path, value: float, source: str = "code") -> None:
    """An output: a model with a weight of this value in a file of its own, and a bundle of this source."""
    bundle = folder / "out.fusion"
    (bundle / "lib").mkdir(parents=True)
    weight = np.full(8, value, np.float32).tobytes()
    data = f"out.onnx-{hashlib.sha256(weight).hexdigest()[:16]}.data"
    (folder / data).write_bytes(weight)
    model = parse("g (float[8] x) => (float[8] y) { y = Add (x, w) }", {"w": (8,)})
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=data)
    onnx.helper.set_model_props(model, {METADATA_KEY: "out.fusion"})
    onnx.save(model, folder / "out.onnx")
    (bundle / f"{source}.cc").write_text(source)
    library = Library("cpu", bundle / "lib" / "libcpu.so", ())
    library.path.write_text(f"kernels of {source}")
    write_manifest(bundle, model=folder / "out.onnx", libraries=[(CPU, library)], data=[data])


@pytest.fixture
def original(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    onnx.save(parse("g (float[8] x) => (float[8] y) { y = Relu (x) }"), path)
    return path


def put(original: Path, value: float, source: str = "code", overwrite: bool = False) -> None:
    """Write an output beside the original."""
    with staging(original.with_name("out.onnx"), original, overwrite) as stage:
        stage.bundle.rmdir()
        write(stage.folder, value, source)
        commit(stage)


# ---- one takes the place of the other


def test_everything_is_replaced(original: Path, tmp_path: Path) -> None:
    before = content(tmp_path)
    put(original, 1, "one")
    put(original, 2, "two")
    expected = tmp_path.with_name(f"{tmp_path.name}-expected")
    write(expected, 2, "two")
    assert content(tmp_path) == before | content(expected)


def failing(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Have the move of that number fail."""
    moves = iter(range(1000))

    def move(real: Callable[[Path, Path], None], source: Path, target: Path) -> None:
        if next(moves) == number:
            raise OSError(28, "No space left on device", str(target))
        real(source, target)

    for name in ("rename", "replace"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda source, target, real=real: move(real, source, target))


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("before", [None, 1])
def test_a_move_that_fails_leaves_what_was_there(
    original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, before: float | None
) -> None:
    """Three moves come before the switch is done: that of the bundle, the weights and the model."""
    if before is not None:
        put(original, before, "one")
    old = content(tmp_path)
    with monkeypatch.context() as patch:
        failing(patch, number)
        with pytest.raises(FusionError, match=r"out\.onnx: cannot be written: No space left on device \(make room"):
            put(original, 2, "two")
    assert content(tmp_path) == old
    put(original, 2, "two")


def test_a_loss_of_power_leaves_the_old_or_the_new_output_whole(
    original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of what is not flushed nothing may be on the disk: all that is new when the model takes its name has to be, with
    the names of what went before, and that name has to be before anything old goes."""
    put(original, 1, "one")
    flushed: set[int] = set()
    switched = False

    def fsync(descriptor: int) -> None:
        flushed.add(os.fstat(descriptor).st_ino)

    def replace(real: Callable[[Path, Path], None], source: Path, target: Path) -> None:
        nonlocal switched
        if target.name == "out.onnx":
            arrived = next(tmp_path.glob(".out.fusion-*"))
            new = [source, *(p for p in (arrived, *arrived.rglob("*"))), *set(tmp_path.glob("*.data")) - old]
            assert [p for p in (*new, tmp_path) if p.stat().st_ino not in flushed] == []
            switched = True
            flushed.clear()
        elif switched and not target.name.startswith("."):
            assert tmp_path.stat().st_ino in flushed
        real(source, target)

    old = set(tmp_path.glob("*.data"))
    monkeypatch.setattr(os, "fsync", fsync)
    for name in ("rename", "replace"):
        monkeypatch.setattr(os, name, partial(replace, getattr(os, name)))
    put(original, 2, "two")
    assert switched


# ---- what is not ours stays


def refused(original: Path, folder: Path, *words: str) -> None:
    """An output is refused, also with --overwrite, and nothing changes."""
    before = content(folder)
    for overwrite in (False, True):
        with pytest.raises(FusionError) as caught:
            put(original, 2, "two", overwrite)
        assert [w for w in words if w not in str(caught.value)] == []
    assert content(folder) == before


def test_a_file_that_was_not_written_by_us_stays(original: Path, tmp_path: Path) -> None:
    (tmp_path / "out.onnx").write_text("a thesis")
    refused(original, tmp_path, "out.onnx: exists, and nothing says that fusion-cli wrote it")


def test_an_empty_file_keeps_only_the_name(original: Path, tmp_path: Path) -> None:
    (tmp_path / "out.onnx").touch()
    put(original, 2, "two")
    assert (tmp_path / "out.fusion" / "two.cc").exists()


def test_an_output_that_was_changed_is_replaced_if_asked(original: Path, tmp_path: Path) -> None:
    put(original, 1, "one")
    with (tmp_path / "out.onnx").open("ab") as file:
        file.write(b"edited")
    before = content(tmp_path)
    with pytest.raises(FusionError, match=r"was changed after fusion-cli wrote it \(--overwrite"):
        put(original, 2, "two")
    assert content(tmp_path) == before
    put(original, 2, "two", overwrite=True)
    assert (tmp_path / "out.fusion" / "two.cc").exists()


def test_a_folder_of_the_bundles_name_stays(original: Path, tmp_path: Path) -> None:
    (tmp_path / "out.fusion").mkdir()
    (tmp_path / "out.fusion" / "notes.txt").write_text("notes")
    refused(original, tmp_path, "out.fusion: is where the bundle goes", "no manifest")


@pytest.mark.parametrize("kind", ["file", "link"])
def test_what_is_no_folder_stays_where_the_bundle_goes(original: Path, tmp_path: Path, kind: str) -> None:
    if kind == "file":
        (tmp_path / "out.fusion").write_text("text")
    else:
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "out.fusion").symlink_to("elsewhere")
    refused(original, tmp_path, "out.fusion: is where the bundle goes, and no folder")
    assert (tmp_path / "out.fusion").is_symlink() == (kind == "link")


@pytest.mark.parametrize("name", ["notes.txt", "src/mine/notes.txt", "lib/more"])
def test_a_users_file_in_the_bundle_stays(original: Path, tmp_path: Path, name: str) -> None:
    put(original, 1, "one")
    path = tmp_path / "out.fusion" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir() if name.endswith("more") else path.write_text("notes")
    refused(original, tmp_path, "holds what fusion-cli did not write", f"'{name}'")


def test_another_models_bundle_stays(original: Path, tmp_path: Path) -> None:
    put(original, 1, "one")
    with (
        pytest.raises(FusionError, match=r"out\.fusion: is the bundle of 'out\.onnx'"),
        staging(tmp_path / "out.ort", original),
    ):
        pass


def test_weights_of_another_are_not_overwritten(original: Path, tmp_path: Path) -> None:
    expected = tmp_path.with_name(f"{tmp_path.name}-expected")
    write(expected, 2, "two")
    (data,) = expected.glob("*.data")
    (tmp_path / data.name).write_text("a stranger's")
    refused(original, tmp_path, data.name, "is not what its name says")


def test_weights_that_the_original_is_read_from_stay(original: Path, tmp_path: Path) -> None:
    """The original was an output itself, and has another name now."""
    put(original, 1, "one")
    (tmp_path / "out.onnx").rename(original)
    put(original, 2, "two")
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(onnx.load(original).graph.initializer[0]), np.ones(8))


def test_a_manifest_cannot_have_other_files_removed(original: Path, tmp_path: Path) -> None:
    put(original, 1, "one")
    (tmp_path / "precious.data").write_text("precious")
    write_manifest(
        tmp_path / "out.fusion", model=tmp_path / "out.onnx", libraries=[], data=["precious.data", "../x", "model.onnx"]
    )
    put(original, 2, "two")
    assert (tmp_path / "precious.data").exists()
    assert original.exists()


@pytest.mark.parametrize("kind", ["fifo", "link", "device"])
def test_special_files_are_not_replaced(original: Path, tmp_path: Path, kind: str) -> None:
    out = tmp_path / "out.onnx"
    if kind == "fifo":
        os.mkfifo(out)
    else:
        out.symlink_to("/dev/null" if kind == "device" else "model.onnx")
    before = out.lstat().st_mode
    with pytest.raises(FusionError, match="is not a regular file"):
        put(original, 2, "two", overwrite=True)
    assert out.lstat().st_mode == before


def test_the_model_that_is_read_is_not_written(original: Path, tmp_path: Path) -> None:
    (tmp_path / "out.onnx").hardlink_to(original)
    refused(original, tmp_path, "out.onnx: is the model that is read")


def test_the_folder_of_a_run_that_goes_on_is_not_collected(original: Path, tmp_path: Path) -> None:
    with staging(tmp_path / "out.onnx", original) as stage:
        put(original, 1, "one")
        assert stage.bundle.is_dir()


# ---- what is written


def test_a_model_that_the_checker_rejects_is_not_written_unless_the_original_was_such(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.onnx", tmp_path / "bad.onnx"
    onnx.save(parse("g (float[n] x) => (float[n] y) { y = Relu (x) }"), good)
    wrong = parse("g (float[n] x) => (float[n] y) { y = Relu (x, x) }")
    onnx.save(wrong, bad)
    with (
        staging(tmp_path / "out.onnx", good) as stage,
        pytest.raises(ModelError, match="the checker rejects the model"),
    ):
        save_model(ir.from_proto(wrong), stage, [None])
    with staging(tmp_path / "out.onnx", bad) as stage:
        save_model(ir.from_proto(wrong), stage, [None])
        assert stage.model.is_file()


def test_the_manifest_names_all_that_was_written(original: Path, tmp_path: Path) -> None:
    put(original, 1, "one")
    manifest = read_manifest(tmp_path / "out.fusion")
    assert (manifest.model, manifest.files) == ("out.onnx", {"one.cc", "lib/libcpu.so"})
    assert [(tmp_path / name).is_file() for name in manifest.data] == [True]
