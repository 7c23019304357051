"""Tests in several processes: all of a selection run once, and what fails or does not end is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.shards import main, shared_out

TESTS = """
import os
import time

import pytest


@pytest.fixture(scope="module")
def built():
    with open(__file__ + ".built", "a") as built:
        built.write(f"{os.environ['FUSION_CLI_CACHE']} {os.path.exists(__file__ + '.ran')}\\n")


@pytest.mark.parametrize("n", range(5))
def test_good(n, built):
    with open(__file__ + ".ran", "a") as ran:
        ran.write(f"{n}\\n")


def test_bad():
    assert 1 == 2, "one is not two"


@pytest.mark.skip(reason="never")
def test_skipped():
    pass


def test_slow():
    time.sleep(60)
"""


@pytest.fixture
def tests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "test_them.py"
    path.write_text(TESTS)
    monkeypatch.chdir(tmp_path)
    return path


def test_each_test_of_a_selection_runs_once(tests: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tests), "-m", "", "-k", "good or skipped", "--jobs", "3"]) == 0
    assert capsys.readouterr().out == "5 passed, 0 failed, 1 skipped, 0 left\n"
    assert sorted(Path(f"{tests}.ran").read_text().split()) == ["0", "1", "2", "3", "4"]


def test_what_tests_build_is_built_before_any_runs(
    tests: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FUSION_CLI_CACHE", raising=False)
    main([str(tests), "-m", "", "-k", "good", "--jobs", "2"])
    first, *others = Path(f"{tests}.built").read_text().splitlines()
    assert first.endswith(" False")
    assert {line.split()[0] for line in others} == {first.split()[0]}
    assert len(others) == 2


def test_tests_of_one_case_are_one_process_s() -> None:
    ids = ["t.py::a[x-plain]", "t.py::a[x-graph]", "t.py::a[y-plain]", "t.py::b[x]", "t.py::b[y]", "t.py::c"]
    assert shared_out(ids, 2) == [["t.py::a[x-plain]", "t.py::a[x-graph]", "t.py::b[x]", "t.py::c"], [ids[2], ids[4]]]
    assert len(shared_out(ids, 16)) == 3


def test_what_fails_is_told(tests: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tests), "-m", "", "-k", "good or bad", "--jobs", "2"]) == 1
    out = capsys.readouterr().out
    assert "one is not two" in out
    assert out.endswith("5 passed, 1 failed, 0 skipped, 0 left\n")


def test_what_does_not_end_in_time_is_left(tests: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tests), "-m", "", "-k", "slow", "--jobs", "2", "--seconds", "3"]) == 1
    assert capsys.readouterr().out.endswith("0 passed, 0 failed, 0 skipped, 1 left\n")


def test_nothing_is_no_success(tests: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tests), "-m", "", "-k", "nothing"]) == 1
    assert capsys.readouterr().out == "0 passed, 0 failed, 0 skipped, 0 left\n"
