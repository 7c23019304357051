"""Hopper's kernel for products of many rows on the host: copies, barriers, products and epilogues, tile by tile, and
which tile is chosen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers.cuda_host_library import CLUSTERS, host_program, output_of


def test_all_tiles_of_all_sizes_are_computed_once_and_stored_where_they_belong(tmp_path: Path) -> None:
    program = host_program("wide_product.cc", tmp_path)
    assert output_of(program, seconds=300) == "0\n"


def test_what_the_blocks_of_a_cluster_sum_is_ended_by_one_of_them_each(tmp_path: Path) -> None:
    program = host_program("shared_product.cc", tmp_path, f"-I{CLUSTERS}")
    assert output_of(program, seconds=300) == "0\n"


def test_of_known_sizes_only_tiles_that_some_gpu_would_choose_are_compiled(tmp_path: Path) -> None:
    program = host_program("fastest_tiles.cc", tmp_path, f"-I{CLUSTERS}")
    assert output_of(program).split("\n") == [
        "128x192 64x128a 120x128 176x128 ",
        "64x64 64x64s ",
        "64x64 64x64s 128x64s ",
        "128x64 48x128 56x128 80x128 ",
        "128x128 112x128 120x128 128x128 152x128 ",
        "128x64 64x64 128x64s 48x128 64x128 ",
        "128x128 64x128 ",
        "128x256 128x128 ",
        "128x256 128x192 ",
        "",
    ]


@pytest.fixture(scope="module")
def chosen(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    program = host_program("wide_choice.cc", tmp_path_factory.mktemp("choice"), f"-I{CLUSTERS}")

    def run(*sizes: int) -> str:
        return output_of(program, *map(str, sizes)).strip()

    return run


# What was fastest on an H200: GELU or SiLU after one product, a bias after each of three; that of 256 rows and three of
# 256, 1576 and 4096 are so by their cycles alone. Right operands that the cache cannot keep are read once, if it keeps
# the left one; results that it cannot keep pass through it.
@pytest.mark.parametrize(
    ("rows", "depth", "columns", "expected"),
    [
        pytest.param(128, 768, (3072,), "64x64 pays", id="few rows"),
        pytest.param(64, 768, (3072,), "64x64 pays", id="fewer rows"),
        pytest.param(64, 768, (768,), "64x64/4 pays", id="fewer rows and columns, a block has two steps at least"),
        pytest.param(128, 3072, (768,), "64x64/4 pays", id="few rows and columns, no more blocks than multiprocessors"),
        pytest.param(128, 4096, (4096,), "64x64 pays once", id="few rows, weights from memory to few multiprocessors"),
        pytest.param(
            64, 4096, (4096,), "64x64/2 pays once", id="fewer rows, weights that the vendor takes long to begin with"
        ),
        pytest.param(128, 16384, (4096,), "128x64/2 pays once", id="few rows, a long depth from memory"),
        pytest.param(128, 11008, (4096,), "128x64/2 pays once", id="few rows, a depth from memory"),
        pytest.param(64, 8192, (2048,), "64x64/2 pays once", id="fewer rows, a depth from memory"),
        pytest.param(128, 4096, (1024,), "64x64/2 pays", id="few rows, few columns and a depth"),
        pytest.param(256, 3072, (768,), "64x64/2 pays", id="256 rows, few columns"),
        pytest.param(64, 4096, (28672,), "64x128 pays once", id="fewer rows, many weights from memory"),
        pytest.param(256, 8192, (28672,), "128x256 pays once", id="what tiles read is the limit"),
        pytest.param(64, 3072, (768,), "64x64/8 pays", id="fewer rows, a long depth"),
        pytest.param(128, 384, (1536,), "64x64 pays", id="a short depth, of which a block would have three steps"),
        pytest.param(128, 4096, (16384,), "128x128 pays once", id="few rows, weights from memory"),
        pytest.param(128, 4096, (12288,), "128x128 pays once", id="few rows, fewer weights"),
        pytest.param(256, 768, (3072,), "56x128 pays", id="256 rows"),
        pytest.param(512, 768, (3072,), "104x128 pays", id="512 rows, operands change places"),
        pytest.param(1024, 768, (3072,), "128x192 pays", id="1024 rows"),
        pytest.param(1576, 768, (3072,), "144x128 pays", id="1576 rows, two full turns"),
        pytest.param(4096, 768, (3072,), "128x128 pays", id="4096 rows"),
        pytest.param(1024, 4096, (4096,), "128x256 pays once", id="as much as power allows"),
        pytest.param(2048, 4096, (16384,), "128x256 pays once fills", id="more than power allows"),
        pytest.param(2048, 16384, (4096,), "128x256 pays", id="no operand stays in the cache"),
        pytest.param(128, 768, (768, 768, 768), "64x64 pays", id="three of 128 rows"),
        pytest.param(128, 384, (384, 384, 384), "64x64 pays", id="three of a short depth"),
        pytest.param(256, 768, (768, 768, 768), "48x128 pays", id="three of 256 rows"),
        pytest.param(512, 768, (768, 768, 768), "80x128 pays", id="three of 512 rows"),
        pytest.param(1024, 768, (768, 768, 768), "152x128 pays", id="three of 1024 rows"),
        pytest.param(1576, 768, (768, 768, 768), "120x128 pays", id="three of 1576 rows"),
        pytest.param(4096, 768, (768, 768, 768), "192x128 pays", id="three of 4096 rows"),
        pytest.param(512, 4096, (2816, 2816, 2816), "128x256 pays once", id="three, as much as power allows"),
        pytest.param(2048, 4096, (4096, 4096, 4096), "128x256 pays once fills", id="three, more than power allows"),
        pytest.param(128, 4096, (4096, 4096, 4096), "128x128 pays once", id="three of few rows, weights from memory"),
        pytest.param(2560, 4096, (4096, 4096, 4096), "128x192 pays once fills", id="three, no workers apart"),
        pytest.param(1200, 8192, (8192, 1024, 1024), "152x128 once", id="three by a tile not known to be busy for all"),
        pytest.param(2048, 3584, (3584, 512, 512), "128x192 pays once", id="three whose columns have tiles in common"),
    ],
)
def test_the_tile_that_was_measured_fastest_is_chosen(
    chosen: Callable[..., str], rows: int, depth: int, columns: tuple[int, ...], expected: str
) -> None:
    assert chosen(rows, depth, *columns) == expected
