"""Runs that are killed, ended by signals or refused room at calls that change files: all of those with which an output
takes the place of another, and some of a whole run. `python -m tests.faults` hits each."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.helpers.cli_helpers import ROOT


@pytest.mark.skipif(sys.platform != "linux", reason="the shim is written for Linux")
@pytest.mark.parametrize(
    ("scenes", "hows", "every"),
    [
        (("switch",), ("kill",), 1),
        (("switch first", "switch same"), ("kill",), 6),
        (("again",), ("kill", "full", "SIGTERM"), 19),
    ],
    ids=["each call", "other outputs", "whole run"],
)
def test_an_output_is_the_old_one_or_the_new_one_whole(
    scenes: tuple[str, ...], hows: tuple[str, ...], every: int
) -> None:
    chosen = [*(f"--scene={scene}" for scene in scenes), *(f"--how={how}" for how in hows), f"--every={every}"]
    command = [sys.executable, "-m", "tests.faults", *chosen]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr
    assert found.stdout.count("calls hit, 0 problems") == len(scenes) * len(hows)
