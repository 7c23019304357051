"""Plans of images that are made larger, with the channels last."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fusion_cli.errors import Unsupported
from fusion_cli.plan import plan_region
from fusion_cli.planir.stages import Conv, Linear, Pointwise
from tests.helpers.channels_last import check
from tests.helpers.region_tools import check_model, kinds, parsed, whole


@pytest.mark.parametrize("mode", ["CRD", "DCR"])
@pytest.mark.parametrize("height", ["7", "h"])
def test_channels_become_pixels_where_they_lie(mode: str, height: str) -> None:
    """The last layers of ESPCN."""
    plan = check(
        f"""g (float[n, 3, {height}, w] x, float[18, 3, 3, 3] w1, float[2, 2, 3, 3] w2) => (float[n, 2, a, b] y) {{
            c = Conv <pads = [1, 1, 1, 1]> (x, w1)
            d = DepthToSpace <blocksize = 3, mode = "{mode}"> (c)
            r = Relu (d)
            y = Conv (r, w2)
        }}""",
        {"x": (2, 3, 7, 5), "w1": (18, 3, 3, 3), "w2": (2, 2, 3, 3)},
    )
    assert kinds(plan) == [Pointwise, Conv, Pointwise, Conv, Pointwise], "turned over, pixels with the ReLU, and back"


def test_an_image_of_one_axis_too_many_has_no_pixels_of_channels() -> None:
    text = "g (float[2, 8, 3, 3, 3] x) => (float[2, 2, 6, 6, 3] y) { y = DepthToSpace <blocksize = 2> (x) }"
    with pytest.raises(Unsupported, match="four axes"):
        plan_region(whole(parsed(text, inferred=False)))


@pytest.mark.parametrize(
    ("op", "passes"),
    [("Add (d, z)", 2), ("Mul (d, s)", 1), ("Mul (d, h)", 2), ("Add (d, d)", 1), ("PRelu (d, s)", 1)],
    ids=["another image", "numbers by channel", "numbers by line", "itself", "slopes by channel"],
)
def test_what_is_computed_of_the_pixels_alone_is_their_kernels(op: str, passes: int) -> None:
    plan = check(
        f"""g (float[2, 3, 5, 7] x, float[8, 3, 1, 1] w, float[2, 2, 10, 14] z, float[2, 1, 1] s, float[10, 1] h)
        => (float[2, 2, 10, 14] y) {{
            c = Conv (x, w)
            d = DepthToSpace <blocksize = 2> (c)
            y = {op}
        }}""",
        {"x": (2, 3, 5, 7), "w": (8, 3, 1, 1), "z": (2, 2, 10, 14), "s": (2, 1, 1), "h": (10, 1)},
    )
    assert kinds(plan) == [Pointwise, Linear, *[Pointwise] * passes, Pointwise], "turned over, and back"


@pytest.mark.parametrize("bias", ["", ", b"], ids=["bare", "bias"])
@pytest.mark.parametrize(("strides", "x", "w"), [
    ((2, 2), (2, 6, 5, 7), (6, 4, 2, 2)),
    ((3, 1), (1, 6, 1, 4), (6, 4, 3, 1)),
    ((4,), (2, 6, 9), (6, 4, 4)),
    ((2, 1, 2), (1, 6, 3, 2, 2), (6, 4, 2, 1, 2)),
])  # fmt: skip
def test_a_transposed_convolution_is_a_product(
    strides: tuple[int, ...], x: tuple[int, ...], w: tuple[int, ...], bias: str
) -> None:
    """As U-Net grows its images: one pixel makes several, and none two."""
    axes = "hkl"[: len(strides)]
    sizes = {"x": x, "w": w, "b": (4,), "v": (6, 6, *(1 for _ in axes))}
    inputs = ", ".join(f"float[{', '.join(map(str, shape))}] {n}" for n, shape in sizes.items())
    plan = check(
        f"""g ({inputs}) => (float[{", ".join(("n", "m", *axes))}] y) {{
            c = Conv (x, v)
            t = ConvTranspose <strides = {list(strides)}> (c, w{bias})
            y = Relu (t)
        }}""",
        sizes,
    )
    assert kinds(plan).count(Linear) == 2
    assert Conv not in kinds(plan)
    # Bias and ReLU are the pixels' kernel's.
    assert len(kinds(plan)) <= 5


@pytest.mark.parametrize("said", [
    "strides = [2, 1]", "strides = [2, 2], pads = [0, 1, 0, 0]", "strides = [2, 2], output_padding = [1, 1]",
    "strides = [2, 2], dilations = [2, 1]", "strides = [2, 2], group = 2", 'strides = [2, 2], auto_pad = "SAME_UPPER"',
    "strides = [2, 2], output_shape = [9, 9]",
])  # fmt: skip
def test_another_transposed_convolution_has_no_plan(said: str) -> None:
    text = (
        f"g (float[2, 6, 5, 5] x, float[6, 4, 2, 2] w) => (float[a, b, c, d] y) {{ y = ConvTranspose <{said}> (x, w) }}"
    )
    with pytest.raises(Unsupported, match="as much as its kernel covers"):
        plan_region(replace(whole(parsed(text)), channels_last=True))


@pytest.mark.parametrize("opset", [11, 18])
@pytest.mark.parametrize("mode", ["reflect", "edge"])
@pytest.mark.parametrize("pads", [(1, 2, 3, 0), (0, 0, 0, 4), (4, 4, 4, 4)], ids=["uneven", "one", "all but one"])
def test_images_go_on_behind_their_ends(mode: str, pads: tuple[int, ...], opset: int) -> None:
    """As networks of style transfer pad."""
    before, after = (f"0, 0, {a}, {b}" for a, b in (pads[:2], pads[2:]))
    given = f"int64[8] p = {{{before}, {after}}}" if opset == 11 else f"int64[4] p = {{{str(pads)[1:-1]}}}"
    axes = ", int64[2] axes = {2, -1}, float zero = {0.0}" if opset > 11 else ""
    plan = check(
        f"""g (float[n, 3, 5, 7] x, float[4, 3, 1, 1] w, float[2, 4, 3, 3] v) => (float[n, 2, a, b] y)
        <{given}{axes}> {{
            c = Conv (x, w)
            r = Relu (c)
            d = Pad <mode = "{mode}"> (r, p{", zero, axes" * (opset > 11)})
            y = Conv (d, v)
        }}""",
        {"x": (2, 3, 5, 7), "w": (4, 3, 1, 1), "v": (2, 4, 3, 3)},
        opset=opset,
    )
    assert kinds(plan).count(Conv) == 1
    turned = {o.perm for s in plan.stages[1:-1] for o in s.operands}
    assert turned == {None}


@pytest.mark.parametrize("pads", ["0, 0, 5, 0, 0, 0, 0, 0", "0, 0, 0, -1, 0, 0, 0, 0"], ids=["too far", "cut off"])
def test_another_pad_has_no_plan(pads: str) -> None:
    text = f"""g (float[2, 3, 5, 7] x) => (float[2, 3, a, b] y) <int64[8] p = {{{pads}}}> {{
        y = Pad <mode = "reflect"> (x, p)
    }}"""
    with pytest.raises(Unsupported, match=r"constant sizes|more than"):
        plan_region(replace(whole(parsed(text)), channels_last=True))


def test_pads_that_are_not_known_have_no_plan() -> None:
    text = """g (float[2, 3, 5, 7] x, int64[8] p) => (float[2, 3, a, b] y) { y = Pad <mode = "edge"> (x, p) }"""
    with pytest.raises(Unsupported, match="constant sizes"):
        plan_region(replace(whole(parsed(text)), channels_last=True))


@pytest.mark.parametrize(
    ("value", "more"),
    [("", ""), ("float v = {-1.5}", ", v"), ("float v = {-1.5}, int64[2] axes = {-2, 1}", ", v, axes")],
    ids=["zeros", "a number", "axes"],
)
def test_numbers_lie_around_a_value(value: str, more: str) -> None:
    """As windows pad images that they do not divide, which have their channels last."""
    sizes = "int64[4] p = {2, 0, 1, 3}" if "axes" in more else "int64[8] p = {0, 0, 2, 1, 0, 3, 0, 0}"
    constants = ", ".join(filter(None, (sizes, value)))
    plan = check_model(
        f"""g (float[n, 5, 6, 7] x) => (float[n, a, b, c] y) <{constants}> {{
            y = Pad <mode = "constant"> (x, p{more})
        }}""",
        {"x": np.random.default_rng(0).normal(size=(2, 5, 6, 7)).astype(np.float32)},
    )
    assert set(kinds(plan)) == {Pointwise}


def test_axes_that_are_channels_together_are_no_pixels() -> None:
    check(
        """g (float[2, 5, 2, 7, 2, 3] x, float[6, 1, 1] s, float[8, 6, 1, 1] w) => (float[2, 8, 10, 7] y)
        <int64[4] whole = {2, 10, 7, 6}> {
            r = Reshape (x, whole)
            t = Transpose <perm = [0, 3, 1, 2]> (r)
            m = Mul (t, s)
            y = Conv (m, w)
        }""",
        {"x": (2, 5, 2, 7, 2, 3), "s": (6, 1, 1), "w": (8, 6, 1, 1)},
    )
