"""Hopper's kernel for products of float32 in TF32 on the host: rounding, copies, barriers, products and epilogues."""

from __future__ import annotations

from pathlib import Path

from tests.helpers.cuda_host_library import host_program, output_of


def test_all_tiles_of_all_sizes_are_rounded_computed_and_stored_where_they_belong(tmp_path: Path) -> None:
    program = host_program("tf32_product.cc", tmp_path)
    assert output_of(program, seconds=300) == "0\n"


def test_of_known_sizes_only_tiles_that_some_gpu_would_choose_are_compiled(tmp_path: Path) -> None:
    program = host_program("fastest_tf32_tiles.cc", tmp_path)
    # The last takes longer than its blocks run at once, by every tile.
    assert output_of(program).split("\n") == [
        "32x64 ",
        "32x64 ",
        "64x64 128x64h ",
        "32x64 64x64 128x64h 128x128h 128x192h ",
        "",
    ]


def test_products_by_constants_that_are_turned_and_rounded_before(tmp_path: Path) -> None:
    program = host_program("turned_product.cc", tmp_path)
    assert output_of(program, seconds=300) == "0\n"
