"""Where operands lie at the position of a block."""

from __future__ import annotations

from pathlib import Path

from tests.helpers.cuda_host_library import host_program, output_of


def test_operands_are_found_however_far_they_lie_apart(tmp_path: Path) -> None:
    assert output_of(host_program("places.cc", tmp_path)).split() == ["0", "0"]
