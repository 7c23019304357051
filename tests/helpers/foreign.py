"""Models of others beside what becomes of them: that both compute the same, or that the model is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from fusion_cli.errors import ModelError
from fusion_cli.load import load_model

X = np.random.default_rng(5).normal(size=(2, 3, 4)).astype(np.float32)
Run = Callable[..., list[np.ndarray]]
Both = Callable[..., tuple[Run, Run]]
"""Makes of a model what runs it, and what runs it optimized."""


def same(runs: tuple[Run, Run], **feeds: np.ndarray) -> list[np.ndarray]:
    expected, found = (run(**feeds) for run in runs)
    for a, b in zip(expected, found, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-6)
    return expected


def refused(tmp_path: Path, model: onnx.ModelProto) -> str:
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ModelError) as caught:
        load_model(path)
    return str(caught.value)
