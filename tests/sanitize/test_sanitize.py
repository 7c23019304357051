"""What is run under compute-sanitizer, for how long, and what is made of what it says."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from math import prod
from pathlib import Path

import pytest

from tests.helpers.cuda_case import Case
from tests.helpers.cuda_host_library import MORE_FLAGS, host_program
from tests.helpers.cuda_plans import all_cases
from tests.sanitize.__main__ import FAULTY, Outcome, joined, sanitized, verdict
from tests.sanitize.cases import by_size, run_all
from tests.sanitize.families import FAMILIES
from tests.sanitize.on_host import environment, libasan


def test_every_case_is_of_one_family() -> None:
    names = [case.name for cases in FAMILIES.values() for case in cases]
    assert sorted(names) == sorted(case.name for case in all_cases())
    assert all(FAMILIES.values())


def test_the_small_sizes_come_first_and_empty_ones_not_at_all() -> None:
    works = [prod(sizes.values()) for _, sizes in by_size(FAMILIES["linear"])]
    assert works == sorted(works)
    assert works[0] > 0


def test_what_the_time_does_not_suffice_for_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    ran: list[str] = []

    def run(case: Case, sizes: Mapping[str, int]) -> None:
        ran.append(case.name)

    assert run_all(FAMILIES["rowwise"], 60, run) == 0
    assert len(ran) == len(by_size(FAMILIES["rowwise"]))
    assert capsys.readouterr().out.count("ran ") == len(ran)
    assert run_all(FAMILIES["rowwise"], -1, run) == len(ran)


def test_shares_of_a_family_are_all_of_it() -> None:
    ran: list[tuple[str, Mapping[str, int]]] = []
    for share in range(3):
        assert run_all(FAMILIES["rowwise"], 60, lambda case, sizes: ran.append((case.name, sizes)), share, 3) == 0
    every = [(case.name, sizes) for case, sizes in by_size(FAMILIES["rowwise"])]
    assert sorted(ran, key=str) == sorted(every, key=str)


def test_shares_are_clean_together() -> None:
    clean, bad = Outcome("clean", 5, 2, 10.0, "a"), Outcome("3 errors", 4, 0, 7.0, "b")
    assert joined([clean, clean]) == Outcome("clean", 10, 4, 10.0, "a\na")
    assert joined([clean, bad]) == Outcome("3 errors", 9, 2, 10.0, "a\nb")
    assert not joined([clean, bad]).is_clean


@pytest.mark.parametrize(
    ("log", "code", "said"),
    [
        ("========= ERROR SUMMARY: 0 errors", 0, "clean"),
        ("========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)", 0, "clean"),
        (
            "========= RACECHECK SUMMARY: 1 hazard displayed (0 errors, 1 warning)",
            0,
            "1 hazard displayed (0 errors, 1 ",
        ),
        ("========= ERROR SUMMARY: 3 errors", FAULTY, "3 errors"),
        ("ModuleNotFoundError: torch", 1, "exit code 1: ModuleNotFoundError: torch"),
        (
            "========= Internal Sanitizer Error: (Unable to allocate)\n========= ERROR SUMMARY: 924 errors",
            FAULTY,
            "the tool",
        ),
        ("ran a", 0, "no summary"),
        ("", None, "not done in time"),
    ],
)
def test_a_verdict(log: str, code: int | None, said: str) -> None:
    assert verdict(log, code).startswith(said)


FAKE = """#!/bin/sh
test "$1 $3" = "--tool --error-exitcode" || exit 9
tool=$2
shift 4
if test $tool = synccheck; then
  test "$1" = --num-cuda-barriers || exit 8
  shift 2
fi
"$@" || exit 1
echo "========= ERROR SUMMARY: 0 errors"
"""


def test_a_command_under_a_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "compute-sanitizer"
    tool.write_text(FAKE)
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    good = sanitized([sys.executable, "-c", "print('ran a\\nran b\\nleft 3')"], "memcheck", 60)
    assert good.is_clean
    assert str(good).startswith("clean: 2 runs, 3 left out for time")
    assert sanitized([sys.executable, "-c", "print('ran a')"], "synccheck", 60).is_clean
    assert not sanitized([sys.executable, "-c", "print('left 3')"], "memcheck", 60).is_clean, "nothing was run"
    assert sanitized([sys.executable, "-c", "raise SystemExit(1)"], "memcheck", 60).verdict.startswith("exit code 1")
    slow = sanitized([sys.executable, "-c", "import time; print('ran a', flush=True); time.sleep(9)"], "memcheck", 1)
    assert (slow.verdict, slow.ran) == ("not done in time", 1)


def test_what_reads_past_a_tensors_end_is_found_without_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = libasan()
    if library is None:
        pytest.skip("there is no libasan")
    watched = environment(library)
    monkeypatch.setenv(MORE_FLAGS, watched[MORE_FLAGS])
    program = host_program("past.cc", tmp_path)
    for bytes, code in (("16", 0), ("8", 1)):
        run = subprocess.run([program, bytes], env=watched, capture_output=True, text=True, check=False)
        assert run.returncode == code, run.stderr
    assert "heap-buffer-overflow" in run.stderr
