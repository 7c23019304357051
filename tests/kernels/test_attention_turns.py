"""How evenly the tiles of Hopper's attention are dealt out to its blocks, where queries see more or fewer keys."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.helpers.cuda_host_library import host_program

_CASES = ((64, 4096, 12), (32, 8192, 6), (128, 4096, 25), (64, 8192, 12), (28, 2048, 28), (32, 2048, 25))
"""Heads, queries and keys, and as many heads as have their keys in an H200's cache: where all of them took turns, some
blocks had up to a third more to do than the mean."""


def test_no_block_is_left_with_the_longest_tiles_of_every_section(tmp_path: Path) -> None:
    program = host_program("turns.cc", tmp_path)
    sizes = [str(x) for heads, length, most in _CASES for x in (heads, length, length, most)]
    lines = subprocess.run([program, *sizes], capture_output=True, text=True, check=True, timeout=60).stdout.split("\n")
    found = [line.split() for line in lines if line]
    assert len(found) == len(_CASES)
    for (_, _, most), (together, busiest) in zip(_CASES, found, strict=True):
        assert 1 <= int(together) <= most
        assert float(busiest) < 1.06


_UNEVEN = (
    (12, 512, 512, (512, 390, 384, 300, 260, 470, 256, 205)),
    (16, 256, 256, (256, 140, 200, 128, 129, 100, 1, 90)),
    (12, 1024, 1024, (700, 1024, 600, 384, 800, 500, 1000, 512)),
    (16, 500, 500, (350, 280, 400, 200, 150, 90, 500, 256, 0, 1, 500, 385, 128, 300, 450, 160)),
)
"""Heads, queries, keys, and how many of these every batch's mask leaves."""
_EVEN = ((12, 512, 512, (512,) * 8), (16, 100, 128, (70,) * 31))


def test_blocks_have_as_much_to_do_whatever_masks_leave(tmp_path: Path) -> None:
    program = host_program("dealt.cc", tmp_path)
    cases = [" ".join(map(str, (*sizes, *left))) for *sizes, left in (*_UNEVEN, *_EVEN)]
    lines = subprocess.run([program, *cases], capture_output=True, text=True, check=True, timeout=60).stdout.split("\n")
    found = [tuple(map(float, line.split())) for line in lines if line]
    assert len(found) == len(cases)
    for as_they_come, ordered in found[: len(_UNEVEN)]:
        assert as_they_come > 1.23
        assert ordered < 1.09
    for as_they_come, ordered in found[len(_UNEVEN) :]:
        assert as_they_come == ordered
