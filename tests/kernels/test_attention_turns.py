"""How evenly the tiles of Hopper's attention are dealt out to its blocks, where later queries see more keys."""

from __future__ import annotations

from pathlib import Path

from tests.helpers.cuda_host_library import host_program, output_of

_CASES = ((64, 4096, 12), (32, 8192, 6), (128, 4096, 25), (64, 8192, 12), (28, 2048, 28), (32, 2048, 25))
"""Heads, queries and keys, and as many heads as have their keys in an H200's cache: where all of them took turns, some
blocks had up to a third more to do than the mean."""


def test_no_block_is_left_with_the_longest_tiles_of_every_section(tmp_path: Path) -> None:
    program = host_program("turns.cc", tmp_path)
    sizes = [str(x) for heads, length, most in _CASES for x in (heads, length, length, most)]
    lines = output_of(program, *sizes).split("\n")
    found = [line.split() for line in lines if line]
    assert len(found) == len(_CASES)
    for (_, _, most), (together, busiest) in zip(_CASES, found, strict=True):
        assert 1 <= int(together) <= most
        assert float(busiest) < 1.06
