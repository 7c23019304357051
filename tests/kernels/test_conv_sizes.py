"""Up to which sizes our own kernels take a convolution, whose places are numbers of 32 bits."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.cuda_host_library import host_program, output_of


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return host_program("conv_sizes.cc", tmp_path_factory.mktemp("sizes"))


@pytest.mark.parametrize(
    ("batch", "width", "channels", "kernel", "before", "fit"),
    [
        (2, 1000, 64, 3, 1, "both"),
        (1, 2**31 - 1, 1, 3, 0, "both"),
        (1, 2**31, 1, 3, 0, "neither"),
        (2**16, 2**15, 1, 1, 0, "neither"),
        (2, 2**24, 64, 3, 0, "16 bits"),  # 2**31 floats
        (2, 2**24 - 1, 64, 3, 0, "both"),
        (1, 2**12, 2**13, 2**12, 0, "16 bits"),  # 64 filters of 2**25
        (1, 2**11, 2**13, 2**12 - 1, 2**11, "both"),
        (1, 2**17, 2**14, 2**17, 0, "neither"),  # a filter of 2**31
        (1, 2**30, 1, 1, 2**30, "neither"),  # results of padding
    ],
)
def test_what_needs_larger_numbers_is_left_to_the_vendor(
    program: Path, batch: int, width: int, channels: int, kernel: int, before: int, fit: str
) -> None:
    sizes = map(str, (batch, width, channels, kernel, before))
    found = output_of(program, *sizes)
    assert found == f"{fit}\n"
