"""CPU kernels of hand-written plans against numpy in double precision: one library, every stage kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnxruntime as ort
import pytest
from emit_helpers import library, open_session, run
from plan_builder import Builder, Program, fused_op, operands

from fusion_cli.emit import emit
from fusion_cli.errors import Unsupported
from fusion_cli.plan.ir import Attention, Conv, Linear, Pointwise, Rowwise, Store
from fusion_cli.types import FusedOp, Target

DTYPES = {
    "float32": np.dtype("f4"),
    "float16": np.dtype("f2"),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float64": np.dtype("f8"),
    "int64": np.dtype("i8"),
}
TOLERANCE = {"float32": 2e-6, "float16": 1e-3, "bfloat16": 8e-3, "float64": 1e-12, "int64": 0}


@dataclass(frozen=True)
class Case:
    """An operator, and the function of double-precision arrays that it must agree with."""

    op: FusedOp
    reference: Callable[..., Any]


CASES: dict[str, Case] = {}


def case(name: str) -> Callable[[Callable[[], tuple[FusedOp, Callable[..., Any]]]], None]:
    def add(make: Callable[[], tuple[FusedOp, Callable[..., Any]]]) -> None:
        op, reference = make()
        assert op.name == name
        CASES[name] = Case(op, reference)

    return add


def broadcast_dims(b: Builder, *tensors: int) -> int:
    return b.op("broadcast", *(b.dims(t) for t in tensors))


# Pointwise: a * b + c over three operands that broadcast in different ways

PATTERNS = {
    "Same": (("B", "S", "D"),) * 3,
    "Bias": (("B", "S", "D"), ("D",), (1,)),
    "Columns": (("B", "S", "D"), ("B", "S", 1), ("S", 1)),
    "Middle": (("B", "S", "D"), ("B", 1, "D"), (1, "S", 1)),
    "Scalars": (("B", "S", "D"), (), (1, 1, 1)),
    "Unknown": (("a", "b", "c"), ("d", "e", "f"), ("g", "h", "i")),
}


def pointwise_op(name: str, shapes: tuple[tuple[int | str, ...], ...], dtype: str) -> FusedOp:
    b, p = Builder(), Program(dtype)
    tensors = [b.input(dtype, *s) for s in shapes]
    dims = broadcast_dims(b, *tensors)
    product = p("Mul", p.load(0), p.load(1))
    total = p("Add", product, p.load(2))
    rank = max(map(len, shapes))
    outs = [b.output(dtype, tuple(f"o{i}" for i in range(rank)), dims) for _ in range(2)]
    stores = (Store(outs[0], total), Store(outs[1], product))
    b.stages.append(Pointwise(operands(*tensors), p.done(), stores, dims))
    return fused_op(name, b.plan())


def multiply_add(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> list[np.ndarray]:
    shape = np.broadcast_shapes(a.shape, b.shape, c.shape)
    return [a * b + c, np.broadcast_to(a * b, shape)]


for _pattern, _shapes in PATTERNS.items():
    CASES[f"Pointwise_{_pattern}"] = Case(pointwise_op(f"Pointwise_{_pattern}", _shapes, "float32"), multiply_add)
for _dtype in ("float16", "bfloat16", "float64", "int64"):
    _name = f"Pointwise_{_dtype}"
    CASES[_name] = Case(pointwise_op(_name, PATTERNS["Bias"], _dtype), multiply_add)


@case("Transpose_add")
def _() -> tuple[FusedOp, Callable[..., Any]]:
    b, p = Builder(), Program()
    x, y = b.input("float32", "B", "S", "H"), b.input("float32", "H", 1, 1)
    turned = b.op("permute", b.dims(x), ints=(2, 0, 1))
    out = b.output("float32", ("H", "B", "S"), turned)
    value = p("Add", p.load(0), p.load(1))
    b.stages.append(Pointwise(operands((x, (2, 0, 1)), y), p.done(), (Store(out, value),), turned))
    return fused_op("Transpose_add", b.plan()), lambda x, y: [x.transpose(2, 0, 1) + y]


@case("Causal_where")
def _() -> tuple[FusedOp, Callable[..., Any]]:
    b, p = Builder(), Program()
    x = b.input("float32", "B", "S", "T")
    out = b.output("float32", ("B", "S", "T"), b.dims(x))
    rows, columns = p("index", dtype="int64", value=-2), p("index", dtype="int64", value=-1)
    seen = p("GreaterOrEqual", rows, columns, dtype="bool")
    value = p("Where", seen, p.load(0), p.const(float("-inf")))
    b.stages.append(Pointwise(operands(x), p.done(), (Store(out, value),), b.dims(x)))

    def reference(x: np.ndarray) -> list[np.ndarray]:
        return [np.where(np.tril(np.ones(x.shape[-2:], bool)), x, -np.inf)]

    return fused_op("Causal_where", b.plan()), reference


@case("Alias_and_temp")
def _() -> tuple[FusedOp, Callable[..., Any]]:
    """Two stages through a workspace buffer that the second reads under another shape."""
    b = Builder()
    x = b.input("float32", "B", "S", "D")
    temp = b.temp("float32", ("B", "S", "D"), b.dims(x))
    flat = b.op("flatten", b.dims(x), ints=(1,))
    view = b.alias(temp, ("B", "SD"), flat)
    out = b.output("float32", ("SD", "B"), b.op("permute", flat, ints=(1, 0)))
    first, second = Program(), Program()
    doubled = first("Mul", first.load(0), first.const(2.0))
    b.stages.append(Pointwise(operands(x), first.done(), (Store(temp, doubled),), b.dims(x)))
    value = second("Add", second.load(0), second.const(1.0))
    b.stages.append(Pointwise(operands((view, (1, 0))), second.done(), (Store(out, value),), b.dims(out)))
    return fused_op("Alias_and_temp", b.plan()), lambda x: [(2 * x).reshape(x.shape[0], x.shape[1] * x.shape[2]).T + 1]


# Rowwise


def layer_norm(p: Program, x: int, columns: str = "float32") -> int:
    mean = p("reduce_mean", x)
    centred = p("Sub", x, mean)
    variance = p("reduce_mean", p("Mul", centred, centred))
    return p("Div", centred, p("Sqrt", p("Add", variance, p.const(1e-5))))


def norm_reference(x: np.ndarray) -> np.ndarray:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)


def norm_op(name: str, dtype: str, width: int | str) -> FusedOp:
    """Residual add and layer norm: stores the sum, the norm, and (keepdims and not) the row mean."""
    b, p = Builder(), Program(dtype)
    x, r, g = b.input(dtype, "B", "S", width), b.input(dtype, "B", "S", width), b.input(dtype, width)
    total = p("Add", p.load(0), p.load(1))
    result = p("Mul", layer_norm(p, total), p.load(2))
    mean = p("reduce_mean", total)
    space = b.dims(x)
    outs = [b.output(dtype, ("B", "S", width), space) for _ in range(2)]
    outs.append(b.output(dtype, ("B", "S", 1), b.op("reduce", space, ints=(1, -1))))
    outs.append(b.output(dtype, ("B", "S"), b.op("reduce", space, ints=(0, 2))))
    stores = tuple(Store(t, v) for t, v in zip(outs, (total, result, mean, mean), strict=True))
    b.stages.append(Rowwise(operands(x, r, g), p.done(), stores, space))
    return fused_op(name, b.plan())


def residual_norm(x: np.ndarray, r: np.ndarray, g: np.ndarray) -> list[np.ndarray]:
    total = x + r
    return [total, norm_reference(total) * g, total.mean(-1, keepdims=True), total.mean(-1)]


for _dtype in ("float32", "float16", "bfloat16", "float64"):
    CASES[f"Norm_{_dtype}"] = Case(norm_op(f"Norm_{_dtype}", _dtype, "D"), residual_norm)
CASES["Norm_fixed"] = Case(norm_op("Norm_fixed", "float32", 48), residual_norm)


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@case("Softmax_scaled")
def _() -> tuple[FusedOp, Callable[..., Any]]:
    """The scale is one number per row, the mask a bool that broadcasts over heads."""
    b, p = Builder(), Program()
    x, scale = b.input("float32", "B", "H", "T"), b.input("float32", "B", "H", 1)
    mask = b.input("bool", "B", 1, "T")
    kept = p("Where", p.load(2, "bool"), p("Mul", p.load(0), p.load(1)), p.const(-1e9))
    e = p("Exp", p("Sub", kept, p("reduce_max", kept)))
    result = p("Div", e, p("reduce_sum", e))
    out = b.output("float32", ("B", "H", "T"), b.dims(x))
    b.stages.append(Rowwise(operands(x, scale, mask), p.done(), (Store(out, result),), b.dims(x)))
    reference = lambda x, s, m: [softmax(np.where(m != 0, x * s, -1e9))]  # noqa: E731
    return fused_op("Softmax_scaled", b.plan()), reference


@case("Leading_one")
def _() -> tuple[FusedOp, Callable[..., Any]]:
    """The iteration space has a leading 1 that the stored tensors lack: one is whole rows, one is a number per row."""
    b, p = Builder(), Program()
    x = b.input("float32", 1, "S", "D")
    whole = b.op("squeeze", b.dims(x), ints=(0,))
    peak = p("reduce_max", p.load(0))
    outs = [b.output("float32", ("S", "D"), whole), b.output("float32", ("S", 1), b.op("reduce", whole, ints=(1, -1)))]
    spread = p("Add", peak, p.const(0.0))
    stores = (Store(outs[0], spread), Store(outs[1], peak))
    b.stages.append(Rowwise(operands(x), p.done(), stores, b.dims(x)))

    def reference(x: np.ndarray) -> list[np.ndarray]:
        peaks = x[0].max(-1, keepdims=True)
        return [np.broadcast_to(peaks, x[0].shape), peaks]

    return fused_op("Leading_one", b.plan()), reference


@case("Extremes")
def _() -> tuple[FusedOp, Callable[..., Any]]:
    b, p = Builder(), Program()
    x = b.input("float32", "N", "D")
    load = p.load(0)
    rows = b.op("reduce", b.dims(x), ints=(0, 1))
    names = ("max", "min", "sum", "prod")
    stores = [Store(b.output("float32", ("N",), rows), p(f"reduce_{n}", load)) for n in names]
    b.stages.append(Rowwise(operands(x), p.done(), tuple(stores), b.dims(x)))
    return fused_op("Extremes", b.plan()), lambda x: [x.max(1), x.min(1), x.sum(1), x.prod(1)]


# Products


def linear_op(name: str, dtype: str, trans: tuple[bool, bool], alpha: float = 1.0, epilogue: bool = True) -> FusedOp:
    """alpha * A @ B (either transposed), plus a bias and relu; a batch of A against one B."""
    b, p = Builder(), Program(dtype)
    a_shape = ("B", "K", "M") if trans[0] else ("B", "M", "K")
    a, w = b.input(dtype, *a_shape), b.input(dtype, *(("N", "K") if trans[1] else ("K", "N")))
    a_dims = b.op("permute", b.dims(a), ints=(0, 2, 1)) if trans[0] else b.dims(a)
    w_dims = b.op("permute", b.dims(w), ints=(1, 0)) if trans[1] else b.dims(w)
    dims = b.op("matmul", a_dims, w_dims)
    tensors = [a, w]
    value = p("acc")
    if epilogue:
        tensors.append(b.input(dtype, "N"))
        value = p("Relu", p("Add", value, p.load(2)))
    out = b.output(dtype, ("B", "M", "N"), dims)
    b.stages.append(
        Linear(operands(*tensors), p.done(), (Store(out, value),), dims, (), 0, 1, trans[0], trans[1], alpha)
    )
    return fused_op(name, b.plan())


def linear_reference(trans: tuple[bool, bool], alpha: float = 1.0) -> Callable[..., Any]:
    def reference(a: np.ndarray, w: np.ndarray, bias: np.ndarray | None = None) -> list[np.ndarray]:
        product = alpha * ((a.swapaxes(-1, -2) if trans[0] else a) @ (w.T if trans[1] else w))
        return [product if bias is None else np.maximum(product + bias, 0)]

    return reference


LINEARS: dict[str, tuple[str, tuple[bool, bool], float, bool]] = {
    "Linear_plain": ("float32", (False, False), 1.0, False),
    "Linear_alpha": ("float32", (False, False), 0.25, False),
    "Linear_bias": ("float32", (False, False), 1.0, True),
    "Linear_transposed": ("float32", (True, True), 0.5, True),
    "Linear_float16": ("float16", (False, True), 1.0, True),
    "Linear_float64": ("float64", (True, False), 2.0, True),
}
for _name, (_dtype, _trans, _alpha, _epilogue) in LINEARS.items():
    CASES[_name] = Case(linear_op(_name, _dtype, _trans, _alpha, _epilogue), linear_reference(_trans, _alpha))


@case("Conv_relu")
def _() -> tuple[FusedOp, Callable[..., Any]]:
    b, p = Builder(), Program()
    x, w, c = b.input("float32", "N", 4, "H", "W"), b.input("float32", 6, 2, 3, 3), b.input("float32", 6)
    dims = b.op("conv", b.dims(x), b.dims(w), ints=(2, 2, 1, 1, 0, 1, 2, 1, 1, 0))
    out = b.output("float32", ("N", 6, "P", "Q"), dims)
    value = p("Relu", p("acc"))
    b.stages.append(
        Conv(operands(x, w, c), p.done(), (Store(out, value),), dims, (), 0, 1, 2, (2, 1), (1, 0, 1, 2), (1, 1), 2)
    )

    def reference(x: np.ndarray, w: np.ndarray, c: np.ndarray) -> list[np.ndarray]:
        padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (0, 2)))
        n, _, height, width = padded.shape
        result = np.zeros((n, 6, (height - 3) // 2 + 1, width - 2))
        for i in range(result.shape[2]):
            for j in range(result.shape[3]):
                patch = padded[:, :, 2 * i : 2 * i + 3, j : j + 3].reshape(n, 2, 2, 3, 3)
                result[:, :, i, j] = np.einsum("ngcij,gocij->ngo", patch, w.reshape(2, 3, 2, 3, 3)).reshape(n, 6)
        return [np.maximum(result + c[:, None, None], 0)]

    return fused_op("Conv_relu", b.plan()), reference


# Attention


def attention_op(name: str, dtype: str, masked: bool) -> FusedOp:
    """Heads split and merged by views; an additive mask, and rows that are NaN set to 0."""
    b, p, prob = Builder(), Program(), Program()
    q, k, v = (b.input(dtype, "B", s, 4, "D") for s in "STT")
    tensors = [(t, (0, 2, 1, 3)) for t in (q, k, v)]
    score = p("acc")
    if masked:
        mask = b.input("float32", "B", 1, 1, "T")
        score = p("Add", score, p.load(3))
        nan = prob("IsNaN", prob("acc"), dtype="bool")
        prob("Where", nan, prob.const(0.0), 0)
        tensors.append(mask)  # type: ignore[arg-type]
    space = b.op("permute", b.dims(q), ints=(0, 2, 1, 3))
    out = b.output(dtype, ("B", "S", 4, "D"), b.dims(q))
    b.stages.append(
        Attention(
            operands(*tensors), p.done(), (Store(out, 0),), space, (), 0, 1, 2, False, 0.125, score,
            prob.done(), max(0, len(prob.instrs) - 1), (0, 2, 1, 3),
        )
    )  # fmt: skip
    return fused_op(name, b.plan())


def attention_reference(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray | None = None
) -> list[np.ndarray]:
    scores = 0.125 * np.einsum("bshd,bthd->bhst", q, k)
    with np.errstate(invalid="ignore"):
        p = softmax(scores if mask is None else scores + mask)
    return [np.einsum("bhst,bthd->bshd", p if mask is None else np.nan_to_num(p), v)]


CASES["Attention_plain"] = Case(attention_op("Attention_plain", "float32", False), attention_reference)
CASES["Attention_masked"] = Case(attention_op("Attention_masked", "float32", True), attention_reference)
CASES["Attention_float16"] = Case(attention_op("Attention_float16", "float16", True), attention_reference)


@case("Attention_grouped")
def _() -> tuple[FusedOp, Callable[..., Any]]:
    """Two query heads to a key head, keys stored transposed, a causal score program by positions."""
    b, p = Builder(), Program()
    q, k, v = (b.input("float32", *s) for s in (("B", 3, 2, "S", "D"), ("B", 3, 1, "D", "T"), ("B", 3, 1, "T", "E")))
    seen = p(
        "GreaterOrEqual",
        p("index", dtype="int64", value=-2),
        p("index", dtype="int64", value=-1),
        dtype="bool",
    )
    score = p("Where", seen, p("acc"), p.const(float("-inf")))
    lead = b.op("slice", b.dims(q), ints=(0, 4, 1))
    dims = b.op("concat", lead, b.op("take", b.dims(v), ints=(-1,)))
    out = b.output("float32", ("B", 3, 2, "S", "E"), dims)
    stage = Attention(operands(q, k, v), p.done(), (Store(out, 0),), dims, (), 0, 1, 2, True, 1.0, score)
    b.stages.append(stage)

    def reference(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> list[np.ndarray]:
        scores = q @ k
        return [softmax(np.where(np.tril(np.ones(scores.shape[-2:], bool)), scores, -np.inf)) @ v]

    return fused_op("Attention_grouped", b.plan()), reference


# Running them


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


@pytest.mark.parametrize("name", ["Attention_masked", "Attention_float16"])
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


def test_shape_program_reads_inputs_on_the_host(tmp_path: Path) -> None:
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
    session = open_session(op, library([op], tmp_path).path)
    x_value = np.arange(24, dtype="f4").reshape(2, 3, 4)
    for shape in ([6, 4], [-1, 3], [0, -1]):
        result = run(session, x_value, np.array(shape))[0]
        want = [2, 12] if shape == [0, -1] else x_value.reshape(shape).shape
        np.testing.assert_array_equal(result, -x_value.reshape(want))
    with pytest.raises(Exception, match="changes the number of elements"):
        run(session, x_value, np.array([5, 5]))


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
