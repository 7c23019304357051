"""Products for processors with tiles against numpy in double precision, at odd sizes; where there are no tiles ONNX
Runtime's own kernels run, and must give the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import numpy_helper

import fusion_cli
from fusion_cli.targets import has_cpu_flag
from tests.helpers.convolution import convolution
from tests.helpers.graphs import parse

Array = np.ndarray
RNG = np.random.default_rng(5)
ERROR = 2e-5
"""Of the largest result: 2^-16 of each product, and what sums of float32 add."""

ROUNDING = 1.2e-6
"""How far ONNX Runtime's own kernels are apart at the most."""

WEIGHTS = {
    "plain": (40, 33, 3, 3),
    "apart": (17, 16, 3, 2),
    "far": (16, 18, 3, 3),
    "point": (64, 70, 1, 1),
    "few": (20, 3, 5, 7),
    "line": (24, 12, 3),
    "same": (16, 9, 4, 4),
    "wide": (8, 9, 3, 3),
    "groups": (8, 4, 3, 3),
    "matrix": (45, 70),
    "rows": (50, 45),
}
ATTRIBUTES = {
    "plain": "pads = [1, 1, 1, 1]",
    "apart": "strides = [2, 1], dilations = [1, 2], pads = [0, 3, 2, 1]",
    "far": "dilations = [5, 40], pads = [5, 40, 5, 40]",
    "point": "strides = [2, 2]",
    "few": "strides = [2, 2], pads = [2, 3, 2, 3]",
    "line": "strides = [2], pads = [1, 2]",
    "same": 'strides = [2, 2], auto_pad = "SAME_LOWER"',
    "wide": "strides = [3, 3]",
    "groups": "group = 2",
}
NODES = {
    **{name: f"Conv <{text}> ({name}_x, {name}, {name}_b)" for name, text in ATTRIBUTES.items()},
    "matrix": "MatMul (matrix_x, matrix)",
    "rows": "Gemm <transB = 1> (rows_x, rows, rows_b)",
}
CONSTANTS = {
    **{name: RNG.standard_normal(shape).astype(np.float32) for name, shape in WEIGHTS.items()},
    **{f"{n}_b": RNG.standard_normal(WEIGHTS[n][0]).astype(np.float32) for n in (*ATTRIBUTES, "rows")},
}


def model() -> onnx.ModelProto:
    ranks = {name: 3 if name == "matrix" else len(shape) for name, shape in WEIGHTS.items()}
    dims = {name: ", ".join(f"{name}{i}" for i in range(rank)) for name, rank in ranks.items()}
    ins = ", ".join(f"float[{dims[name]}] {name}_x" for name in NODES)
    outs = ", ".join(f"float[{dims[name].replace(name, name + '_o')}] {name}_y" for name in NODES)
    found = parse(f"g ({ins}) => ({outs}) {{ {' '.join(f'{name}_y = {node}' for name, node in NODES.items())} }}")
    found.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in CONSTANTS.items())
    return found


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> ort.InferenceSession:
    folder = tmp_path_factory.mktemp("amx")
    onnx.save(model(), folder / "m.onnx")
    report = fusion_cli.optimize(folder / "m.onnx", folder / "f.onnx", targets=["amx"], force=True, verify=False)
    assert sorted(f.rule for f in report.fusions) == ["TileProduct"] * len(NODES)
    return fusion_cli.session(folder / "f.onnx", providers=["CPUExecutionProvider"])


def channels(name: str) -> int:
    shape = WEIGHTS[name]
    return shape[1] * (2 if name == "groups" else 1) if name in ATTRIBUTES else {"matrix": 45, "rows": 45}[name]


def data(name: str, batch: int, size: int) -> Array:
    shapes: dict[str, tuple[int, ...]] = {
        "matrix": (batch, size, 45),
        "rows": (batch * size, 45),
        "line": (batch, 12, size),
    }
    shape = shapes.get(name, (batch, channels(name), size, size + 3))
    return RNG.standard_normal(shape).astype(np.float32)


def run(session: ort.InferenceSession, name: str, x: Array) -> Array:
    feeds = {f"{n}_x": x if n == name else data(n, 1, 9) for n in NODES}
    return np.asarray(session.run([f"{name}_y"], feeds)[0])


def exact(name: str, x: Array) -> Array:
    """In double precision."""
    w, bias = CONSTANTS[name].astype(np.float64), CONSTANTS.get(f"{name}_b", np.zeros(1)).astype(np.float64)
    if name not in ATTRIBUTES:
        return x.astype(np.float64) @ (w if name == "matrix" else w.T) + bias
    node = next(n for n in model().graph.node if n.output[0] == f"{name}_y")
    given = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    return convolution(x.astype(np.float64), w, given) + bias.reshape(-1, *[1] * (x.ndim - 2))


@pytest.mark.parametrize("size", [7, 9, 40])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("name", NODES)
def test_products_are_right(session: ort.InferenceSession, name: str, batch: int, size: int) -> None:
    x = data(name, batch, size)
    expected = exact(name, x)
    found = run(session, name, x)
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= ERROR * np.abs(expected).max()


@pytest.mark.parametrize("name", NODES)
def test_of_nothing_comes_nothing(session: ort.InferenceSession, name: str) -> None:
    assert run(session, name, data(name, 0, 9)).size == 0


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38, 1e-42])
@pytest.mark.parametrize("name", ["plain", "few", "point", "matrix", "rows"])
def test_numbers_that_have_no_parts_are_as_in_onnxruntime(
    session: ort.InferenceSession, name: str, value: float
) -> None:
    x = data(name, 1, 9)
    x.flat[x.size // 2] = value
    stock = ort.InferenceSession(model().SerializeToString(), providers=["CPUExecutionProvider"])
    found, expected = run(session, name, x), run(stock, name, x)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(found[~finite], expected[~finite])
    np.testing.assert_allclose(found[finite], expected[finite], rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("name", ["plain", "matrix"])
def test_results_are_the_same_in_every_run(session: ort.InferenceSession, name: str) -> None:
    x = data(name, 2, 40)
    first = run(session, name, x)
    assert all((run(session, name, x) == first).all() for _ in range(3))


def in_tiles(name: str) -> bool:
    return name not in ("wide", "groups")


@pytest.mark.skipif(not has_cpu_flag("amx_bf16"), reason="this processor has no tiles")
@pytest.mark.parametrize("name", NODES)
def test_tiles_are_what_runs_where_there_are_some(session: ort.InferenceSession, name: str) -> None:
    x = data(name, 1, 40)
    stock = ort.InferenceSession(model().SerializeToString(), providers=["CPUExecutionProvider"])
    expected = run(stock, name, x)
    apart = np.abs(run(session, name, x) - expected).max() / np.abs(expected).max()
    assert (apart > ROUNDING) == in_tiles(name)


def test_for_other_targets_a_product_alone_is_no_region(tmp_path: Path) -> None:
    onnx.save(model(), tmp_path / "m.onnx")
    report = fusion_cli.optimize(
        tmp_path / "m.onnx", tmp_path / "f.onnx", targets=["portable"], force=True, verify=False
    )
    assert not report.fusions
