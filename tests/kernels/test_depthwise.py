"""Depthwise convolutions with the channels last: which convolutions the kernel is for, and what a thread computes."""

from __future__ import annotations

from itertools import product

import pytest

from fusion_cli.kernels import family_of
from fusion_cli.kernels.depthwise import patch_of
from fusion_cli.planir.stages import Conv, Plan
from tests.helpers.cuda_conv_plans import conv_last

_REGISTERS = 32
"""Sums and pixels that a thread has at once."""


def stage_of(**form: object) -> tuple[Plan, Conv]:
    plan = conv_last("float16", "b", **{"channels": (8, 8), "group": 8, **form}).plan
    (stage,) = plan.stages
    assert isinstance(stage, Conv)
    return plan, stage


def family(**form: object) -> str:
    plan, stage = stage_of(**form)
    return family_of(plan, stage, "cuda").name


def test_channels_with_a_filter_each_along_one_axis_or_two() -> None:
    assert family(filter=(3, 3)) == family(filter=(9,), pads=(4, 4)) == "depthwise"
    assert family(filter=(3, 2, 2)) == "channels last"
    assert family(channels=(8, 16)) == "channels last", "two filters for each channel"
    assert family(group=4) == "channels last"
    assert family(channels=(1, 1), group=1) == "channels last"


@pytest.mark.parametrize(("wide", "across", "apart"), list(product((1, 3, 5, 7, 13, 31), (1, 2, 3, 5), (1, 2, 6))))
def test_what_a_thread_keeps_fits_in_registers(wide: int, across: int, apart: int) -> None:
    pads = (0, wide * apart, 0, wide * apart)
    form = {"filter": (3, wide), "strides": (1, across), "dilations": (1, apart), "pads": pads}
    patch = patch_of(*stage_of(**form))
    window = (patch.columns - 1) * across + (patch.taps - 1) * apart + 1
    assert window <= 16
    assert patch.rows * patch.columns * patch.channels <= _REGISTERS
    assert patch.taps == wide or window + apart > 16, "as many taps at once as there is room for"
