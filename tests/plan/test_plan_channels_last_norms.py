"""Norms of groups and of sequences in regions with the channels last, against ONNX Runtime."""

from __future__ import annotations

import pytest

from fusion_cli.planir.stages import Conv, Linear, Moments, Pointwise, Rowwise
from tests.helpers.channels_last import check
from tests.helpers.region_tools import kinds

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


@pytest.mark.parametrize("how", ["half_pixel", "align_corners", "pytorch_half_pixel", "asymmetric"])
def test_single_pixels_are_repeated_however_a_resize_finds_what_lies_between(how: str) -> None:
    """A whole image's mean, made as large again and joined with it: DeepLab."""
    plan = check(
        f"""g (float[2, 6, 5, 7] x, float[8, 6, 1, 1] w1, float[8, 8, 1, 1] w2, float[4, 16, 3, 3] w3) =>
        (float[2, 4, 3, 5] y) <int64[4] sizes = {{2, 8, 5, 7}}> {{
            c = Conv (x, w1) m = GlobalAveragePool (c) p = Conv (m, w2) a = Relu (p)
            r = Resize <mode = "linear", coordinate_transformation_mode = "{how}"> (a, , , sizes)
            j = Concat <axis = 1> (c, r) y = Conv (j, w3) }}""",
        {"x": (2, 6, 5, 7), "w1": (8, 6, 1, 1), "w2": (8, 8, 1, 1), "w3": (4, 16, 3, 3)},
    )
    assert kinds(plan).count(Conv) == 1


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
