"""A model and what `optimize` makes of it, for all tests of a module."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.cli_helpers import call, write_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def model(folder: Path) -> Path:
    return write_model(folder / "model.onnx")


@pytest.fixture(scope="module")
def fused(model: Path, folder: Path) -> Path:
    """The model with CPU kernels for all that can have one."""
    out = folder / "fused.onnx"
    result = call("optimize", model, "-o", out, "--target", "cpu", "--force")
    assert result.exit_code == 0, result.output
    return out
