"""Plans of the moments of groups of channels."""

from __future__ import annotations

from fusion_cli.planir.stages import Instr, Moments, Operand, Store
from tests.helpers.cuda_case import Case
from tests.helpers.plan_builder import Builder


def of_groups(dtype: str, channels: int, groups: int, *images: tuple[int, ...]) -> Case:
    """The moments of images of such a number, height and width."""
    b = Builder()
    x = b.input(dtype, "n", *("h", "w")[: len(images[0]) - 1], channels)
    shape = b.dims(x)
    rank = len(images[0]) + 1
    dims = b.op("concat", b.op("const", ints=(2,)), b.op("take", shape, ints=(0, rank - 1)))
    out = b.output("float32", (2, "n", channels), dims)
    program = (Instr("acc", (), "float32"),)
    b.stages.append(
        Moments((Operand(x),), program, (Store(out, 0),), dims, ("/norm",), x=0, groups=groups, epsilon=1e-3)
    )
    sizes = tuple(dict(zip(("n", "h", "w"), image, strict=False)) for image in images)
    where = (0, *(1,) * (rank - 2), channels - 1)
    return Case(f"moments_{channels}_by_{groups}_{dtype}", b.plan(), sizes, {0: (where, float("nan"))})


def moments() -> list[Case]:
    """Vectors of channels and single ones, few and very many of them, images that many blocks share and empty ones."""
    return [
        of_groups("float16", 64, 8, (2, 9, 7), (1, 71, 63), (0, 4, 4)),
        of_groups("bfloat16", 96, 3, (3, 5, 11), (1, 2, 3), (2, 40, 30)),
        of_groups("float32", 30, 5, (2, 8, 9)),
        of_groups("float32", 12, 12, (2, 33), (5, 1)),
        of_groups("float32", 4096, 32, (1, 5, 2), (2, 11, 3)),
        of_groups("float32", 4096, 1, (2, 13, 1)),
        of_groups("float16", 1032, 1, (2, 4, 5)),
    ]
