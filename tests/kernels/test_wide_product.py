"""Hopper's kernel for products of many rows on the host: copies, barriers, products and epilogues, tile by tile."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.helpers.cuda_host_library import host_program


def test_all_tiles_of_all_sizes_are_computed_once_and_stored_where_they_belong(tmp_path: Path) -> None:
    program = host_program("wide_product.cc", tmp_path)
    assert subprocess.run([program], capture_output=True, text=True, check=True, timeout=300).stdout == "0\n"
