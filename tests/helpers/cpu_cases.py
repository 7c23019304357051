"""Hand-written plans of every stage kind, each with the numpy function that its kernel must agree with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from fusion_cli.planir.attention_sort import AttentionKind
from fusion_cli.planir.stages import Attention, Conv, Linear, Operand, Pointwise, Rowwise, Store
from fusion_cli.types import FusedOp
from tests.helpers.plan_builder import Builder, Program, fused_op, operands

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


def rows_op(name: str, dtype: str) -> FusedOp:
    """Rows of a table, some of them counted from the end and some that do not exist, and their norms."""
    b, p = Builder(), Program(dtype)
    table, numbers = b.input(dtype, 5, "D"), b.input("int64", "B", "S", 1)
    dims = b.op("concat", b.op("take", b.dims(numbers), ints=(0, 1)), b.op("take", b.dims(table), ints=(1,)))
    stored = p.load(0), layer_norm(p, p.load(0))
    outs = [b.output(dtype, ("B", "S", "D"), dims) for _ in stored]
    stores = tuple(Store(t, v) for t, v in zip(outs, stored, strict=True))
    b.stages.append(Rowwise((Operand(table, rows=1), *operands(numbers)), p.done(), stores, dims))
    return fused_op(name, b.plan())


def norm_of_rows(table: np.ndarray, numbers: np.ndarray) -> list[np.ndarray]:
    found = table[np.clip(np.where(numbers < 0, numbers + len(table), numbers), 0, len(table) - 1)[..., 0]]
    return [found, norm_reference(found)]


for _dtype in ("float32", "float16"):
    CASES[f"Rows_{_dtype}"] = Case(rows_op(f"Rows_{_dtype}", _dtype), norm_of_rows)


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


def attention_op(name: str, dtype: str, masked: bool, empty: bool = False) -> FusedOp:
    """Heads split and merged by views; an additive mask, and rows that are NaN, or only those that are `empty`, set to
    0."""
    b, p, prob = Builder(), Program(), Program()
    q, k, v = (b.input(dtype, "B", s, 4, "D") for s in "STT")
    tensors = [(t, (0, 2, 1, 3)) for t in (q, k, v)]
    score = p("acc")
    if masked:
        mask = b.input("float32", "B", 1, 1, "T")
        score = p("Add", score, p.load(3))
        if not empty:
            nan = prob("IsNaN", prob("acc"), dtype="bool")
            prob("Where", nan, prob.const(0.0), 0)
        tensors.append(mask)  # type: ignore[arg-type]
    space = b.op("permute", b.dims(q), ints=(0, 2, 1, 3))
    out = b.output(dtype, ("B", "S", 4, "D"), b.dims(q))
    b.stages.append(
        Attention(
            operands(*tensors), p.done(), (Store(out, 0),), space, (), 0, 1, 2, 0.125, score,
            prob.done(), max(0, len(prob.instrs) - 1), out_perm=(0, 2, 1, 3),
            kind=AttentionKind("additive", probabilities="zero_empty") if empty else AttentionKind(),
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
CASES["Attention_empty"] = Case(attention_op("Attention_empty", "float32", True, empty=True), attention_reference)
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
    read = operands(q, (k, (0, 1, 2, 4, 3)), v)
    stage = Attention(read, p.done(), (Store(out, 0),), dims, (), 0, 1, 2, 1.0, score)
    b.stages.append(stage)

    def reference(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> list[np.ndarray]:
        scores = q @ k
        return [softmax(np.where(np.tril(np.ones(scores.shape[-2:], bool)), scores, -np.inf)) @ v]

    return fused_op("Attention_grouped", b.plan()), reference
