"""CPU kernels of hand-written plans against numpy in double precision: one library, every stage kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

from fusion_cli.emit import emit
from fusion_cli.errors import Unsupported
from fusion_cli.planir.stages import Pointwise, Store
from fusion_cli.types import FusedOp, Target
from tests.helpers.cpu_cases import (
    CASES,
    DTYPES,
    TOLERANCE,
    attention_op,
)
from tests.helpers.emit_helpers import library, open_session, run
from tests.helpers.plan_builder import Builder, Program, fused_op, operands


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return library([c.op for c in CASES.values()], tmp_path_factory.mktemp("lib")).path


@pytest.fixture(scope="module")
def sessions(built: Path) -> Callable[[str], ort.InferenceSession]:
    opened: dict[str, ort.InferenceSession] = {}

    def get(name: str) -> ort.InferenceSession:
        if name not in opened:
            opened[name] = open_session(CASES[name].op, built)
        return opened[name]

    return get


def feed(op: FusedOp, sizes: dict[str, int], seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    arrays = []
    for spec in op.inputs:
        shape = [d if isinstance(d, int) else sizes[str(d)] for d in spec.shape]
        if spec.dtype == "bool":
            arrays.append(np.asarray(rng.random(shape) < 0.7))
        elif spec.dtype == "int64":
            arrays.append(rng.integers(-9, 9, shape))
        else:
            arrays.append(np.asarray(rng.standard_normal(shape)).astype(DTYPES[spec.dtype]))
    return arrays


def check(session: ort.InferenceSession, name: str, arrays: list[np.ndarray], scale: float = 1.0) -> None:
    found = CASES[name]
    with np.errstate(all="ignore"):
        wide = [a if a.dtype.kind == "i" else a.astype("f8") for a in arrays]
        expected = found.reference(*wide)
    results = run(session, *arrays)
    for spec, result, want in zip(found.op.outputs, results, expected, strict=True):
        assert result.shape == want.shape
        assert result.dtype == DTYPES[spec.dtype]
        tolerance = TOLERANCE[spec.dtype] * scale
        span = np.max(np.abs(want), initial=1.0, where=np.isfinite(want))
        np.testing.assert_allclose(result.astype("f8"), want, rtol=tolerance, atol=tolerance * span)


SIZES = [
    {"B": 2, "S": 7, "D": 33, "H": 5, "T": 19, "E": 6, "N": 13, "K": 17, "M": 9, "W": 10},
    {"B": 3, "S": 70, "D": 64, "H": 12, "T": 70, "E": 64, "N": 160, "K": 96, "M": 70, "W": 21},
    {"B": 1, "S": 1, "D": 1, "H": 3, "T": 1, "E": 1, "N": 1, "K": 1, "M": 1, "W": 3},
]
FREE = [
    {"a": 2, "b": 3, "c": 5, "d": 2, "e": 3, "f": 5, "g": 2, "h": 3, "i": 5},
    {"a": 2, "b": 3, "c": 1, "d": 1, "e": 3, "f": 35, "g": 2, "h": 1, "i": 1},
    {"a": 1, "b": 1, "c": 1, "d": 1, "e": 1, "f": 1, "g": 4, "h": 3, "i": 300},
]


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_numpy_while_dimensions_change(name: str, sessions: Any) -> None:
    for seed, (sizes, free) in enumerate(zip(SIZES, FREE, strict=True)):
        arrays = feed(CASES[name].op, {**sizes, **free}, seed)
        check(sessions(name), name, arrays, scale=2 if name.startswith(("Linear", "Attention")) else 1)


@pytest.mark.parametrize("name", [n for n in CASES if not n.startswith(("Extremes", "Conv"))])
@pytest.mark.parametrize("empty", ["B", "S", "M"])
def test_empty_tensors(name: str, empty: str, sessions: Any) -> None:
    sizes = {**SIZES[0], **FREE[0], empty: 0}
    if empty == "B":
        sizes |= {"a": 0, "d": 0, "g": 0}
    check(sessions(name), name, feed(CASES[name].op, sizes))


def test_product_over_nothing_is_zero(sessions: Any) -> None:
    name = "Linear_bias"
    check(sessions(name), name, feed(CASES[name].op, {**SIZES[0], "K": 0}))


@pytest.mark.parametrize("name", ["Pointwise_Bias", "Norm_float32", "Norm_float16", "Softmax_scaled", "Extremes"])
def test_nan_and_infinity_stay_where_they_belong(name: str, sessions: Any) -> None:
    arrays = feed(CASES[name].op, SIZES[0])
    for position, value in enumerate((np.nan, np.inf, -np.inf)):
        arrays[0].reshape(-1)[position * 40 + 3] = value
    check(sessions(name), name, arrays)


@pytest.mark.parametrize("name", ["Attention_masked", "Attention_empty", "Attention_float16"])
def test_fully_masked_rows_are_zero(name: str, sessions: Any) -> None:
    arrays = feed(CASES[name].op, SIZES[0])
    arrays[3][0] = -np.inf
    arrays[3][1, ..., 5:] = -np.inf
    check(sessions(name), name, arrays, scale=2)
    assert not np.any(run(sessions(name), *arrays)[0][0])


def test_fully_masked_softmax_without_a_guard_is_nan(sessions: Any) -> None:
    arrays = feed(CASES["Attention_grouped"].op, SIZES[0])
    arrays[0][0, 0, 0, 2] = np.nan
    result = run(sessions("Attention_grouped"), *arrays)[0]
    assert np.isnan(result[0, 0, 0, 2]).all()
    assert np.isfinite(result[0, 0, 1]).all()


def test_long_attention_runs_in_blocks_of_rows(sessions: Any) -> None:
    sizes = {**SIZES[0], "B": 1, "S": 700, "T": 2000, "D": 16}
    check(sessions("Attention_masked"), "Attention_masked", feed(CASES["Attention_masked"].op, sizes), scale=2)


def test_large_values_do_not_lose_the_variance(sessions: Any) -> None:
    x, r, g = feed(CASES["Norm_float32"].op, {**SIZES[0], "D": 4099})
    check(sessions("Norm_float32"), "Norm_float32", [x + np.float32(1000), r, g], scale=100)


def test_long_rows_and_many_rows_use_every_thread(sessions: Any) -> None:
    for sizes in ({"B": 1, "S": 2, "D": 100003}, {"B": 70, "S": 101, "D": 37}):
        check(sessions("Norm_float32"), "Norm_float32", feed(CASES["Norm_float32"].op, sizes), scale=5)
        check(sessions("Pointwise_Bias"), "Pointwise_Bias", feed(CASES["Pointwise_Bias"].op, sizes))


def test_a_failure_names_the_node(sessions: Any) -> None:
    arrays = feed(CASES["Linear_plain"].op, SIZES[0])
    with pytest.raises(Exception, match=r"'the node' \(Linear_plain\): the inner dimensions of a matrix"):
        run(sessions("Linear_plain"), arrays[0], arrays[1][:-1])


def test_shapes_that_do_not_broadcast_are_an_error(sessions: Any) -> None:
    x, y, z = feed(CASES["Pointwise_Same"].op, SIZES[0])
    with pytest.raises(Exception, match="do not broadcast"):
        run(sessions("Pointwise_Same"), x, y[:, :3], z)


@pytest.mark.parametrize("dtype", ["int64", "int32"])
def test_shape_program_reads_inputs_on_the_host(dtype: str, tmp_path: Path) -> None:
    """A reshape to sizes that arrive as a tensor, one of them to be worked out."""
    b, p = Builder(), Program()
    x = b.input("float32", "B", "S", "D")
    b.inputs.append(-1)
    target = b.op("reshape", b.dims(x), b.op("read", ints=(1,)), ints=(0,))
    view = b.alias(x, ("P", "Q"), target)
    out = b.output("float32", ("P", "Q"), target)
    value = p("Neg", p.load(0))
    b.stages.append(Pointwise(operands(view), p.done(), (Store(out, value),), target))
    op = fused_op("Reshaped", b.plan(host_inputs=(1,)))
    op = replace(op, inputs=(op.inputs[0], replace(op.inputs[1], dtype=dtype)))
    session = open_session(op, library([op], tmp_path).path)
    x_value = np.arange(24, dtype="f4").reshape(2, 3, 4)
    for shape in ([6, 4], [-1, 3], [0, -1]):
        result = run(session, x_value, np.array(shape, dtype))[0]
        want = [2, 12] if shape == [0, -1] else x_value.reshape(shape).shape
        np.testing.assert_array_equal(result, -x_value.reshape(want))
    with pytest.raises(Exception, match="changes the number of elements"):
        run(session, x_value, np.array([5, 5], dtype))


def test_a_kernel_refuses_other_dimensions_than_it_was_generated_for(built: Path) -> None:
    """A tool that has written the model again may call a function with other tensors."""
    session = open_session(CASES["Norm_fixed"].op, built)
    for shape in ((2, 3, 40), (3, 48), (48,)):
        with pytest.raises(Exception, match=r"Norm_fixed.*input 0 has not the dimensions that the kernel is for"):
            run(session, *(np.ones(shape, "f4") for _ in range(2)), np.ones(shape[-1:], "f4"))


def test_generated_source_is_safe_and_names_its_nodes() -> None:
    b, p = Builder(), Program()
    x = b.input("float32", "N")
    out = b.output("float32", ("N",), 0)
    value = p("Relu", p.load(0))
    nodes = ("/layer.0/act", "evil */ int x; /*", "line\nbreak\\", "// ??/")
    b.stages.append(Pointwise(operands(x), p.done(), (Store(out, value),), 0, nodes))
    text = emit(fused_op("Relu_1", b.plan()), Target("cpu", "cpu")).text
    line = next(line for line in text.splitlines() if "/layer.0/act" in line)
    assert line.startswith("//")
    assert "evil" in line
    assert "*/" not in line
    assert "\\" not in line
    assert "??/" not in line


def test_float64_attention_is_refused() -> None:
    with pytest.raises(Unsupported, match="float64"):
        emit(attention_op("Attention_double", "float64", False), Target("cpu", "cpu"))
