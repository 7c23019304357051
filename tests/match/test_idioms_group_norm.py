"""Norms over other axes than the last: per channel, per instance, per group of channels."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.helpers.graphs import idioms
from tests.helpers.norm_graphs import CENTRED, CONSTANTS, ROOT, reduce


def of_images(body: str, weights: Mapping[str, tuple[int, ...]] | None = None, opset: int = 17) -> dict[str, int]:
    return idioms(body, weights, opset, "float[2, 8, 6, 6] x", "float[2, 8, 6, 6] y")


PER_CHANNEL = {"gamma": (8, 1, 1), "beta": (8, 1, 1)}
AFFINE = " u = Div (d, s) g = Mul (u, gamma) y = Add (g, beta)"


@pytest.mark.parametrize("opset", [13, 18])
@pytest.mark.parametrize(
    ("axes", "weights", "names"),
    [
        ("1", PER_CHANNEL, ["ChannelNorm", "LayerNorm"]),
        ("2, 3", PER_CHANNEL, ["InstanceNorm"]),
        ("2, 3", {"gamma": (6, 6), "beta": (6, 6)}, ["LayerNorm"]),
        ("1, 2, 3", {"gamma": (8, 6, 6), "beta": (8, 6, 6)}, ["LayerNorm"]),
    ],
)
def test_norms_over_other_axes(axes: str, weights: dict[str, tuple[int, ...]], names: list[str], opset: int) -> None:
    body = f"{CONSTANTS} {reduce(CENTRED + ROOT + AFFINE, opset, axes)}"
    assert of_images(body, weights, opset) == dict.fromkeys(names, 1)


def test_instance_norms() -> None:
    assert of_images("y = InstanceNormalization (x, a, b)", {"a": (8,), "b": (8,)}) == {"InstanceNorm": 1}
    body = f"{CONSTANTS} {reduce(CENTRED + ROOT + ' y = Div (d, s)', 13, '2, 3')}"
    assert of_images(body, opset=13) == {"InstanceNorm": 1}


SHAPES = (
    "three = Constant <value = int64[3] {0, 4, -1}> () five = Constant <value = int64[5] {2, 4, 2, 6, 6}> () "
    "back = Constant <value = int64[4] {2, 8, 6, 6}> () "
)
GROUP_NORM = {
    "instance norm": "r = Reshape (x, three) i = InstanceNormalization (r, ones, zeros) z = Reshape (i, back) "
    "g = Mul (z, gamma) y = Add (g, beta)",
    "no scale": "r = Reshape (x, three) i = InstanceNormalization (r, ones, zeros) y = Reshape (i, back)",
    "rows": "r = Reshape (x, three) m = ReduceMean <axes = [2]> (r) d = Sub (r, m) q = Mul (d, d) "
    f"v = ReduceMean <axes = [2]> (q) {ROOT} u = Div (d, s) z = Reshape (u, back) g = Mul (gamma, z) y = Add (beta, g)",
    "five axes": "r = Reshape (x, five) m = ReduceMean <axes = [2, 3, 4]> (r) d = Sub (r, m) q = Pow (d, two) "
    f"v = ReduceMean <axes = [2, 3, 4]> (q) {ROOT} u = Div (d, s) z = Reshape (u, back) g = Mul (z, gamma) "
    "y = Add (g, beta)",
    "operator": "y = com.microsoft.GroupNorm <groups = 4, channels_last = 0, activation = 0> (x, wide, wide)",
    "operator with skip": "y = com.microsoft.SkipGroupNorm <groups = 4, activation = 0> (x, wide, wide, x)",
}


@pytest.mark.parametrize("body", GROUP_NORM.values(), ids=GROUP_NORM)
def test_group_norm(body: str) -> None:
    weights = {**PER_CHANNEL, "ones": (4,), "zeros": (4,), "wide": (8,)}
    assert of_images(CONSTANTS + SHAPES + body, weights, 13) == {"GroupNorm": 1}


def test_groups_of_channels_that_are_an_axis_only_after_the_norm() -> None:
    """Frames of a video, each an image of its own: the reshapes before the norm are one."""
    body = """flat = Constant <value = int64[3] {1, 4, 72}> () back = Constant <value = int64[4] {1, 8, 6, 6}> ()
        t = Transpose <perm = [0, 2, 1, 3, 4]> (x) r = Reshape (t, flat) i = InstanceNormalization (r, ones, zeros)
        z = Reshape (i, back) g = Mul (z, gamma) y = Add (g, beta)"""
    weights = {**PER_CHANNEL, "ones": (4,), "zeros": (4,)}
    video, image = "float[1, 8, 1, 6, 6] x", "float[1, 8, 6, 6] y"
    assert idioms(body, weights, 17, video, image) == {"GroupNorm": 1}
    halved = body.replace("{1, 8, 6, 6}", "{2, 4, 6, 6}")
    numbers = {**weights, "gamma": (), "beta": ()}
    assert "GroupNorm" not in idioms(halved, numbers, 17, video, "float[2, 4, 6, 6] y")


@pytest.mark.parametrize(("opset", "size"), [(18, 4), (21, 8)])
def test_group_normalization(opset: int, size: int) -> None:
    body = "y = GroupNormalization <num_groups = 4> (x, a, b)"
    assert of_images(body, {"a": (size,), "b": (size,)}, opset) == {"GroupNorm": 1}


LAST_AXES = "m = ReduceMean <axes = [1, 2, 4]> (r) d = Sub (r, m) q = Mul (d, d) v = ReduceMean <axes = [1, 2, 4]> (q) "


@pytest.mark.parametrize(
    "scaled",
    [
        "i = Reciprocal (s) g = Mul (i, gamma) a = Mul (r, g) c = Mul (m, g) o = Sub (beta, c) z = Add (a, o) "
        "y = Reshape (z, back)",
        "u = Div (d, s) z = Reshape (u, back) g = Mul (z, last) y = Add (g, last)",
    ],
    ids=["batch norm", "scale afterwards"],
)
def test_group_norm_of_channels_last(scaled: str) -> None:
    body = f"""{CONSTANTS} grouped = Constant <value = int64[5] {{2, 6, 6, 4, 2}}> ()
        back = Constant <value = int64[4] {{2, 6, 6, 8}}> () r = Reshape (x, grouped)
        {LAST_AXES} {ROOT} {scaled}"""
    weights = {"gamma": (1, 1, 1, 4, 2), "beta": (1, 1, 1, 4, 2), "last": (8,)}
    found = idioms(body, weights, 13, inputs="float[2, 6, 6, 8] x", outputs="float[2, 6, 6, 8] y")
    assert found == {"GroupNorm": 1}


def test_a_norm_of_each_head_is_no_group_norm() -> None:
    body = f"""{CONSTANTS} heads = Constant <value = int64[4] {{2, 8, 4, 16}}> ()
        back = Constant <value = int64[3] {{2, 8, 64}}> () r = Reshape (x, heads)
        {reduce("m = Mean (r) d = Sub (r, m) q = Mul (d, d) v = Mean (q) " + ROOT, 13)} u = Div (d, s)
        y = Reshape (u, back)"""
    found = idioms(body, opset=13, inputs="float[2, 8, 64] x", outputs="float[2, 8, 64] y")
    assert found == {"LayerNorm": 1}
