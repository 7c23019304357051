"""Plans of CUDA stages around convolutions, built by hand."""

from __future__ import annotations

from dataclasses import replace

from fusion_cli.plan.shape_program import run_shape_program
from fusion_cli.planir.host_op import ShapeOp
from fusion_cli.planir.stages import Conv, Operand, Store
from tests.helpers.cuda_case import Case
from tests.helpers.plan_builder import Builder, Program


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
