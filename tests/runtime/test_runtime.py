"""The session helper: what is registered, for which providers and devices."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

from fusion_cli.errors import ModelError
from fusion_cli.runtime import bundle, read_manifest, session, write_manifest
from fusion_cli.runtime.provider import fit
from fusion_cli.types import Library, Target
from tests.helpers.emit_helpers import CPU
from tests.helpers.plus_one import FALLBACK, KERNEL, X, result, write_model


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
