"""Plans of windows that move over images."""

from __future__ import annotations

from fusion_cli.planir.stages import Operand, Pool, Store
from tests.helpers.cuda_case import Case
from tests.helpers.cuda_conv_plans import conv_out, followed
from tests.helpers.plan_builder import Builder, Program


def pool(
    dtype: str,
    adds: str,
    *,
    kernel: tuple[int, ...] = (3, 3),
    channels: int = 8,
    strides: tuple[int, ...] = (),
    pads: tuple[int, ...] = (),
    dilations: tuple[int, ...] = (),
    mean: bool = False,
    counts_pads: bool = False,
) -> Case:
    """Windows over images; `adds` names what follows (see `followed`)."""
    n = len(kernel)
    strides, dilations, pads = strides or (1,) * n, dilations or (1,) * n, pads or (0,) * (2 * n)
    b = Builder()
    axes = ("h", "w")[:n]
    x = b.input(dtype, "n", *axes, channels)
    first = b.op("permute", b.dims(x), ints=(0, n + 1, *range(1, n + 1)))
    window = b.op("const", ints=(channels, 1, *kernel))
    made = b.op("conv", first, window, ints=(n, *strides, *pads, *dilations, 0))
    dims = b.op("permute", made, ints=(0, *range(2, n + 2), 1))
    out_shape = ("n", *(f"o{a}" for a in axes), channels)
    p, operands = Program(dtype), [x]
    value = followed(b, p, operands, adds, out_shape)
    out = b.output(dtype, out_shape, dims)
    b.stages.append(
        Pool(tuple(map(Operand, operands)), p.done(), (Store(out, value),), dims, ("/pool",), kernel=kernel,
             strides=strides, pads=pads, dilations=dilations, mean=mean, counts_pads=counts_pads)
    )  # fmt: skip
    sizes = []
    for image in ((11, 9), (6, 14)):
        made_of = dict(zip(("n", *axes), (2, *image), strict=False))
        results = conv_out((2, channels, *image[:n]), (channels, 1, *kernel), strides, pads, dilations, "NOTSET")
        sizes.append(made_of | {f"o{a}": size for a, size in zip(axes, results, strict=True)})
    what = "mean_with_pads" if counts_pads else "mean" if mean else "largest"
    name = f"pool_{what}_{adds or 'bare'}_{channels}_{'x'.join(map(str, kernel))}_{dtype}"
    where = (0, *(1 for _ in kernel), 0)
    return Case(name, b.plan(), (*sizes, {**sizes[0], "n": 0}), {0: (where, float("nan"))})


def pools() -> list[Case]:
    """The largest and the mean, along one axis and two, with vectors of channels and without, and what may follow."""
    return [
        pool("float16", "", strides=(2, 2), pads=(1, 1, 1, 1)),
        pool("float16", "brx", channels=16, mean=True, strides=(2, 1), pads=(1, 0, 1, 1)),
        pool("bfloat16", "b", channels=6, kernel=(2, 4), strides=(3, 1), pads=(0, 2, 1, 1), dilations=(2, 2)),
        pool("float32", "", channels=4, kernel=(5, 5), mean=True, counts_pads=True, pads=(2, 2, 2, 2)),
        pool("float32", "x", channels=3, kernel=(4,), strides=(3,), pads=(1, 2)),
        pool("float16", "r", channels=5, kernel=(3,), mean=True, pads=(1, 1)),
    ]
