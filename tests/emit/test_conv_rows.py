"""Convolutions one after the other on CPUs, their channels last, against numpy in double precision, at odd sizes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import numpy_helper

import fusion_cli
from tests.helpers.convolution import convolution, windows
from tests.helpers.graphs import parse

Array = np.ndarray
RNG = np.random.default_rng(12)
ERROR = 2e-5
"""Of the largest result; ONNX Runtime's own convolutions are within 1e-6."""
SIZES = [(1, 7, 7), (2, 14, 13), (1, 1, 1), (3, 5, 40), (1, 57, 66), (1, 3, 2)]
"""Images, their height and width: few tiles, small tiles, blocks of them, rows that fill no vector."""


def weight(*shape: int) -> Array:
    return (RNG.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)


def relu(x: Array) -> Array:
    return np.maximum(x, 0)


GIVEN = {
    "widen": weight(48, 32, 1, 1),
    "small": weight(48, 48, 3, 3),
    "narrow": weight(32, 48, 1, 1),
    "bias": weight(48, 1)[:, 0],
    "odd": weight(13, 32, 3, 3),
    "tall": weight(7, 13, 5, 2),
    "first": weight(16, 32, 3, 3),
    "second": weight(48, 16, 3, 3),
    "half": weight(32, 32, 1, 1),
    "broad": weight(1040, 32, 1, 1),
    "each": weight(32, 1, 3, 3),
    "sixteen": weight(16, 1, 3, 3),
    "scale": weight(96, 1, 1),
    "grouping": np.array([0, 4, -1]),
    "from0": np.array([0]),
    "to1": np.array([1]),
    "from2": np.array([2]),
    "to4": np.array([4]),
    "parts": np.array([2, 16]),
    "ones": np.ones(4, np.float32),
    "nil": np.zeros(4, np.float32),
    "gamma": weight(32, 1, 1),
    "twice": np.array([1, 1, 2, 2], np.float32),
    "triple": weight(8, 96, 1, 1),
}
EACH = {"pads": [1, 1, 1, 1], "group": 32}
UNEVEN = {"pads": [2, 0, 1, 3]}
STRIDED = {"pads": [2, 1, 2, 1], "strides": [2, 1], "dilations": [1, 2]}
SAME = {"pads": [1, 1, 1, 1]}
LOWER = {"auto_pad": "SAME_LOWER", "strides": [2, 2]}


def conv(x: Array, name: str, given: dict[str, object] | None = None) -> Array:
    return convolution(x, GIVEN[name].astype(np.float64), given or {})


def bottleneck(x: Array) -> Array:
    inner = relu(conv(x, "widen") + GIVEN["bias"][:, None, None])
    return relu(conv(relu(conv(inner, "small", SAME) + GIVEN["bias"][:, None, None]), "narrow") + x)


def uneven(x: Array) -> Array:
    y = conv(conv(x, "odd", UNEVEN), "tall", STRIDED)
    return y / (1 + np.exp(-y))


def lower(x: Array) -> Array:
    return conv(relu(conv(x, "first", LOWER)), "second", SAME) - 1


def strided(x: Array) -> Array:
    return conv(relu(conv(x, "half", {"strides": [2, 2]})), "broad")


def grouped(x: Array) -> Array:
    return conv(conv(conv(x, "half"), "each", EACH), "first", LOWER)


def pooled(x: Array) -> Array:
    half = relu(conv(x, "half"))
    largest = windows(half, 3, 2, 1, -np.inf).max(axis=(4, 5))
    seen = windows(np.ones_like(half), 3, 2, 1, 0).sum(axis=(4, 5))
    means = windows(half, 3, 2, 1, 0).sum(axis=(4, 5)) / seen
    joined = np.concatenate([largest, means, largest - 1], axis=1)
    return conv(joined * GIVEN["scale"].astype(np.float64), "triple")


def normed(x: Array) -> Array:
    made = conv(x, "half")
    groups = made.reshape(len(made), 4, -1)
    centred = groups - groups.mean(axis=2, keepdims=True)
    normal = centred / np.sqrt(groups.var(axis=2, keepdims=True) + 1e-3)
    active = relu(normal.reshape(made.shape) * GIVEN["gamma"].astype(np.float64))
    return conv(active.repeat(2, axis=2).repeat(2, axis=3), "first", SAME)


def shuffled(x: Array) -> Array:
    made = conv(x, "half")
    batch, _, *sides = made.shape
    mixed = made.reshape(batch, 2, 16, *sides).swapaxes(1, 2).reshape(made.shape)
    return np.concatenate([mixed[:, :16], conv(mixed[:, 16:], "sixteen", SAME | {"group": 16})], axis=1)


TEXTS: dict[str, tuple[str, Callable[[Array], Array]]] = {
    "bottleneck": (
        "a = Conv (x, widen, bias) b = Relu (a) c = Conv <pads = [1, 1, 1, 1]> (b, small, bias) d = Relu (c) "
        "e = Conv (d, narrow) f = Add (e, x) y = Relu (f)",
        bottleneck,
    ),
    "uneven": (
        "a = Conv <pads = [2, 0, 1, 3]> (x, odd) "
        "b = Conv <pads = [2, 1, 2, 1], strides = [2, 1], dilations = [1, 2]> (a, tall) s = Sigmoid (b) y = Mul (b, s)",
        uneven,
    ),
    "lower": (
        'a = Conv <auto_pad = "SAME_LOWER", strides = [2, 2]> (x, first) b = Relu (a) '
        "c = Conv <pads = [1, 1, 1, 1]> (b, second) y = Sub (c, one)",
        lower,
    ),
    "grouped": (
        "a = Conv (x, half) b = Conv <pads = [1, 1, 1, 1], group = 32> (a, each) "
        'y = Conv <auto_pad = "SAME_LOWER", strides = [2, 2]> (b, first)',
        grouped,
    ),
    "pooled": (
        "a = Conv (x, half) b = Relu (a) "
        "c = MaxPool <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]> (b) "
        "d = AveragePool <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]> (b) e = Sub (c, one) "
        "f = Concat <axis = 1> (c, d, e) s = Mul (f, scale) y = Conv (s, triple)",
        pooled,
    ),
    "normed": (
        "a = Conv (x, half) r = Reshape (a, grouping) i = InstanceNormalization <epsilon = 1e-3> (r, ones, nil) "
        "s = Shape (a) e = Reshape (i, s) g = Mul (e, gamma) u = Relu (g) "
        'z = Resize <mode = "nearest"> (u, , twice) y = Conv <pads = [1, 1, 1, 1]> (z, first)',
        normed,
    ),
    "shuffled": (
        "a = Conv (x, half) s = Shape (a) k = Slice (s, from0, to1) l = Slice (s, from2, to4) "
        "v = Concat <axis = 0> (k, parts, l) r = Reshape (a, v) t = Transpose <perm = [0, 2, 1, 3, 4]> (r) "
        "e = Reshape (t, s) p, q = Split <axis = 1> (e) d = Conv <pads = [1, 1, 1, 1], group = 16> (q, sixteen) "
        "y = Concat <axis = 1> (p, d)",
        shuffled,
    ),
    "strided": ("a = Conv <strides = [2, 2]> (x, half) b = Relu (a) y = Conv (b, broad)", strided),
}


def model(kind: str) -> onnx.ModelProto:
    text, _ = TEXTS[kind]
    found = parse(f"g (float[n, 32, h, w] x) => (float[n, m, a, b] y) {{ {text} }}")
    given = {k: v for k, v in (GIVEN | {"one": np.float32(1)}).items() if k in text}
    found.graph.initializer.extend(numpy_helper.from_array(np.asarray(a), n) for n, a in given.items())
    return found


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ort.InferenceSession]:
    folder = tmp_path_factory.mktemp("rows")
    opened = {}
    for kind in TEXTS:
        onnx.save(model(kind), folder / f"{kind}.onnx")
        made = folder / f"{kind}.fused.onnx"
        rules = ["Convolutions"]
        report = fusion_cli.optimize(
            folder / f"{kind}.onnx", made, targets=["cpu"], rules=rules, force=True, verify=False
        )
        assert [f.rule for f in report.fusions] == rules
        opened[kind] = fusion_cli.session(made, providers=["CPUExecutionProvider"])
    return opened


def images(batch: int, height: int, width: int) -> Array:
    return RNG.standard_normal((batch, 32, height, width)).astype(np.float32)


def run(session: ort.InferenceSession, x: Array) -> Array:
    return np.asarray(session.run(None, {"x": x})[0])


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", TEXTS)
def test_results_are_right(sessions: dict[str, ort.InferenceSession], kind: str, size: tuple[int, int, int]) -> None:
    x = images(*size)
    expected, found = TEXTS[kind][1](x.astype(np.float64)), run(sessions[kind], x)
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= ERROR * np.abs(expected).max()


@pytest.mark.parametrize(
    ("kind", "result"), [("bottleneck", (32, 9, 9)), ("normed", (16, 18, 18)), ("shuffled", (32, 9, 9))]
)
def test_no_image_gives_none(sessions: dict[str, ort.InferenceSession], kind: str, result: tuple[int, ...]) -> None:
    assert run(sessions[kind], images(0, 9, 9)).shape == (0, *result)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38])
@pytest.mark.parametrize("place", [0, 777, -1])
@pytest.mark.parametrize("size", [(1, 17, 19), (1, 7, 7)])
def test_what_is_not_finite_stays_where_it_is(
    sessions: dict[str, ort.InferenceSession], value: float, place: int, size: tuple[int, int, int]
) -> None:
    """What nearly overflows drowns what it is added to, here and there."""
    x = images(*size)
    x.flat[place] = value
    stock = ort.InferenceSession(model("bottleneck").SerializeToString(), providers=["CPUExecutionProvider"])
    found, expected = run(sessions["bottleneck"], x), run(stock, x)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(found[~finite], expected[~finite])
    np.testing.assert_allclose(found[finite], expected[finite], rtol=1e-5, atol=1e-5 * expected[finite].max())


def test_results_are_the_same_in_every_run(sessions: dict[str, ort.InferenceSession]) -> None:
    x = images(2, 33, 35)
    first = run(sessions["bottleneck"], x)
    assert all((run(sessions["bottleneck"], x) == first).all() for _ in range(5))


def test_a_chain_that_pays_is_taken_unasked(tmp_path: Path) -> None:
    text = "a = Conv <pads = [1, 1, 1, 1]> (x, k) b = Relu (a) c = Conv <pads = [1, 1, 1, 1]> (b, k) y = Relu (c)"
    found = parse(f"g (float[1, 64, 56, 56] x) => (float[1, 64, 56, 56] y) {{ {text} }}")
    found.graph.initializer.append(numpy_helper.from_array(weight(64, 64, 3, 3), "k"))
    onnx.save(found, tmp_path / "m.onnx")
    report = fusion_cli.optimize(tmp_path / "m.onnx", tmp_path / "f.onnx", targets=["cpu"], verify=False)
    assert [f.rule for f in report.fusions] == ["Convolutions"]
