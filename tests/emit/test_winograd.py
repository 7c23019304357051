"""Convolutions of 3 by 3 with fewer multiplications against numpy in double precision, at odd sizes; where one cannot
be had so ONNX Runtime's own kernel runs, and must give the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import numpy_helper

import fusion_cli
from tests.helpers.convolution import convolution
from tests.helpers.graphs import parse

Array = np.ndarray
RNG = np.random.default_rng(11)
ERROR = 2e-5
"""Of the largest result; ONNX Runtime's own convolution is within 1e-6."""
MADE, CHANNELS = 13, 10
WEIGHT = (RNG.standard_normal((MADE, CHANNELS, 3, 3)) / 10).astype(np.float32)
BIAS = RNG.standard_normal(MADE).astype(np.float32)
KINDS: dict[str, dict[str, object]] = {
    "same": {"pads": [1, 1, 1, 1]},
    "bare": {},
    "uneven": {"pads": [2, 0, 1, 3]},
    "upper": {"auto_pad": "SAME_UPPER"},
    "valid": {"auto_pad": "VALID"},
}
SIZES = [(1, 13, 14), (1, 16, 16), (2, 9, 70), (1, 5, 300), (3, 40, 7), (1, 68, 131)]
"""Images, their height and width: tiles fill vectors and blocks in part, and blocks go over the ends of rows."""


def model(kind: str) -> onnx.ModelProto:
    text = ", ".join(f"{k} = {str(v) if k == 'pads' else chr(34) + str(v) + chr(34)}" for k, v in KINDS[kind].items())
    node = f"Conv <{text}> (x, k, bias)" if text else "Conv (x, k, bias)"
    found = parse(f"g (float[n, {CHANNELS}, h, w] x) => (float[n, {MADE}, a, b] y) {{ y = {node} }}")
    given = {"k": WEIGHT, "bias": BIAS}
    found.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in given.items())
    return found


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ort.InferenceSession]:
    folder = tmp_path_factory.mktemp("winograd")
    opened = {}
    for kind in KINDS:
        onnx.save(model(kind), folder / f"{kind}.onnx")
        made = folder / f"{kind}.fused.onnx"
        report = fusion_cli.optimize(folder / f"{kind}.onnx", made, targets=["cpu"], force=True, verify=False)
        assert [f.rule for f in report.fusions] == ["SmallConv"]
        opened[kind] = fusion_cli.session(made, providers=["CPUExecutionProvider"])
    return opened


def images(batch: int, height: int, width: int) -> Array:
    return RNG.standard_normal((batch, CHANNELS, height, width)).astype(np.float32)


def stock(kind: str, x: Array) -> Array:
    session = ort.InferenceSession(model(kind).SerializeToString(), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"x": x})[0])


def assert_alike(found: Array, expected: Array) -> None:
    """But for ONNX Runtime's own rounding, which depends on how images lie."""
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(found[~finite], expected[~finite])
    np.testing.assert_allclose(found[finite], expected[finite], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", KINDS)
def test_results_are_right(sessions: dict[str, ort.InferenceSession], kind: str, size: tuple[int, int, int]) -> None:
    x = images(*size)
    given = {k: v for k, v in KINDS[kind].items() if v != "VALID"}
    expected = convolution(x.astype(np.float64), WEIGHT.astype(np.float64), given) + BIAS[:, None, None]
    found = np.asarray(sessions[kind].run(None, {"x": x})[0])
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= ERROR * np.abs(expected).max()


def test_another_way_is_taken(sessions: dict[str, ort.InferenceSession]) -> None:
    x = images(1, 40, 40)
    assert (np.asarray(sessions["same"].run(None, {"x": x})[0]) != stock("same", x)).any()


@pytest.mark.parametrize("size", [(0, 9, 9), (1, 1, 1), (1, 3, 4)])
def test_few_results_are_onnxruntimes(sessions: dict[str, ort.InferenceSession], size: tuple[int, int, int]) -> None:
    x = images(*size)
    assert_alike(np.asarray(sessions["same"].run(None, {"x": x})[0]), stock("same", x))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38])
@pytest.mark.parametrize("place", [0, 777, -1])
def test_what_is_not_finite_is_as_in_onnxruntime(
    sessions: dict[str, ort.InferenceSession], value: float, place: int
) -> None:
    x = images(1, 17, 19)
    x.flat[place] = value
    assert_alike(np.asarray(sessions["same"].run(None, {"x": x})[0]), stock("same", x))


def test_results_are_the_same_in_every_run(sessions: dict[str, ort.InferenceSession]) -> None:
    x = images(2, 33, 35)
    first = sessions["same"].run(None, {"x": x})[0]
    assert all((sessions["same"].run(None, {"x": x})[0] == first).all() for _ in range(5))


OTHERS = {
    "strides": "Conv <strides = [2, 2]> (x, k, bias)",
    "dilations": "Conv <dilations = [2, 2]> (x, k, bias)",
}


@pytest.mark.parametrize("other", OTHERS)
def test_strides_and_dilations_are_left_to_onnxruntime(tmp_path: Path, other: str) -> None:
    found = parse(f"g (float[1, {CHANNELS}, 64, 64] x) => (float[n, m, a, b] y) {{ y = {OTHERS[other]} }}")
    found.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in {"k": WEIGHT, "bias": BIAS}.items())
    onnx.save(found, tmp_path / "m.onnx")
    assert not fusion_cli.optimize(tmp_path / "m.onnx", tmp_path / "f.onnx", targets=["cpu"], verify=False).fusions
