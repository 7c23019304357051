"""Plans of CUDA stages around matrix products, built by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from fusion_cli.planir.stages import Instr, Linear, Operand, Rowwise, Store
from tests.helpers.cuda_case import Case
from tests.helpers.plan_builder import Builder, Program


def linear(dtype: str, *, trans_a: bool = False, trans_b: bool = False, narrow: bool = False) -> Case:
    """alpha * A @ B + bias, SiLU, residual; `narrow` writes float32 from it as well (no place for the bare product)."""
    b = Builder()
    a = b.input(dtype, *(("k", "m") if trans_a else ("m", "k")))
    w = b.input(dtype, *(("n", "k") if trans_b else ("k", "n")))
    bias, residual = b.input(dtype, "n"), b.input(dtype, "m", "n")
    dims = b.op("gemm", b.dims(a), b.dims(w), ints=(int(trans_a), int(trans_b)))
    p = Program()
    value = p("Add", p.silu(p("Add", p("acc", dtype=dtype), p.load(2, dtype))), p.load(3, dtype))
    other = "float32" if narrow else dtype
    out = b.output(other, ("m", "n"), dims)
    operands = tuple(map(Operand, (a, w, bias, residual)))
    b.stages.append(
        Linear(
            operands,
            p.done(),
            (Store(out, value),),
            dims,
            ("/fc1", "/act"),
            trans_a=trans_a,
            trans_b=trans_b,
            alpha=0.5,
        )
    )
    sizes = (
        {"m": 128, "n": 192, "k": 64},
        {"m": 33, "n": 65, "k": 47},
        {"m": 1, "n": 9, "k": 129},
        {"m": 2, "n": 24, "k": 33},
        {"m": 5, "n": 1, "k": 1},
        {"m": 0, "n": 4, "k": 8},
        {"m": 3, "n": 4, "k": 0},
        {"m": 7, "n": 264, "k": 70},
        {"m": 11, "n": 600, "k": 33},
        {"m": 16, "n": 8, "k": 1000},
        {"m": 40, "n": 72, "k": 392},
        {"m": 1000, "n": 64, "k": 12},
        {"m": 1000, "n": 128, "k": 12},
        {"m": 257, "n": 384, "k": 520},
        {"m": 1024, "n": 3072, "k": 768},
        {"m": 301, "n": 333, "k": 401},
        {"m": 301, "n": 1000, "k": 2048},  # two blocks share the depth
    )
    layout = ("t" if trans_a else "n") + ("t" if trans_b else "n")
    return Case(f"linear_{dtype}_{layout}{'_narrow' if narrow else ''}", b.plan(), sizes)


def knowing(case: Case, **sizes: int) -> Case:
    """The same with these sizes known beforehand, and the others as they are in its first sizes."""
    fixed = {**case.sizes[0], **sizes}
    tensors = tuple(replace(t, shape=tuple(sizes.get(str(d), d) for d in t.shape)) for t in case.plan.tensors)
    name = "_".join([case.name, *(f"{d}{n}" for d, n in sizes.items())])
    return replace(case, name=name, plan=replace(case.plan, tensors=tensors), sizes=(fixed,))


def gelu(dtype: str) -> Case:
    """A @ B + bias, then GELU as exporters write it out."""
    b = Builder()
    a, w, bias = b.input(dtype, "m", "k"), b.input(dtype, "k", "n"), b.input(dtype, "n")
    dims = b.op("matmul", b.dims(a), b.dims(w))
    p = Program(dtype)
    x = p("Add", p("acc"), p.load(2))
    value = p("Mul", p("Mul", x, p("Add", p("Erf", p("Div", x, p.const(math.sqrt(2)))), p.const(1.0))), p.const(0.5))
    out = b.output(dtype, ("m", "n"), dims)
    b.stages.append(Linear(tuple(map(Operand, (a, w, bias))), p.done(), (Store(out, value),), dims, ("/fc", "/gelu")))
    sizes = (
        {"m": 128, "n": 192, "k": 64},
        {"m": 33, "n": 65, "k": 47},
        {"m": 1, "n": 40, "k": 129},
        {"m": 0, "n": 4, "k": 8},
        {"m": 1000, "n": 328, "k": 200},
        {"m": 1576, "n": 3072, "k": 768},
        {"m": 100, "n": 16392, "k": 1024},
    )
    return Case(f"linear_gelu_{dtype}", b.plan(), sizes, {0: ((0, 0), float("inf"))})


def adding(dtype: str, terms: str, *, trans_b: bool = False) -> Case:
    """What the vendor's product can add itself: "b" a bias, "r" a residual, "x" a ReLU, in this order."""
    b = Builder()
    x = b.input(dtype, "b", "s", "k")
    w = b.input(dtype, *(("n", "k") if trans_b else ("k", "n")))
    product = b.op("permute", b.dims(w), ints=(1, 0)) if trans_b else b.dims(w)
    dims = b.op("matmul", b.dims(x), product)
    more = [b.input(dtype, *(("n",) if t == "b" else ("b", "s", "n"))) for t in terms if t != "x"]
    p = Program()
    value = p("acc", dtype=dtype)
    for i in range(len(more)):
        value = p("Add", p.load(2 + i, dtype), value)
    value = p("Relu", value) if "x" in terms else value
    out = b.output(dtype, ("b", "s", "n"), dims)
    operands = tuple(map(Operand, (x, w, *more)))
    b.stages.append(Linear(operands, p.done(), (Store(out, value),), dims, ("/fc",), trans_b=trans_b, alpha=0.5))
    sizes = (
        {"b": 2, "s": 17, "k": 24, "n": 40},
        {"b": 3, "s": 5, "k": 7, "n": 9},
        {"b": 0, "s": 5, "k": 8, "n": 8},
        {"b": 3, "s": 1, "k": 24, "n": 40},
        {"b": 1, "s": 17, "k": 1032, "n": 24},  # blocks share the depth: eight, four, and two
        {"b": 2, "s": 35, "k": 520, "n": 136},
        {"b": 7, "s": 43, "k": 2048, "n": 1000},
    )
    return Case(f"linear_adding_{dtype}_{terms}{'_t' * trans_b}", b.plan(), sizes)


def batched(dtype: str) -> Case:
    """A permuted batched A against one weight (rows fold) and then a batched product of two tensors, no epilogue."""
    b = Builder()
    x, w, other = b.input(dtype, "b", "s", "k"), b.input(dtype, "k", "n"), b.input(dtype, "b", "s", "h", "n")
    hidden_dims = b.op("matmul", b.dims(x), b.dims(w))
    hidden = b.temp(dtype, ("b", "s", "n"), hidden_dims)
    p = Program()
    acc = p("Relu", p("acc", dtype=dtype))
    b.stages.append(Linear((Operand(x), Operand(w)), p.done(), (Store(hidden, acc),), hidden_dims))
    lifted = b.alias(hidden, ("b", 1, "s", "n"), b.op("unsqueeze", hidden_dims, ints=(1,)))
    turned = b.op("permute", b.dims(other), ints=(0, 2, 3, 1))
    dims = b.op("matmul", b.dims(lifted), turned)
    out = b.output(dtype, ("b", "h", "s", "s"), dims)
    operands = Operand(lifted), Operand(other, (0, 2, 3, 1))
    b.stages.append(Linear(operands, (Instr("acc", (), dtype),), (Store(out, 0),), dims))
    sizes = (
        {"b": 2, "s": 33, "k": 40, "h": 3, "n": 24},
        {"b": 3, "s": 150, "k": 129, "h": 2, "n": 160},
        {"b": 2, "s": 1, "k": 8, "h": 1, "n": 8},
    )
    return Case(f"batched_{dtype}", b.plan(), sizes)


def _projections(b: Builder, dtype: str, trans_b: bool, *values: Callable[[Program, int], int]) -> int:
    """Query, and narrower key and value, of one left operand, which is given back; `values` are their epilogues, of
    which the first may load a bias."""
    x, bias = b.input(dtype, "b", "s", "k"), b.input(dtype, "n")
    widths = ("n", "m", "m")
    for i, (width, value) in enumerate(zip(widths, values, strict=True)):
        w = b.input(dtype, *((width, "k") if trans_b else ("k", width)))
        product = b.op("permute", b.dims(w), ints=(1, 0)) if trans_b else b.dims(w)
        dims = b.op("matmul", b.dims(x), product)
        p = Program()
        result = value(p, p("acc", dtype=dtype))
        operands = (Operand(x), Operand(w), *([Operand(bias)] if i == 0 else []))
        out = b.output(dtype, ("b", "s", width), dims)
        b.stages.append(Linear(operands, p.done(), (Store(out, result),), dims, (f"/proj{i}",), trans_b=trans_b))
    return x


def products(dtype: str) -> Case:
    """Products of one left operand: query, and narrower key and value; then gate and up, the second of which reads the
    first's result."""
    b = Builder()
    x = _projections(
        b, dtype, False, lambda p, acc: p("Add", acc, p.load(2, dtype)), lambda _, acc: acc, lambda _, acc: acc
    )
    weights = [b.input(dtype, "k", "n") for _ in range(2)]
    spaces = [b.op("matmul", b.dims(x), b.dims(w)) for w in weights]
    p = Program()
    value = p.silu(p("acc", dtype=dtype))
    gate = b.temp(dtype, ("b", "s", "n"), spaces[0])
    b.stages.append(Linear((Operand(x), Operand(weights[0])), p.done(), (Store(gate, value),), spaces[0], ("/gate",)))
    p = Program()
    value = p("Mul", p("acc", dtype=dtype), p.load(2, dtype))
    out = b.output(dtype, ("b", "s", "n"), spaces[1])
    operands = (Operand(x), Operand(weights[1]), Operand(gate))
    b.stages.append(Linear(operands, p.done(), (Store(out, value),), spaces[1], ("/gated",)))
    sizes = (
        {"b": 1, "s": 1, "k": 200, "n": 96, "m": 40},
        {"b": 2, "s": 1, "k": 2100, "n": 40, "m": 8},
        {"b": 1, "s": 2, "k": 1, "n": 8, "m": 16},
        {"b": 1, "s": 2, "k": 65, "n": 24, "m": 9},
        {"b": 3, "s": 1, "k": 64, "n": 32, "m": 8},
        {"b": 3, "s": 5, "k": 96, "n": 40, "m": 520},
        {"b": 17, "s": 1, "k": 40, "n": 16, "m": 8},
        {"b": 1, "s": 1, "k": 0, "n": 8, "m": 8},
        {"b": 0, "s": 1, "k": 8, "n": 8, "m": 8},
    )
    return Case(f"linear_products_{dtype}", b.plan(), sizes)


def abreast(dtype: str, *, trans_b: bool = False) -> Case:
    """Query with a bias, key bare, value with a SiLU: all of one left operand, of unequal widths."""
    b = Builder()
    _projections(
        b,
        dtype,
        trans_b,
        lambda p, acc: p("Add", acc, p.load(2, dtype)),
        lambda _, acc: acc,
        lambda p, acc: p.silu(acc),
    )
    sizes = (
        {"b": 2, "s": 50, "k": 104, "n": 200, "m": 72},
        {"b": 1, "s": 64, "k": 8, "n": 8, "m": 16},
        {"b": 1, "s": 128, "k": 768, "n": 768, "m": 768},
        {"b": 1, "s": 1, "k": 64, "n": 32, "m": 8},
        {"b": 1, "s": 70, "k": 24, "n": 9, "m": 16},
        {"b": 0, "s": 64, "k": 8, "n": 8, "m": 8},
        {"b": 3, "s": 301, "k": 520, "n": 1032, "m": 264},
    )
    return Case(f"linear_abreast_{dtype}{'_t' * trans_b}", b.plan(), sizes, {0: ((0, 0, 0), float("nan"))})


def gated(dtype: str, *, trans_b: bool = False, kept: bool = False) -> Case:
    """silu(x @ gate + bias) * (x @ up * 0.5), the only products of x; `kept`: the first is a result as well."""
    b = Builder()
    x = b.input(dtype, "b", "s", "k")
    gate, up = (b.input(dtype, *(("n", "k") if trans_b else ("k", "n"))) for _ in range(2))
    bias = b.input(dtype, "n")
    product = b.op("permute", b.dims(gate), ints=(1, 0)) if trans_b else b.dims(gate)
    dims = b.op("matmul", b.dims(x), product)
    hidden = b.output(dtype, ("b", "s", "n"), dims) if kept else b.temp(dtype, ("b", "s", "n"), dims)
    p = Program()
    value = p.silu(p("Add", p("acc", dtype=dtype), p.load(2, dtype)))
    operands = (Operand(x), Operand(gate), Operand(bias))
    b.stages.append(Linear(operands, p.done(), (Store(hidden, value),), dims, ("/gate",), trans_b=trans_b))
    p = Program()
    value = p("Mul", p("acc", dtype=dtype), p.load(2, dtype))
    out = b.output(dtype, ("b", "s", "n"), dims)
    operands = (Operand(x), Operand(up), Operand(hidden))
    b.stages.append(Linear(operands, p.done(), (Store(out, value),), dims, ("/up",), trans_b=trans_b, alpha=0.5))
    sizes = (
        {"b": 2, "s": 50, "k": 104, "n": 200},
        {"b": 1, "s": 64, "k": 8, "n": 8},
        {"b": 1, "s": 1, "k": 64, "n": 32},
        {"b": 1, "s": 63, "k": 24, "n": 16},
        {"b": 1, "s": 70, "k": 24, "n": 9},
        {"b": 1, "s": 70, "k": 15, "n": 16},
        {"b": 0, "s": 64, "k": 8, "n": 8},
        {"b": 1, "s": 64, "k": 0, "n": 8},
        {"b": 3, "s": 523, "k": 1000, "n": 1032},
    )
    name = f"linear_gated_{dtype}{'_t' * trans_b}{'_kept' * kept}"
    return Case(name, b.plan(), sizes, {0: ((0, 0, 0), float("nan"))})


def chain(dtype: str) -> Case:
    """Norm, product with bias and GELU, product with residual: three kernels that pass on their results."""
    b = Builder()
    x, gamma = b.input(dtype, "b", "s", "d"), b.input(dtype, "d")
    w1, b1, w2 = b.input(dtype, "d", "f"), b.input(dtype, "f"), b.input(dtype, "f", "d")
    dims = b.dims(x)
    normed = b.temp(dtype, ("b", "s", "d"), dims)
    p = Program()
    square = p("reduce_mean", p("Mul", p.load(0, dtype), p.load(0, dtype)))
    scale = p("Reciprocal", p("Sqrt", p("Add", square, p.const(1e-6))))
    result = p("Mul", p("Mul", p.load(0, dtype), scale), p.load(1, dtype))
    b.stages.append(Rowwise((Operand(x), Operand(gamma)), p.done(), (Store(normed, result),), dims, ("/norm",)))
    hidden_dims = b.op("matmul", dims, b.dims(w1))
    hidden = b.temp(dtype, ("b", "s", "f"), hidden_dims)
    p = Program()
    z = p("Add", p("acc", dtype=dtype), p.load(2, dtype))
    erf = p("Erf", p("Mul", z, p.const(0.70710678)))
    gelu = p("Mul", p("Mul", z, p.const(0.5)), p("Add", erf, p.const(1.0)))
    b.stages.append(Linear((Operand(normed), Operand(w1), Operand(b1)), p.done(), (Store(hidden, gelu),), hidden_dims))
    p = Program()
    value = p("Add", p("acc", dtype=dtype), p.load(2, dtype))
    out = b.output(dtype, ("b", "s", "d"), dims)
    b.stages.append(Linear((Operand(hidden), Operand(w2), Operand(x)), p.done(), (Store(out, value),), dims, ("/fc2",)))
    return Case(
        f"chain_{dtype}", b.plan(), ({"b": 2, "s": 19, "d": 96, "f": 200}, {"b": 1, "s": 64, "d": 512, "f": 2048})
    )
