"""What several test files start from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import onnx
import onnxruntime as ort
import pytest

import fusion_cli
from tests.helpers.foreign import Both, Run
from tests.helpers.timings import later_is_faster


@pytest.fixture(autouse=True, scope="session")
def made_up_times() -> Iterator[None]:
    """The model with the most in it is the fastest, unless a test says otherwise."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fusion_cli.verify.choice.measure", later_is_faster)
        yield


@pytest.fixture(autouse=True, scope="session")
def nothing_recalled() -> Iterator[None]:
    """What other tests decided, and other times made up, is not taken over, but where that is what is tested."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fusion_cli.pipeline.recall", lambda model, options: None)
        patch.setattr("fusion_cli.pipeline.remember", lambda model, options, report: None)
        yield


@pytest.fixture(autouse=True, scope="session")
def users_key(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A user of their own, with a key of their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        yield


@pytest.fixture
def both(tmp_path: Path) -> Both:
    """A model and what `optimize` makes of it, ready to run in stock ONNX Runtime; both must run and be compared."""

    def make(model: onnx.ModelProto, **options: object) -> tuple[Run, Run]:
        source, output = tmp_path / "m.onnx", tmp_path / "fused.onnx"
        onnx.save(model, source)
        report = fusion_cli.optimize(source, output, **{"targets": ["portable"], **options})
        assert report.verification is not None
        assert report.verification.ok
        runs = [ort.InferenceSession(p, providers=["CPUExecutionProvider"]).run for p in (source, output)]
        return tuple(lambda run=run, **feeds: run(None, feeds) for run in runs)

    return make
