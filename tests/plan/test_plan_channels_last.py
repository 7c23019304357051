"""Regions whose images are kept with the channels last, against ONNX Runtime, which keeps them first."""

from __future__ import annotations

import pytest

from fusion_cli.planir.stages import Conv, Linear, Pointwise, Rowwise
from tests.helpers.channels_last import check
from tests.helpers.region_tools import kinds


def test_a_chain_is_turned_over_at_its_ends_only() -> None:
    plan = check(
        """g (float[n, 6, h, w] x, float[8, 6, 3, 3] w1, float[8] b1, float[8, 8, 3, 3] w2, float[6, 8, 3, 3] w3) =>
        (float[n, 6, h, w] y) {
            c = Conv <pads = [1, 1, 1, 1]> (x, w1, b1)
            d = Relu (c)
            e = Conv <pads = [1, 1, 1, 1]> (d, w2)
            f = Add (d, e)
            i = Conv <pads = [1, 1, 1, 1]> (f, w3)
            j = Add (i, x)
            y = Relu (j)
        }""",
        {"x": (2, 6, 5, 7), "w1": (8, 6, 3, 3), "b1": (8,), "w2": (8, 8, 3, 3), "w3": (6, 8, 3, 3)},
    )
    assert kinds(plan) == [Pointwise, Conv, Conv, Conv, Pointwise]
    assert all(s.channels_last for s in plan.stages if isinstance(s, Conv))


def test_a_kernel_of_one_point_is_a_product() -> None:
    plan = check(
        """g (float[n, 6, h, w] x, float[8, 6, 1, 1] w1, float[8] b1, float[4, 8, 1, 1] w2) => (float[n, 4, h, w] y) {
            c = Conv (x, w1, b1)
            d = Sigmoid (c)
            y = Conv <auto_pad = "SAME_UPPER"> (d, w2)
        }""",
        {"x": (2, 6, 5, 7), "w1": (8, 6, 1, 1), "b1": (8,), "w2": (4, 8, 1, 1)},
    )
    assert kinds(plan) == [Pointwise, Linear, Linear, Pointwise]


@pytest.mark.parametrize("image", [(8, 12), (11, 13)], ids=["all of the image", "not what is left over"])
def test_patches_are_rows_of_a_product(image: tuple[int, int]) -> None:
    """As a vision transformer begins: the reshape and the transpose behind it move nothing."""
    plan = check(
        f"""g (float[n, 3, {image[0]}, {image[1]}] x, float[10, 3, 4, 2] w, float[10] b) => (float[n, 12, 10] y)
        <int64[3] to = {{0, 10, 12}}> {{
            c = Conv <strides = [4, 2]> (x, w, b)
            r = Reshape (c, to)
            y = Transpose <perm = [0, 2, 1]> (r)
        }}""",
        {"x": (2, 3, *image), "w": (10, 3, 4, 2), "b": (10,)},
    )
    assert kinds(plan) == [Pointwise, Linear]


@pytest.mark.parametrize(
    ("options", "x", "w"),
    [
        ("strides = [4, 4]", (2, 3, 8, 10), (5, 3, 4, 4)),  # patches that leave some of the image over
        ("strides = [2, 2], pads = [1, 0, 0, 2]", (2, 3, 8, 9), (5, 3, 2, 2)),
        ("strides = [2, 2], dilations = [2, 1]", (2, 3, 8, 8), (5, 3, 2, 2)),
        ("group = 2", (2, 4, 5, 6), (6, 2, 1, 1)),
        ("group = 4, pads = [1, 1, 1, 1]", (2, 4, 5, 6), (4, 1, 3, 3)),
        ('auto_pad = "SAME_LOWER", strides = [2, 3]', (2, 4, 5, 7), (3, 4, 4, 2)),
        ("strides = [2]", (2, 4, 9), (3, 4, 3)),
        ("pads = [1, 0, 1, 0, 0, 1]", (1, 2, 4, 5, 3), (3, 2, 2, 1, 2)),
        ("pads = [1, 1, 1, 1]", (2, 3, 1, 4), (5, 3, 1, 1)),
    ],
)
def test_convolution(options: str, x: tuple[int, ...], w: tuple[int, ...]) -> None:
    known, rank = ", ".join(map(str, x)), len(x)
    free = ", ".join(["n", str(x[1]), *(f"s{i}" for i in range(rank - 2))])
    made = ", ".join(f"o{i}" for i in range(rank))
    filters = ", ".join(map(str, w))
    for shape in (known,) if "auto_pad" in options else (known, free):  # shape inference has no word for the latter
        check(
            f"""g (float[{shape}] x, float[{filters}] w, float[{w[0]}] b) => (float[{made}] y) {{
                c = Conv <{options}> (x, w, b)
                y = Tanh (c)
            }}""",
            {"x": x, "w": w, "b": (w[0],)},
        )


@pytest.mark.parametrize("shape", [(6, 1, 1), (1, 6, 1, 1), (), (1,), (5, 7), (2, 6, 5, 7), (2, 1, 1, 7)])
def test_operands_of_any_shape_that_broadcasts(shape: tuple[int, ...]) -> None:
    dims = ", ".join(map(str, shape))
    operand = f"float[{dims}] a" if shape else "float a"
    plan = check(
        f"""g (float[2, 3, 5, 7] x, float[6, 3, 1, 1] w, {operand}) => (float[2, 6, 5, 7] y, float[2, 6, 5, 7] z) {{
            c = Conv (x, w)
            y = Mul (a, c)
            z = Sub (y, c)
        }}""",
        {"x": (2, 3, 5, 7), "w": (6, 3, 1, 1), "a": shape},
    )
    assert sum(isinstance(s, Linear) for s in plan.stages) == 1


def test_literals() -> None:
    check(
        """g (float[2, 3, 4, 4] x, float[3, 3, 1, 1] w) => (float[2, 3, 4, 4] y)
        <float two = {2.0}, float[1, 1, 1, 1] half = {0.5}> {
            c = Conv (x, w)
            d = Mul (c, two)
            e = Add (half, d)
            y = Max (e, half)
        }""",
        {"x": (2, 3, 4, 4), "w": (3, 3, 1, 1)},
    )


MIXED = """g (float[2, 6, 5, 7] x, float[6, 1, 3, 3] w1, float[6] b1, float[6] s, float[6, 12] up, float[12] b2,
    float[12, 6] down, float[6] scale, float[8, 6, 3, 3] w2) => (float[2, 8, 3, 5] y) {
        c = Conv <pads = [1, 1, 1, 1], group = 6> (x, w1, b1)
        t = Transpose <perm = [0, 2, 3, 1]> (c)
        n = LayerNormalization (t, s)
        u = MatMul (n, up)
        a = Add (u, b2)
        r = Relu (a)
        d = MatMul (r, down)
        m = Mul (d, scale)
        f = Transpose <perm = [0, 3, 1, 2]> (m)
        e = Add (x, f)
        y = Conv (e, w2)
    }"""


def test_what_is_computed_over_channels_turns_nothing() -> None:
    """A block of ConvNeXt: the image is turned over where it comes in and where it goes out."""
    plan = check(
        MIXED,
        {"x": (2, 6, 5, 7), "w1": (6, 1, 3, 3), "b1": (6,), "s": (6,), "up": (6, 12), "b2": (12,), "down": (12, 6),
         "scale": (6,), "w2": (8, 6, 3, 3)},
    )  # fmt: skip
    assert kinds(plan) == [Pointwise, Conv, Rowwise, Linear, Linear, Conv, Pointwise]


def test_channels_that_are_last_are_cut_and_joined_where_they_lie() -> None:
    """A block of MambaOut: some of a product's columns are convolved, others gate all."""
    plan = check(
        """g (float[2, 5, 7, 6] x, float[6] s, float[6, 20] up, float[4, 1, 3, 3] w, float[10, 6] down)
        => (float[2, 5, 7, 6] y) <int64[3] parts = {10, 6, 4}> {
            n = LayerNormalization (x, s)
            u = MatMul (n, up)
            g, i, c = Split <axis = -1> (u, parts)
            f = Transpose <perm = [0, 3, 1, 2]> (c)
            d = Conv <pads = [1, 1, 1, 1], group = 4> (f, w)
            l = Transpose <perm = [0, 2, 3, 1]> (d)
            j = Concat <axis = -1> (i, l)
            r = Relu (g)
            m = Mul (r, j)
            p = MatMul (m, down)
            y = Add (p, x)
        }""",
        {"x": (2, 5, 7, 6), "s": (6,), "up": (6, 20), "w": (4, 1, 3, 3), "down": (10, 6)},
    )
    assert kinds(plan) == [Rowwise, Linear, Pointwise, Pointwise, Pointwise, Conv, Pointwise, Linear]
    assert not any(o.perm for s in plan.stages for o in s.operands)


def test_another_transpose_stays_one() -> None:
    plan = check(
        """g (float[2, 6, 5, 7] x, float[8, 6, 1, 1] w) => (float[2, 7, 5, 8] y) {
            c = Conv (x, w)
            t = Transpose <perm = [0, 3, 2, 1]> (c)
            y = Relu (t)
        }""",
        {"x": (2, 6, 5, 7), "w": (8, 6, 1, 1)},
    )
    assert kinds(plan)[:2] == [Pointwise, Linear]


def test_a_result_that_very_many_read_is_not_all_made_by_one_kernel() -> None:
    """As in DenseNet, where a norm of its own of each image before goes to each convolution."""
    count = 30
    each = " ".join(
        f"m{i} = Mul (c, s{i}) a{i} = Add (m{i}, t{i}) r{i} = Relu (a{i}) d{i} = Conv (r{i}, w)" for i in range(count)
    )
    total = " ".join(f"e{i + 1} = Add ({f'e{i}' if i else 'd0'}, d{i + 1})" for i in range(count - 1))
    given = {f"{kind}{i}": (6, 1, 1) for kind in "st" for i in range(count)}
    inputs = ", ".join(f"float[6, 1, 1] {name}" for name in given)
    plan = check(
        f"""g (float[1, 6, 5, 4] x, float[6, 6, 3, 3] w, {inputs}) => (float[1, 6, h, v] y) {{
            c = Conv <pads = [1, 1, 1, 1]> (x, w) {each} {total} y = Relu (e{count - 1}) }}""",
        {"x": (1, 6, 5, 4), "w": (6, 6, 3, 3), **given},
    )
    assert max(len(s.operands) for s in plan.stages) <= 24
    assert len([s for s in plan.stages if isinstance(s, Conv)]) == count + 1


SHUFFLE = """a = Conv <pads = [1, 1, 1, 1]> (x, w1) r = Reshape (a, apart) t = Transpose <perm = [0, 2, 1, 3, 4]> (r)
    s = Reshape (t, whole) {} d = Conv (q, w2) y = Concat <axis = 1> (p, d)"""


@pytest.mark.parametrize(
    ("cut", "passes"),
    [
        ("p, q = Split <axis = 1> (s, halves)", 1),
        ("p = Slice (s, none, four, axes) q = Slice (s, four, far, axes)", 1),
        (
            "p = Slice (s, none, far, axes, two) e = Slice (s, three, none, axes, minus) q = Concat <axis = -3> (e, x)",
            2,
        ),
    ],
    ids=["split", "cut", "steps, backwards"],
)
@pytest.mark.parametrize("height", ["5", "h"])
def test_channels_are_shuffled_and_cut_where_they_lie(cut: str, passes: int, height: str) -> None:
    """Of what a ShuffleNet's block makes, one half goes on as it is."""
    lines, read = "5" if height == "5" else "-1", 9 if "minus" in cut else 4
    plan = check(
        f"""g (float[2, 6, {height}, 7] x, float[8, 6, 3, 3] w1, float[4, {read}, 1, 1] w2) =>
        (float[2, 8, {height}, 7] y) <int64[5] apart = {{2, 2, 4, {lines}, 7}}, int64[4] whole = {{2, 8, {lines}, 7}},
        int64[2] halves = {{4, 4}}, int64[1] none = {{0}},
        int64[1] four = {{4}}, int64[1] far = {{2147483647}}, int64[1] axes = {{1}}, int64[1] two = {{2}},
        int64[1] three = {{3}}, int64[1] minus = {{-1}}> {{ {SHUFFLE.format(cut)} }}""",
        {"x": (2, 6, 5, 7), "w1": (8, 6, 3, 3), "w2": (4, read, 1, 1)},
    )
    assert kinds(plan) == [Pointwise, Conv, *[Pointwise] * passes, Linear, Pointwise]


def test_what_is_no_shuffle_of_channels_is_computed_as_it_is() -> None:
    check(
        """g (float[2, 6, 5, 5] x, float[8, 6, 3, 3] w1, float[4, 8, 3, 3] w2) => (float[2, 4, 3, 3] y) <
        int64[5] apart = {2, 2, 4, 5, 5}, int64[4] whole = {2, 8, 5, 5}> {
            a = Conv <pads = [1, 1, 1, 1]> (x, w1) r = Reshape (a, apart) t = Transpose <perm = [0, 2, 1, 4, 3]> (r)
            s = Reshape (t, whole) y = Conv (s, w2) }""",
        {"x": (2, 6, 5, 5), "w1": (8, 6, 3, 3), "w2": (4, 8, 3, 3)},
    )
