"""Parts of attention's rows that blocks made of their own keys, put together."""

from __future__ import annotations

from pathlib import Path

from tests.helpers.cuda_host_library import host_program, output_of

_COUNTS = (1, 2, 7, 8, 9, 16, 17, 40)
"""Blocks that have keys of a row: fewer, as many and more than are read at a time."""


def test_rows_are_the_same_however_many_blocks_have_keys_of_them(tmp_path: Path) -> None:
    program = host_program("joined.cc", tmp_path)
    lines = output_of(program, *map(str, _COUNTS)).split()
    assert len(lines) == len(_COUNTS)
    assert all(float(error) < 1e-5 for error in lines), dict(zip(_COUNTS, lines, strict=True))
