"""The benchmark of every tile by itself: its copy of the project takes the tile that the environment names."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from benchmarks import wide_tiles
from benchmarks.runs import ROOT
from tests.helpers import cuda_host_library
from tests.helpers.cli_helpers import needs_compiler


@needs_compiler
def test_a_copy_of_the_project_takes_the_tile_that_the_environment_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = wide_tiles.copy_that_obeys(ROOT, tmp_path / "tree")
    monkeypatch.setattr(cuda_host_library, "resource_dir", lambda name: tree / name)
    program = cuda_host_library.host_program("wide_choice.cc", tmp_path / "choice", f"-I{cuda_host_library.CLUSTERS}")
    chosen = []
    for number in ("0", "1", "-1", "soon"):
        monkeypatch.setenv(wide_tiles.TILE, number)
        chosen.append(cuda_host_library.output_of(program, "1024", "768", "3072").split()[0])
    monkeypatch.delenv(wide_tiles.TILE)
    own = cuda_host_library.output_of(program, "1024", "768", "3072").split()[0]
    assert chosen == ["128x256", "128x128", own, "128x256"], "of no number atoi makes 0"
    choice = (tree / "templates/include/wide_choice.cuh").read_text()
    assert "has_fastest<Tiles, Tile>()" not in choice, "all tiles are compiled, whatever is known of sizes"
    (tree / "templates/include/wide_choice.cuh").write_text("")
    with pytest.raises(click.ClickException, match="does not choose a tile"):
        wide_tiles.copy_that_obeys(tree, tmp_path / "again")
