"""Models open in another process: the same numbers as here, and a crash there is an error here."""

from __future__ import annotations

import os
import subprocess
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import pytest

from fusion_cli.sessions import CannotRun, open_model
from fusion_cli.sessions.process import Process
from fusion_cli.types import Options
from fusion_cli.verify.whole_model import reference_for, verify_model
from tests.helpers.graphs import parse

RELU = "g (float[n, 3] x) => (float[n, 3] y) { y = Relu (x) }"
X = np.array([[-1.0, 0.0, 2.0]], np.float32)
CRASH = 'extern "C" void* RegisterCustomOps(void*, void*) { return *reinterpret_cast<void* volatile*>(8); }'


@pytest.fixture
def relu(tmp_path: Path) -> Path:
    onnx.save(parse(RELU), tmp_path / "relu.onnx")
    return tmp_path / "relu.onnx"


@pytest.fixture(scope="module")
def crashing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library of operators that reads at no address as it is registered."""
    folder = tmp_path_factory.mktemp("crash")
    (folder / "crash.cpp").write_text(CRASH)
    compiler = os.environ.get("CXX", "g++")
    subprocess.run([compiler, "-shared", "-fPIC", "-O0", "crash.cpp", "-o", "crash.so"], cwd=folder, check=True)
    return folder / "crash.so"


def test_a_model_gives_the_same_in_another_process(relu: Path) -> None:
    with Process() as process:
        found = process.open(relu.read_bytes()).run({"x": X})
    np.testing.assert_array_equal(found["y"], open_model(relu).run({"x": X})["y"])


def test_what_cannot_run_there_says_why(relu: Path, tmp_path: Path) -> None:
    onnx.save(parse("g (float[2] x) => (float[2] y) { y = com.microsoft.NoSuchThing (x) }"), tmp_path / "bad.onnx")
    with Process() as process:
        with pytest.raises(CannotRun, match="NoSuchThing"):
            process.open(tmp_path / "bad.onnx")
        with pytest.raises(CannotRun, match=r"Missing|invalid dimensions"):
            process.open(relu).run({"x": X[:, :2]})
        assert process.open(relu).run({"x": X})["y"].shape == (1, 3)


def test_a_crash_is_a_model_that_does_not_run(relu: Path, crashing: Path) -> None:
    with Process() as process:
        before = process.open(relu)
        with pytest.raises(CannotRun, match="crashed: Segmentation fault"):
            process.open(relu, libraries=[crashing])
        with pytest.raises(CannotRun, match="has crashed"):
            before.run({"x": X})
        assert process.open(relu).run({"x": X})["y"][0, 2] == 2


def test_a_crash_in_the_fused_model_is_a_failed_verification(relu: Path, crashing: Path) -> None:
    with Process() as process:
        reference = reference_for(relu, Options(), opener=process.open)
        result = verify_model(reference, [partial(process.open, relu, libraries=[crashing])], opener=process.open)
    assert not result.ok
    assert "crashed" in result.skipped


def test_a_model_that_nobody_refers_to_is_closed(relu: Path) -> None:
    with Process() as process:
        process.open(relu)
        process.open(relu)
        with pytest.raises(CannotRun):
            process.ask("run", 0, {"x": X})
        with pytest.raises(RuntimeError, match="TypeError"):
            process.ask("run")


def test_models_are_timed_in_one_process(relu: Path) -> None:
    with Process() as process:
        first, *others = [process.open(relu, use="timing") for _ in range(3)]
        timing = first.time_against(others, {"x": X}, seconds=0, most=7)
    assert timing.rounds == 5
    assert all(timing.us(model) > 0 for model in range(3))


def test_rounding_that_onnx_runtime_itself_does_otherwise_is_no_fault(tmp_path: Path) -> None:
    """Optimized, a quantized graph works in integers; with these scales one sum in ten lies halfway between two."""
    text = """g (float[64, 64] x) => (float[64, 64] y) {
        s = Constant <value = float {0.01}> () t = Constant <value = float {0.001}> ()
        z = Constant <value = int8 {0}> () a = QuantizeLinear (x, s, z) b = DequantizeLinear (a, s, z)
        v = DequantizeLinear (w, s, z) c = MatMul (b, v) d = QuantizeLinear (c, t, z)
        y = DequantizeLinear (d, t, z) }"""
    model = parse(text)
    weight = np.random.default_rng(3).integers(-3, 4, (64, 64)).astype(np.int8)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    path = tmp_path / "q.onnx"
    onnx.save(model, path)
    x = (0.01 * np.random.default_rng(4).integers(-3, 4, (64, 64))).astype(np.float32)
    np.savez(tmp_path / "x.npz", x=x)
    one, other = (open_model(path, use=use).run({"x": x})["y"] for use in ("reference", "check"))
    assert np.any(one != other)
    reference = reference_for(path, Options(inputs=tmp_path / "x.npz"))
    result = verify_model(reference, [partial(open_model, path)])
    assert result.ok
    assert [o.output for o in result.outputs] == ["y"]
