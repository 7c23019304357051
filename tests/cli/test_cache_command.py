"""`fusion-cli cache`, and how much the cache may hold."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from fusion_cli.build.cache import SPARED, find, put, shrink
from tests.helpers.cli_helpers import call, write_model


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three objects of 1,000 bytes, the first used longest ago."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("FUSION_CLI_CACHE", str(folder))
    for number in range(3):
        made = tmp_path / f"{number}.o"
        made.write_bytes(bytes([number]) * 1000)
        path = put(made, folder / "objects" / str(number))
        os.utime(path, (0, path.stat().st_mtime - 2 * SPARED + number))
    return folder


def kept(cache: Path) -> list[str]:
    return sorted(p.parent.name for p in cache.rglob("*.o"))


def test_info_tells_where_and_how_much(cache: Path) -> None:
    told = json.loads(call("cache", "info", "--json").stdout)
    assert (told["folder"], told["bytes"], told["objects"]) == (str(cache), 3000, {"files": 3, "bytes": 3000})
    assert told["limit"] == 5 * 10**9
    assert "3.0 kB of at most 5.0 GB" in call("cache", "info").stdout


def test_clean_leaves_what_was_used_last(cache: Path) -> None:
    assert find(cache / "objects" / "0") is not None  # used: now it is the latest
    assert "1.0 kB freed" in call("cache", "clean", "--to", "2kB").stdout
    assert kept(cache) == ["0", "2"]
    call("cache", "clean")
    assert kept(cache) == []
    assert json.loads(call("cache", "info", "--json").stdout)["bytes"] == 0


def test_a_build_removes_nothing_that_another_may_be_about_to_link(cache: Path) -> None:
    find(cache / "objects" / "1")
    assert shrink(cache, 0) == 2000
    assert kept(cache) == ["1"]


def test_a_build_keeps_the_cache_within_its_limit(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSION_CLI_CACHE_SIZE", "1kB")
    result = call(
        "optimize", write_model(tmp_path / "m.onnx"), "-o", tmp_path / "out.onnx", "--target", "cpu", "--force"
    )
    assert result.exit_code == 0, result.output
    assert not {"0", "1", "2"} & set(kept(cache))
    assert kept(cache)  # what was just compiled


@pytest.mark.parametrize("text", ["much", "5TB", "-1"])
def test_a_size_that_is_none_is_an_error(cache: Path, text: str) -> None:
    result = call("cache", "clean", "--to", text)
    assert result.exit_code == 1
    assert "such as 500MB or 2GB" in result.stderr
    assert len(kept(cache)) == 3
