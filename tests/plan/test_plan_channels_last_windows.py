"""What regions with the channels last make of all positions and of windows of an image, against ONNX Runtime."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fusion_cli.errors import Unsupported
from fusion_cli.plan import plan_region
from fusion_cli.planir.stages import Conv, Linear, Pointwise, Pool, Rowwise
from tests.helpers.channels_last import RNG, check
from tests.helpers.region_tools import check_region, kinds, parsed, whole


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
