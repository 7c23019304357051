"""The CUDA kernels without a GPU: their own source, run block by block on the CPU, against numpy in fp64."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

from fusion_cli.codegen.expr import onnx_type
from fusion_cli.emit import emit
from fusion_cli.planir.stages import Pointwise, Rowwise, Store
from fusion_cli.types import FusedOp
from tests.helpers.cuda_case import TOLERANCE, Array, Case, assert_close, error_of, fused_op
from tests.helpers.cuda_host_library import host_library
from tests.helpers.cuda_plans import ATTENTIONS, all_cases
from tests.helpers.emit_helpers import open_session, ort_value
from tests.helpers.golden_sources import HOPPER
from tests.helpers.plan_builder import Builder, Program, operands
from tests.helpers.plan_interpreter import interpret, numpy_dtype

_BEYOND, _UNTOUCHED = 256, 0xA5
"""Bytes behind each result, and what is in them."""
_MOST = 2_000_000
"""Elements of work that take a second here."""
_INFO, _WARNING = 1, 2
"""Of ONNX Runtime's log; the second is what it has unless told otherwise."""

# ONNX Runtime's CPU provider has no convolution of 16-bit floats.
CASES = [c for c in all_cases() if c.name != "conv_float16"]
ROUNDED = [c for c in CASES if c.name.startswith(ATTENTIONS) and "float32" in c.name]
WARPGROUPS = [
    c for c in CASES if c.name.startswith(ATTENTIONS) and "WarpgroupAttention" in emit(fused_op(c), HOPPER).text
]
MANY_HEADS = {"b": 6, "h": 8, "g": 1, "q": 33, "k": 75, "s": 33}
"""Work for all the multiprocessors that there seem to be: three rounds of two blocks for each."""
PRODUCTS = [c for c in CASES if c.name.startswith(("linear", "batched", "chain"))]


@pytest.fixture(scope="module")
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library of the cases that this run has tests of."""
    return host_library(asked_for("library", request), tmp_path_factory.mktemp("host"))


def asked_for(fixture: str, request: pytest.FixtureRequest) -> list[FusedOp]:
    here = [i for i in request.session.items if i.path == request.path and fixture in i.fixturenames]
    return [fused_op(c) for c in {i.callspec.params["case"].name: i.callspec.params["case"] for i in here}.values()]


@pytest.fixture
def vendor(library: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The library where the vendor's products are there."""
    monkeypatch.setenv("CUDA_HOST_VENDOR", "1")
    return library


@pytest.fixture
def rounding(library: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The library where the provider allows TF32."""
    monkeypatch.setenv("CUDA_HOST_TF32", "1")
    return library


def run_within(
    session: ort.InferenceSession, op: FusedOp, inputs: Sequence[Array], like: Sequence[Array]
) -> list[Array]:
    """The outputs, written to memory of their size and not beyond it."""
    binding = session.io_binding()
    for i, array in enumerate(inputs):
        binding.bind_ortvalue_input(f"i{i}", ort_value(array))
    memory = []
    for i, (spec, array) in enumerate(zip(op.outputs, like, strict=True)):
        dtype = numpy_dtype(spec.dtype)
        memory.append(np.full(array.size * dtype.itemsize + _BEYOND, _UNTOUCHED, np.uint8))
        binding.bind_output(f"o{i}", "cpu", 0, onnx_type(spec.dtype), array.shape, memory[i].ctypes.data)
    session.run_with_iobinding(binding)
    assert all((m[-_BEYOND:] == _UNTOUCHED).all() for m in memory), "a kernel writes past the end of its result"
    found = zip(op.outputs, like, memory, strict=True)
    return [m[:-_BEYOND].view(numpy_dtype(spec.dtype)).reshape(array.shape) for spec, array, m in found]


def compare(case: Case, library: Path, tf32: bool = False) -> None:
    op = fused_op(case)
    session = open_session(op, library)
    for sizes in case.sizes:
        if math.prod(sizes.values()) > _MOST:
            continue
        inputs = case.inputs(sizes, np.random.default_rng(0))
        with np.errstate(all="ignore"):
            want = interpret(case.plan, inputs)
        assert_close(op, run_within(session, op, inputs, want), want, sizes, tf32)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_kernel_agrees_with_fp64(case: Case, library: Path) -> None:
    compare(case, library)


@pytest.fixture(scope="module")
def hopper(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library of the cases that this run has tests of with Hopper's own kernels."""
    return host_library(asked_for("hopper", request), tmp_path_factory.mktemp("hopper"), hopper=True)


TILES = (
    {"b": 2, "h": 1, "g": 1, "q": 150, "k": 520, "s": 264},
    {"b": 1, "h": 1, "g": 1, "q": 70, "k": 261, "s": 389},
    {"b": 1, "h": 2, "g": 1, "q": 66, "k": 128, "s": 72},
    {"b": 1, "h": 1, "g": 1, "q": 17, "k": 203, "s": 197},
    {"b": 5, "h": 1, "g": 1, "q": 140, "k": 136, "s": 130},
)
"""Several tiles of queries and of keys, some of them of fewer; keys in eights, and not; few keys; several rounds."""


@pytest.mark.parametrize("case", WARPGROUPS, ids=lambda c: c.name)
def test_hoppers_attention_agrees_with_fp64(case: Case, hopper: Path) -> None:
    compare(replace(case, sizes=tuple({n: tiles[n] for n in case.sizes[0]} for tiles in TILES)), hopper)


MANY_KEYS = {"b": 2, "h": 1, "g": 1, "q": 70, "k": 1100}
"""More than an attention with a mask by key measures itself."""
LOW = [c for c in WARPGROUPS if any(n in c.name for n in ("added_lowest", "overcome")) and "padded" not in c.name]


@pytest.mark.parametrize("case", LOW, ids=lambda c: c.name)
def test_hoppers_attention_of_many_keys_agrees_with_fp64(case: Case, hopper: Path) -> None:
    compare(replace(case, sizes=(MANY_KEYS,)), hopper)


@pytest.mark.parametrize("case", ROUNDED, ids=lambda c: c.name)
def test_attention_in_tf32_agrees_with_fp64(case: Case, rounding: Path) -> None:
    many = {n: MANY_HEADS[n] for n in case.sizes[0]}
    compare(replace(case, sizes=(*case.sizes, many)), rounding, tf32=True)


ROUNDED_PRODUCTS = [c for c in PRODUCTS if "float32" in c.name and c.name.startswith("linear")]


@pytest.mark.parametrize("case", ROUNDED_PRODUCTS, ids=lambda c: c.name)
def test_product_in_tf32_agrees_with_fp64(case: Case, rounding: Path) -> None:
    compare(case, rounding, tf32=True)


CONVOLUTIONS = [c for c in CASES if c.name == "conv_last_brx_5x7by1_3x3_NOTSET_float32"]


@pytest.mark.parametrize("case", CONVOLUTIONS, ids=lambda c: c.name)
def test_convolution_is_on_tensor_cores_where_the_session_allows_tf32(case: Case, rounding: Path) -> None:
    compare(case, rounding, tf32=True)
    op, inputs = fused_op(case), case.inputs(case.sizes[0], np.random.default_rng(0))
    (want,) = interpret(case.plan, inputs)
    (got,) = run_within(open_session(op, rounding), op, inputs, [want])
    assert error_of(got, want) > TOLERANCE["float32"]


@pytest.mark.parametrize("case", [c for c in CASES if c.name.startswith("conv_last")], ids=lambda c: c.name)
def test_convolution_without_cudnn_agrees_with_fp64(case: Case, library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_HOST_OWN", "1")
    compare(case, library)


@pytest.mark.parametrize("case", [c for c in CASES if c.name == "linear_float32_nn"], ids=lambda c: c.name)
def test_what_is_no_number_stays_none_in_tf32(case: Case, rounding: Path) -> None:
    op, inputs = fused_op(case), case.inputs(case.sizes[0], np.random.default_rng(0))
    nans = (0x7FFFFFFF, 0xFFFFFFFF, 0x7FC00001)
    left = np.array(inputs[0])
    left[: len(nans), 5] = np.array(nans, np.uint32).view(np.float32)
    left[len(nans), 5], inputs[1][5] = np.inf, 1.0
    (got,) = run_within(open_session(op, rounding), op, [left, *inputs[1:]], interpret(case.plan, inputs))
    assert np.isnan(got[: len(nans)]).all()
    assert np.isposinf(got[len(nans)]).all()
    assert np.isfinite(got[len(nans) + 1 :]).all()


@pytest.mark.parametrize("case", [c for c in CASES if c.name.startswith("softmax")], ids=lambda c: c.name)
def test_one_nan_makes_the_row_nan(case: Case, library: Path) -> None:
    seen = {0: ((0, 0, 0, 17), float("nan")), 1: ((0, 0, 0, 17), 1)}
    compare(replace(case, planted=seen), library)


@pytest.mark.parametrize("case", PRODUCTS, ids=lambda c: c.name)
def test_product_by_the_vendor_agrees_with_fp64(case: Case, vendor: Path) -> None:
    compare(case, vendor)


@pytest.mark.parametrize("case", CONVOLUTIONS, ids=lambda c: c.name)
def test_the_log_tells_what_was_tried(case: Case, library: Path, capfd: pytest.CaptureFixture[str]) -> None:
    op, inputs = fused_op(case), case.inputs(case.sizes[0], np.random.default_rng(0))
    ort.set_default_logger_severity(_INFO)
    try:
        run_within(open_session(op, library), op, inputs, interpret(case.plan, inputs))
    finally:
        ort.set_default_logger_severity(_WARNING)
    told = r"fusion-cli.* tried a convolution with \d+ results.*, cuDNN's of [\d.]+ us, ours of .* us; taken is .* us"
    assert re.search(told, capfd.readouterr().err)


_EDGES = [0, -0.0, 1, -4, -10, -50, 50, -200, 200, 6e4, -6e4, math.inf, -math.inf, math.nan]


def gates(dtype: str) -> Case:
    """What activations are made of, and the extremes of rows."""
    b = Builder()
    x = b.input(dtype, "n", "m")
    p = Program()
    value, dims = p.load(0, dtype), b.dims(x)
    gelu = p("Mul", p("Mul", value, p.const(0.5)), p("Add", p("Erf", value), p.const(1.0)))
    made = [gelu, *(p(op, value) for op in ("Erf", "Sigmoid", "Tanh", "Sign", "Relu"))]
    stores = tuple(Store(b.output("float32", ("n", "m"), dims), v) for v in made)
    b.stages.append(Pointwise(operands(x), p.done(), stores, dims))
    p, rows = Program(), b.op("reduce", dims, ints=(1, -1))
    value = p.load(0, dtype)
    made = [p("reduce_max", value), p("reduce_min", value)]
    stores = tuple(Store(b.output("float32", ("n", 1), rows), v) for v in made)
    b.stages.append(Rowwise(operands(x), p.done(), stores, dims))
    return Case(f"gates_{dtype}", b.plan(), ())


@pytest.mark.parametrize("case", [gates("float32"), gates("float16")], ids=lambda c: c.name)
def test_numbers_at_the_edge(case: Case, library: Path) -> None:
    """GELU of far below zero is nothing, not what is left of erf times x; a NaN is the largest and the least of its
    row wherever it stands."""
    op = fused_op(case)
    session = open_session(op, library)
    rows = np.tile(np.array(_EDGES), (len(_EDGES), 1)).astype(op.inputs[0].dtype)
    for i, row in enumerate(rows):
        row[:] = np.where(np.isnan(row), 1, row) if i % 2 else np.roll(row, i)
    for x in (rows, rows[:0]):
        with np.errstate(all="ignore"):
            want = interpret(case.plan, [x])
        found = run_within(session, op, [x], want)
        for a, b in zip(found, want, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)
        assert (found[0][(x < -20) & np.isfinite(x)] == 0).all()
        assert np.isnan(found[6][::2]).all()
        assert np.isnan(found[7][::2]).all()


@pytest.mark.parametrize("case", [c for c in CASES if c.name == "moments_12_by_12_float32"], ids=lambda c: c.name)
def test_moments_far_from_zero(case: Case, library: Path) -> None:
    """Where the mean is a thousand deviations, whose last bit is 6e-5 of one, they are found all the same, in one block
    and by several."""
    op = fused_op(case)
    session = open_session(op, library)
    for positions in (33, 40_000):
        x = np.random.default_rng(0).normal(1e3, 1, (2, positions, 12)).astype(np.float32)
        want = interpret(case.plan, [x])
        (found,) = run_within(session, op, [x], want)
        np.testing.assert_allclose(found, want[0], rtol=6e-5)
