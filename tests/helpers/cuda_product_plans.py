"""Plans of CUDA stages around matrix products and convolutions, built by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from fusion_cli.plan.shape_program import run_shape_program
from fusion_cli.planir.host_op import ShapeOp
from fusion_cli.planir.stages import Conv, Instr, Linear, Operand, Rowwise, Store
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
    )
    layout = ("t" if trans_a else "n") + ("t" if trans_b else "n")
    return Case(f"linear_{dtype}_{layout}{'_narrow' if narrow else ''}", b.plan(), sizes)


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


def conv(dtype: str) -> Case:
    """Convolution with bias, then ReLU and a residual."""
    b = Builder()
    x, w, bias, residual = (
        b.input(dtype, "n", 3, "h", "w"),
        b.input(dtype, 8, 3, 3, 3),
        b.input(dtype, 8),
        b.input(dtype, "n", 8, "oh", "ow"),
    )
    dims = b.op("conv", b.dims(x), b.dims(w), ints=(2, 2, 2, 1, 1, 1, 1, 1, 1, 0))
    p = Program()
    value = p("Relu", p("Add", p("acc", dtype=dtype), p.load(3, dtype)))
    out = b.output(dtype, ("n", 8, "oh", "ow"), dims)
    b.stages.append(
        Conv(tuple(map(Operand, (x, w, bias, residual))), p.done(), (Store(out, value),), dims, ("/conv",), bias=2,
             strides=(2, 2), pads=(1, 1, 1, 1), dilations=(1, 1))
    )  # fmt: skip
    return Case(
        f"conv_{dtype}",
        b.plan(),
        ({"n": 2, "h": 17, "w": 23, "oh": 9, "ow": 12}, {"n": 1, "h": 1, "w": 1, "oh": 1, "ow": 1}),
    )


def conv_last(
    dtype: str,
    adds: str,
    *,
    filter: tuple[int, ...] = (3, 3),
    channels: tuple[int, int] = (5, 7),
    group: int = 1,
    strides: tuple[int, ...] = (),
    pads: tuple[int, ...] = (),
    dilations: tuple[int, ...] = (),
    auto_pad: str = "NOTSET",
) -> Case:
    """Convolution of images with the channels last; `adds` names what is added to it (b)ias, (r)esidual, a ReLU (x) of
    that, or what no vendor's kernel does (t: tanh)."""
    n, (c, m) = len(filter), channels
    strides, dilations, pads = strides or (1,) * n, dilations or (1,) * n, pads or (0,) * (2 * n)
    b = Builder()
    axes = ("h", "w", "d")[:n]
    x, w = b.input(dtype, "n", *axes, c), b.input(dtype, m, c // group, *filter)
    first = b.op("permute", b.dims(x), ints=(0, n + 1, *range(1, n + 1)))
    number = ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER").index(auto_pad)
    made = b.op("conv", first, b.dims(w), ints=(n, *strides, *pads, *dilations, number))
    dims = b.op("permute", made, ints=(0, *range(2, n + 2), 1))
    out_shape = ("n", *(f"o{a}" for a in axes), m)
    p, operands = Program(dtype), [x, w]
    value = followed(b, p, operands, adds, out_shape)
    out = b.output(dtype, out_shape, dims)
    b.stages.append(
        Conv(tuple(map(Operand, operands)), p.done(), (Store(out, value),), dims, ("/conv",), strides=strides,
             pads=pads, dilations=dilations, group=group, auto_pad=auto_pad, channels_last=True)
    )  # fmt: skip
    sizes = []
    for image in ((11, 8, 5), (3, 9, 4)):
        made_of = dict(zip(("n", *axes), (2, *image), strict=False))
        results = conv_out((2, c, *image[:n]), (m, c // group, *filter), strides, pads, dilations, auto_pad)
        sizes.append(made_of | {f"o{a}": size for a, size in zip(axes, results, strict=True)})
    nothing = {**sizes[0], "n": 0}
    name = f"conv_last_{adds or 'bare'}_{c}x{m}by{group}_{'x'.join(map(str, filter))}_{auto_pad}_{dtype}"
    where = (0, *(1 for _ in filter), 0)
    return Case(name, b.plan(), (*sizes, nothing), {0: (where, float("nan"))})


def followed(b: Builder, p: Program, operands: list[int], adds: str, shape: tuple[int | str, ...]) -> int:
    """What becomes of a stage's result of this shape, by the letters of `adds`: a (b)ias of each channel and a
    (r)esidual, inputs of the plan and `operands` more of the stage, a ReLU (x), a tanh (t)."""
    value, dtype = p("acc"), p.dtype
    for what in adds:
        if what in "br":
            operands.append(b.input(dtype, *(shape[-1:] if what == "b" else shape)))
            value = p("Add", value, p.load(len(operands) - 1))
        else:
            value = p({"x": "Relu", "t": "Tanh"}[what], value)
    return value


def conv_out(
    x: tuple[int, ...],
    w: tuple[int, ...],
    strides: tuple[int, ...],
    pads: tuple[int, ...],
    dilations: tuple[int, ...],
    auto_pad: str,
) -> tuple[int, ...]:
    """The positions along each axis that a convolution has results for."""
    n = len(strides)
    number = ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER").index(auto_pad)
    ints = (n, *strides, *pads, *dilations, number)
    host = (ShapeOp("dims", (), (0,)), ShapeOp("dims", (), (1,)), ShapeOp("conv", (0, 1), ints))
    return run_shape_program(host, {0: x, 1: w}, {})[2][2:]


def conv_lasts() -> list[Case]:
    """Every form of a convolution with the channels last, and every epilogue."""
    return [
        conv_last("float16", "", channels=(8, 16), pads=(1, 1, 1, 1)),
        conv_last("float16", "brx", channels=(16, 8), strides=(2, 2), pads=(1, 1, 1, 1)),
        conv_last("float16", "bx", channels=(8, 8), filter=(1, 1), strides=(2, 1)),
        conv_last("bfloat16", "rx", pads=(2, 0, 1, 3), dilations=(2, 1)),
        conv_last("float16", "b", channels=(12, 8), group=4, filter=(3, 2), auto_pad="SAME_UPPER", strides=(2, 3)),
        *depthwise(),
        *in_groups(),
        *of_floats(),
        conv_last("bfloat16", "x", channels=(8, 24), filter=(5,), pads=(2, 2)),
        conv_last("float16", "brx", channels=(8, 8), filter=(3, 3, 2), pads=(2, 0, 1, 1, 1, 0)),
        conv_last("float32", "t", channels=(8, 4), group=2, auto_pad="SAME_LOWER", strides=(3, 2), filter=(2, 3)),
    ]


def in_groups() -> list[Case]:
    """Groups of several channels that meet them at many places: tiles of 16, 32 and 64 filters, full and not, and two
    of them; windows that reach over every edge."""
    uneven = {"strides": (2, 1), "dilations": (1, 2), "pads": (2, 3, 1, 3)}
    return [
        conv_last("float16", "bt", channels=(96, 96), group=2, filter=(31,), pads=(15, 14)),
        conv_last("bfloat16", "brx", channels=(16, 32), group=2, filter=(5, 4), **uneven),
        conv_last("float16", "", channels=(64, 56), group=2, filter=(4, 2, 3), pads=(2, 1, 1, 1, 0, 1)),
        conv_last("bfloat16", "x", channels=(16, 144), group=2, filter=(16,), auto_pad="SAME_UPPER"),
        conv_last("float16", "r", channels=(24, 9), group=3, filter=(4, 4), auto_pad="SAME_LOWER", strides=(1, 2)),
    ]  # fmt: skip


def of_floats() -> list[Case]:
    """Tiles of 8, 32 and 64 filters, full and not, of many and of few positions, whose channels lie in fours or not."""
    uneven = {"strides": (2, 1), "dilations": (1, 2), "pads": (2, 3, 1, 3)}
    return [
        conv_last("float32", "brx", pads=(1, 1, 1, 1)),
        conv_last("float32", "bx", channels=(40, 6), filter=(9,), pads=(3, 4)),
        conv_last("float32", "brx", channels=(9, 27), filter=(4, 4), **uneven),
        conv_last("float32", "r", channels=(8, 24), group=2, filter=(3, 3, 1), pads=(2, 1, 0, 1, 1, 0)),
        conv_last("float32", "b", channels=(3, 64), filter=(5, 3), pads=(5, 1, 4, 1)),
        conv_last("float32", "rx", channels=(48, 64), filter=(5, 3), pads=(5, 1, 4, 1)),
        conv_last("float32", "brx", channels=(6, 66), group=2, auto_pad="SAME_LOWER", strides=(2, 3)),
        conv_last("float32", "x", channels=(36, 40), auto_pad="SAME_UPPER"),
    ]  # fmt: skip


_MANY_IMAGES = 200
"""As many as fill a GPU with patches of several rows."""


def depthwise() -> list[Case]:
    """Convolutions with a filter for each channel: vectors of channels and not, patches, windows of all and of some of
    the taps."""
    cases = [
        ("float16", "bt", 6, (3, 3), {"pads": (1, 1, 1, 1)}),
        ("float16", "brx", 8, (7, 7), {"pads": (3, 3, 3, 3)}),
        ("bfloat16", "b", 8, (5, 5), {"strides": (2, 2), "pads": (2, 2, 2, 2)}),
        ("float32", "t", 12, (3, 3), {"strides": (2, 1), "auto_pad": "SAME_UPPER"}),
        ("float32", "", 4, (3, 3), {"dilations": (2, 3), "pads": (2, 3, 2, 3)}),
        ("float16", "x", 8, (31,), {"pads": (15, 15)}),
        ("float16", "r", 8, (4, 11), {"strides": (3, 5), "pads": (1, 7, 3, 6), "dilations": (1, 2)}),
        ("float32", "b", 5, (2, 1), {"strides": (1, 3)}),
    ]
    made = [
        conv_last(dtype, adds, channels=(c, c), group=c, filter=filter, **more)
        for dtype, adds, c, filter, more in cases
    ]
    return [replace(case, sizes=(*case.sizes, {**case.sizes[0], "n": _MANY_IMAGES})) for case in made]


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
