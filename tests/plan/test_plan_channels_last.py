"""Regions whose images are kept with the channels last, against ONNX Runtime, which keeps them first."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fusion_cli.errors import Unsupported
from fusion_cli.plan import plan_region
from fusion_cli.planir.stages import Conv, Linear, Moments, Plan, Pointwise, Pool, Rowwise
from tests.helpers.region_tools import all_values, check_region, parsed, whole

RNG = np.random.default_rng(11)


def check(text: str, feeds: dict[str, tuple[int, ...]], positive: str = "", opset: int = 18) -> Plan:
    """The plan of a graph on random numbers, those of inputs `positive` without a sign."""
    model = parsed(text, opset=opset)
    region = replace(whole(model), channels_last=True)
    arrays = {name: RNG.standard_normal(shape).astype(np.float32) for name, shape in feeds.items()}
    arrays |= {name: np.abs(arrays[name]) for name in positive}
    return check_region(region, all_values(model, arrays, [region]), 1e-5)


def kinds(plan: Plan) -> list[type]:
    return [type(s) for s in plan.stages]


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


def test_all_positions_of_a_channel_are_read_as_they_lie() -> None:
    """Squeeze and excitation."""
    plan = check(
        """g (float[n, 6, h, w] x, float[8, 6, 3, 3] w1, float[2, 8, 1, 1] w2, float[8, 2, 1, 1] w3,
        float[4, 8, 1, 1] w4) => (float[n, 4, h, w] y) <int64[2] axes = {2, 3}> {
            c = Conv <pads = [1, 1, 1, 1]> (x, w1)
            d = Relu (c)
            m = ReduceMean <keepdims = 1> (d, axes)
            s = Conv (m, w2)
            r = Relu (s)
            e = Conv (r, w3)
            g = Sigmoid (e)
            p = Mul (g, d)
            y = Conv (p, w4)
        }""",
        {"x": (2, 6, 5, 7), "w1": (8, 6, 3, 3), "w2": (2, 8, 1, 1), "w3": (8, 2, 1, 1), "w4": (4, 8, 1, 1)},
    )
    assert kinds(plan) == [Pointwise, Conv, Rowwise, Linear, Linear, Pointwise, Linear, Pointwise]
    (pooled,) = (s for s in plan.stages if isinstance(s, Rowwise))
    assert [o.perm for o in pooled.operands] == [(0, 2, 1)]


@pytest.mark.parametrize("op", ["ReduceMean <keepdims = 1> (c, axes)", "GlobalAveragePool (c)", "GlobalMaxPool (c)"])
def test_of_a_large_image_lines_come_first(op: str) -> None:
    for high, read in ((40, [(0, 1, 3, 2), (0, 2, 1)]), (8, [(0, 2, 1)])):
        plan = check(
            f"""g (float[n, 3, {high}, 30] x, float[6, 3, 1, 1] w) => (float[n, 6, 1, 1] y)
            <int64[2] axes = {{2, 3}}> {{
                c = Conv (x, w)
                y = {op}
            }}""",
            {"x": (2, 3, high, 30), "w": (6, 3, 1, 1)},
        )
        assert [o.perm for s in plan.stages if isinstance(s, Rowwise) for o in s.operands] == read


@pytest.mark.parametrize("op", ["ReduceL2", "ReduceMean", "ReduceSumSquare", "ReduceL1"])
@pytest.mark.parametrize("high", [40, 8], ids=["line by line", "at once"])
@pytest.mark.parametrize("turned", [True, False], ids=["channels last", "channels first"])
def test_what_is_summed_of_positions_is_computed_as_they_are_read(op: str, high: int, turned: bool) -> None:
    """What ConvNeXt V2 norms its channels by: nothing is stored for it, of squares too little would be left."""
    axes, first = ("{1, 2}", "t = Transpose <perm = [0, 2, 3, 1]> (r)") if turned else ("{2, 3}", "t = Identity (r)")
    last = "y = Transpose <perm = [0, 3, 1, 2]> (p)" if turned else "y = Identity (p)"
    plan = check(
        f"""g (float[n, 3, {high}, 30] x, float[6, 3, 1, 1] w) => (float[n, 6, {high}, 30] y)
        <int64[2] axes = {axes}> {{
            c = Conv (x, w) r = Relu (c) {first} m = {op} <keepdims = 1> (t, axes) p = Mul (t, m) {last}
        }}""",
        {"x": (2, 3, high, 30), "w": (6, 3, 1, 1)},
    )
    lines = [Rowwise] * (2 if high == 40 else 1)
    assert kinds(plan) == [Pointwise, Linear, *lines, Pointwise, Pointwise]
    (linear,) = (s for s in plan.stages if isinstance(s, Linear))
    assert len(linear.stores) == 1


@pytest.mark.parametrize("high", [40, 8], ids=["line by line", "at once"])
def test_what_is_summed_may_be_of_two_images(high: int) -> None:
    check(
        f"""g (float[n, 3, {high}, 30] x, float[6, 3, 1, 1] w, float[6, 3, 1, 1] v) => (float[n, 6, 1] y)
        <int64[3] to = {{0, 6, -1}}, int64[1] axis = {{-1}}> {{
            c = Conv (x, w) d = Conv (x, v) r = Reshape (c, to) s = Reshape (d, to) p = Mul (r, s)
            y = ReduceMean (p, axis)
        }}""",
        {"x": (2, 3, high, 30), "w": (6, 3, 1, 1), "v": (6, 3, 1, 1)},
    )


@pytest.mark.parametrize("high", [40, 8], ids=["line by line", "at once"])
def test_a_norm_of_positions_in_16_bits_is_summed_in_32(high: int) -> None:
    """Squares of numbers that 16 bits hold need more."""
    text = f"""g (float16[1, 4, {high}, 30] x, float16[4, 4, 1, 1] w) => (float16[1, 4, {high}, 30] y)
    <int64[2] axes = {{1, 2}}> {{
        c = Conv (x, w) t = Transpose <perm = [0, 2, 3, 1]> (c) m = ReduceL2 <keepdims = 1> (t, axes) p = Div (t, m)
        y = Transpose <perm = [0, 3, 1, 2]> (p)
    }}"""
    model = parsed(text, opset=18)
    region = replace(whole(model), channels_last=True)
    x, w = RNG.uniform(500, 600, (1, 4, high, 30)), np.eye(4).reshape(4, 4, 1, 1)
    arrays = {"x": x.astype(np.float16), "w": w.astype(np.float16)}
    exact = arrays["x"].astype(np.float64)
    expected = exact / np.sqrt((exact**2).sum(axis=(2, 3), keepdims=True))
    plan = check_region(region, {**arrays, "y": expected.astype(np.float16)}, 2e-3)
    assert {plan.tensors[s.tensor].dtype for r in plan.stages if isinstance(r, Rowwise) for s in r.stores} <= {
        "float16", "float32",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("follows", "between"),
    [
        ("e = Sigmoid (t) f = Mul (e, t) g = Add (f, b)", []),
        ("f = Relu (t) g = Add (f, r)", [Pointwise]),
        ("f = Relu (t) g = Mul (f, q)", [Pointwise]),
    ],
    ids=["by channels", "another sequence", "by positions"],
)
def test_a_sequence_of_an_image_is_computed_as_the_image_is(follows: str, between: list[type]) -> None:
    """As SegFormer's feed-forward: what is computed of the positions in a row is made by the convolution's kernel."""
    plan = check(
        f"""g (float[n, 30, 6] x, float[6, 8] u, float[8, 1, 3, 3] w, float[8] b, float[n, 30, 8] r, float[30, 1] q,
        float[8, 6] v) => (float[n, 30, 6] y)
        <int64[4] image = {{0, 8, 5, 6}}, int64[3] rows = {{0, 8, 30}}> {{
            h = MatMul (x, u) o = Transpose <perm = [0, 2, 1]> (h) i = Reshape (o, image)
            c = Conv <group = 8, pads = [1, 1, 1, 1]> (i, w) l = Reshape (c, rows)
            t = Transpose <perm = [0, 2, 1]> (l) {follows} y = MatMul (g, v)
        }}""",
        {"x": (2, 30, 6), "u": (6, 8), "w": (8, 1, 3, 3), "b": (8,), "r": (2, 30, 8), "q": (30, 1), "v": (8, 6)},
    )
    assert kinds(plan) == [Linear, Conv, *between, Linear]


WINDOWS = [
    ("MaxPool <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]>", (2, 4, 7, 8)),
    ("MaxPool <kernel_shape = [2, 3], dilations = [3, 2], pads = [1, 0, 1, 1]>", (2, 4, 9, 8)),
    ("MaxPool <kernel_shape = [3, 3], strides = [2, 2], ceil_mode = 1>", (1, 4, 8, 6)),
    ("MaxPool <kernel_shape = [3, 3], strides = [2, 2], ceil_mode = 1>", (1, 4, 7, 9)),
    ('MaxPool <kernel_shape = [3, 2], strides = [2, 1], auto_pad = "SAME_LOWER">', (1, 4, 8, 5)),
    ('AveragePool <kernel_shape = [3, 2], strides = [2, 2], auto_pad = "SAME_UPPER">', (1, 4, 8, 5)),
    ('AveragePool <kernel_shape = [3, 3], auto_pad = "VALID">', (2, 4, 6, 5)),
    ("AveragePool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]>", (2, 4, 6, 5)),
    ("AveragePool <kernel_shape = [3, 3], pads = [1, 1, 1, 1], count_include_pad = 1>", (2, 4, 6, 5)),
    ("AveragePool <kernel_shape = [3, 3], strides = [2, 2], ceil_mode = 1>", (1, 4, 8, 6)),
    ("MaxPool <kernel_shape = [3], strides = [2], pads = [1, 0]>", (2, 4, 8)),
]


@pytest.mark.parametrize(("op", "shape"), WINDOWS)
def test_windows_over_images(op: str, shape: tuple[int, ...]) -> None:
    """Between convolutions nothing is turned over for them."""
    point, sizes = ", ".join("1" * (len(shape) - 2)), ", ".join(map(str, shape))
    plan = check(
        f"""g (float[{sizes}] x, float[4, 4, {point}] w) => (float[{", ".join("abcd"[: len(shape)])}] y) {{
            c = Conv (x, w) p = {op} (c) r = Relu (p) y = Conv (r, w)
        }}""",
        {"x": shape, "w": (4, 4, *(1 for _ in shape[2:]))},
    )
    assert [k for k in kinds(plan) if k is not Pointwise] == [Linear, Pool, Linear]


@pytest.mark.parametrize(
    ("op", "said"),
    [
        ("AveragePool <kernel_shape = [3, 3], strides = [2, 2], pads = [0, 0, 0, 0], ceil_mode = 1, "
         "count_include_pad = 1>", "pads that do not count"),
        ("MaxPool <kernel_shape = [1, 1], strides = [3, 3], pads = [0, 0, 0, 0], ceil_mode = 1>", "begin in the image"),
        ("MaxPool <kernel_shape = [2, 2], pads = [0, 2, 0, 0]>", "smaller than the window"),
    ],
)  # fmt: skip
def test_windows_that_are_turned_down(op: str, said: str) -> None:
    text = f"g (float[1, 4, 8, 8] x, float[4, 4, 1, 1] w) => (float[a, b, c, d] y) {{ c = Conv (x, w) y = {op} (c) }}"
    with pytest.raises(Unsupported, match=said):
        plan_region(replace(whole(parsed(text, opset=19)), channels_last=True))


def test_sizes_that_are_not_known_leave_only_windows_with_pads_of_their_own() -> None:
    text = """g (float[1, 4, h, w] x, float[4, 4, 1, 1] f) => (float[a, b, c, d] y) {{
        c = Conv (x, f) y = MaxPool <kernel_shape = [3, 3], strides = [2, 2], {}> (c) }}"""
    plan = plan_region(replace(whole(parsed(text.format("pads = [1, 1, 1, 1]"), opset=19)), channels_last=True))
    assert Pool in kinds(plan)
    with pytest.raises(Unsupported, match="a fixed size of an image for MaxPool"):
        plan_region(replace(whole(parsed(text.format('auto_pad = "SAME_UPPER"'), opset=19)), channels_last=True))


def test_joined_channels_and_norms_of_them() -> None:
    """A DenseNet's layer: the norm is of what is joined, and is computed part by part."""
    plan = check(
        """g (float[n, 6, h, w] x, float[4, 6, 3, 3] w1, float[10] s, float[10] t, float[10] m, float[10] v,
        float[8, 10, 1, 1] w2) => (float[n, 14, h, w] y) {
            c = Conv <pads = [1, 1, 1, 1]> (x, w1)
            a = Relu (c)
            j = Concat <axis = 1> (a, x)
            b = BatchNormalization (j, s, t, m, v)
            r = Relu (b)
            d = Conv (r, w2)
            y = Concat <axis = -3> (d, x)
        }""",
        {"x": (2, 6, 5, 7), "w1": (4, 6, 3, 3), "w2": (8, 10, 1, 1), **dict.fromkeys("stm", (10,)), "v": (10,)},
        positive="v",
    )
    turned = [o for s in plan.stages for o in s.operands if o.perm is not None]
    assert len([s for s in plan.stages if isinstance(s, Conv | Linear)]) == 2
    assert {plan.viewed(o)[0] for o in turned} == {plan.tensors[plan.inputs[0]].shape[0]}, (
        "only what comes in is turned over"
    )


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


WRITTEN_OUT = """r = Reshape (c, grouped) i = InstanceNormalization <epsilon = 1e-3> (r, {0}, {1})
    s = Shape (c) e = Reshape (i, s) m = Mul (e, gamma) a = Add (m, beta)"""
OF_21 = "a = GroupNormalization <epsilon = 1e-3, num_groups = 4> (c, long, short)"
OF_INSTANCES = "a = InstanceNormalization <epsilon = 1e-3> (c, long, short)"


@pytest.mark.parametrize(
    ("norm", "copies"),
    [
        (WRITTEN_OUT.format("ones", "zeros"), 0),
        (WRITTEN_OUT.format("four", "zeros"), 1),
        (OF_21, 0),
        (OF_INSTANCES, 0),
    ],
    ids=["written out", "with weights by group", "by an operator", "of each channel"],
)
@pytest.mark.parametrize("axes", ["h, w", "h"])
def test_norms_of_groups_are_moments_and_what_follows(norm: str, copies: int, axes: str) -> None:
    rank = 2 + len(axes.split(", "))
    pads, around, ones = f"pads = {[1] * (2 * rank - 4)}", ", ".join("3" * (rank - 2)), ", 1" * (rank - 2)
    plan = check(
        f"""g (float[n, 6, {axes}] x, float[8, 6, {around}] w1, float[8, 8, {around}] w2, float[8{ones}] gamma,
        float[8{ones}] beta, float[4] four, float[8] long, float[8] short) => (float[n, 8, {axes}] y) <
        int64[3] grouped = {{0, 4, -1}}, float[4] ones = {{1, 1, 1, 1}}, float[4] zeros = {{0, 0, 0, 0}}> {{
            c = Conv <{pads}> (x, w1) {norm} g = Sigmoid (a) u = Mul (a, g) d = Conv <{pads}> (u, w2)
            y = Add (d, c) }}""",
        {
            "x": (2, 6, 5, 7)[:rank],
            "w1": (8, 6, *(3,) * (rank - 2)),
            "w2": (8, 8, *(3,) * (rank - 2)),
            **dict.fromkeys(("gamma", "beta"), (8, *(1,) * (rank - 2))),
            **dict.fromkeys(("long", "short"), (8,)),
            "four": (4,),
        },
        opset=21,
    )
    assert kinds(plan) == [Pointwise, Conv, Moments, *[Pointwise] * copies, Pointwise, Conv, Pointwise]


@pytest.mark.parametrize(
    ("resize", "opset"),
    [
        ('Resize <mode = "nearest", coordinate_transformation_mode = "asymmetric", nearest_mode = "floor"> {}', 18),
        ('Resize <mode = "nearest"> (a, , scales)', 13),
        ('Resize <mode = "nearest"> (a, , , sizes)', 18),
        ('Resize <mode = "nearest"> (a, scales)', 10),
        ('Upsample <mode = "nearest"> (a, scales)', 9),
    ],
)
def test_pixels_are_repeated_where_they_lie(resize: str, opset: int) -> None:
    plan = check(
        f"""g (float[2, 6, 5, 7] x, float[8, 6, 1, 1] w1, float[4, 8, 3, 3] w2) => (float[2, 4, 8, 19] y)
        <float[4] scales = {{1.0, 1.0, 2.0, 3.0}}, int64[4] sizes = {{2, 8, 10, 21}}> {{
            c = Conv (x, w1) a = Relu (c) r = {resize.format("(a, , scales)")} y = Conv (r, w2) }}""",
        {"x": (2, 6, 5, 7), "w1": (8, 6, 1, 1), "w2": (4, 8, 3, 3)},
        opset=opset,
    )
    assert kinds(plan) == [Pointwise, Linear, Pointwise, Conv, Pointwise]


def test_what_is_turned_at_the_ends_is_read_and_written_as_it_is() -> None:
    plan = check(
        """g (float[n, h, w, 6] x, float[8, 6, 3, 3] w1, float[8, 8, 3, 3] w2) => (float[n, a, b, 8] y) {
            i = Transpose <perm = [0, 3, 1, 2]> (x) c = Conv (i, w1) d = Conv (c, w2)
            y = Transpose <perm = [0, 2, 3, 1]> (d) }""",
        {"x": (2, 6, 8, 6), "w1": (8, 6, 3, 3), "w2": (8, 8, 3, 3)},
    )
    assert kinds(plan) == [Conv, Conv]


def test_lines_are_normed_where_their_channels_are_last() -> None:
    """What turns lines over is the same at both ends, and what comes in so is an image too."""
    plan = check(
        """g (float[n, l, 6] x, float[8, 6, 3] w1, float[8] s, float[8, 8, 3] w2) => (float[n, m, 8] y) {
            i = Transpose <perm = [0, 2, 1]> (x) c = Conv (i, w1) t = Transpose <perm = [0, 2, 1]> (c)
            k = LayerNormalization (t, s) f = Transpose <perm = [0, 2, 1]> (k) r = Relu (f)
            d = Conv <pads = [1, 1]> (r, w2) e = Add (d, f) y = Transpose <perm = [0, 2, 1]> (e) }""",
        {"x": (2, 9, 6), "w1": (8, 6, 3), "s": (8,), "w2": (8, 8, 3)},
    )
    assert kinds(plan) == [Conv, Rowwise, Conv]


def test_a_sequence_of_positions_is_the_image_as_it_lies() -> None:
    """As before and after an attention over positions."""
    plan = check(
        """g (float[2, 35, 6] x, float[8, 6, 3, 3] w1, float[8, 8, 3, 3] w2) => (float[2, 35, 8] y) <
        int64[4] image = {2, 6, 5, 7}, int64[3] flat = {2, 8, -1}> {
            i = Transpose <perm = [0, 2, 1]> (x) r = Reshape (i, image) c = Conv <pads = [1, 1, 1, 1]> (r, w1)
            d = Conv <pads = [1, 1, 1, 1]> (c, w2) f = Reshape (d, flat) y = Transpose <perm = [0, 2, 1]> (f) }""",
        {"x": (2, 35, 6), "w1": (8, 6, 3, 3), "w2": (8, 8, 3, 3)},
    )
    assert kinds(plan) == [Conv, Conv]


def test_a_sequence_is_normed_and_an_image_again() -> None:
    """SegFormer's: what is computed in between is computed where it lies."""
    plan = check(
        """g (float[2, 6, 5, 7] x, float[8, 6, 3, 3] w1, float[8] s, float[8, 8, 3, 3] w2) => (float[2, 35, 8] k,
        float[2, 8, 3, 5] y) <int64[4] image = {2, 8, 5, 7}, int64[3] flat = {2, 8, -1}> {
            c = Conv <pads = [1, 1, 1, 1]> (x, w1) f = Reshape (c, flat) t = Transpose <perm = [0, 2, 1]> (f)
            k = LayerNormalization (t, s) i = Transpose <perm = [0, 2, 1]> (k) r = Reshape (i, image) e = Exp (r)
            y = Conv (e, w2) }""",
        {"x": (2, 6, 5, 7), "w1": (8, 6, 3, 3), "s": (8,), "w2": (8, 8, 3, 3)},
    )
    assert kinds(plan) == [Pointwise, Conv, Rowwise, Pointwise, Conv, Pointwise]


def test_what_is_no_shuffle_of_channels_is_computed_as_it_is() -> None:
    check(
        """g (float[2, 6, 5, 5] x, float[8, 6, 3, 3] w1, float[4, 8, 3, 3] w2) => (float[2, 4, 3, 3] y) <
        int64[5] apart = {2, 2, 4, 5, 5}, int64[4] whole = {2, 8, 5, 5}> {
            a = Conv <pads = [1, 1, 1, 1]> (x, w1) r = Reshape (a, apart) t = Transpose <perm = [0, 2, 1, 4, 3]> (r)
            s = Reshape (t, whole) y = Conv (s, w2) }""",
        {"x": (2, 6, 5, 5), "w1": (8, 6, 3, 3), "w2": (4, 8, 3, 3)},
    )


@pytest.mark.parametrize(("groups", "scale"), [(1, "3.0"), (3, "1.0, 1.0, 1.0")], ids=["a number", "parts of channels"])
def test_groups_of_one_weight_and_of_parts_of_channels(groups: int, scale: str) -> None:
    plan = check(
        f"""g (float[2, 6, 6, 6] x, float[8, 6, 3, 3] w1, float[4, 8, 3, 3] w2) => (float[2, 4, 4, 4] y) <
        int64[3] grouped = {{2, {groups}, -1}}, int64[4] whole = {{2, 8, 6, 6}}, float[{groups}] scale = {{{scale}}},
        float[{groups}] shift = {{{scale.replace("1", "0")}}}> {{
            a = Conv <pads = [1, 1, 1, 1]> (x, w1) r = Reshape (a, grouped) t = InstanceNormalization (r, scale, shift)
            s = Reshape (t, whole) y = Conv (s, w2) }}""",
        {"x": (2, 6, 6, 6), "w1": (8, 6, 3, 3), "w2": (4, 8, 3, 3)},
    )
    assert (Moments in kinds(plan)) == (groups == 1)
