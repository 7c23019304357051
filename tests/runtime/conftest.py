"""A model with its bundle, for every test of the runtime."""

from __future__ import annotations

from pathlib import Path

import pytest

from fusion_cli.runtime import write_manifest
from fusion_cli.types import Library
from tests.helpers.emit_helpers import CPU, library
from tests.helpers.plus_one import plus_one, write_model


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
