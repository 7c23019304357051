"""Run tests that build much in several processes; what they build is built before, by all cores.

    python -m tests.shards [-k EXPRESSION] [-m MARKS] [--jobs N] [--seconds N] [PATH ...]

By default all that need a GPU. Prints what failed, then how many passed, failed, were skipped, and were left when the
time was up; exit code 1 if one failed or none ran.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from tempfile import TemporaryDirectory

_PYTEST = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider")
_ENDED = re.compile(r"^(\S+::.+?) (PASSED|FAILED|ERROR|SKIPPED)\b", re.MULTILINE)
"""A test's line, as `-v` prints it."""
_BAD = ("FAILED", "ERROR")
_CACHE = "FUSION_CLI_CACHE"
"""The environment's folder of what was built."""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.shards", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("paths", nargs="*", default=["tests/emit"], metavar="PATH")
    parser.add_argument("-k", default="", metavar="EXPRESSION", help="only tests that pytest's -k chooses")
    parser.add_argument("-m", default="gpu", metavar="MARKS", help="only tests with these marks [default: gpu]")
    parser.add_argument("--jobs", type=int, default=16, help="processes at a time [default: 16]")
    parser.add_argument("--seconds", type=float, default=600, help="for collecting and running [default: 600]")
    asked = parser.parse_args(arguments)
    end = time.monotonic() + asked.seconds
    ids = collected([*asked.paths, "-k", asked.k, "-m", asked.m])
    shares = shared_out(ids, asked.jobs)
    counts: Counter[str] = Counter()
    with TemporaryDirectory() as cache, ThreadPoolExecutor(max(1, len(shares))) as pool:
        environment = {_CACHE: cache} | os.environ
        if ids:
            run(["--setup-only", *ids], end, environment)
        for said in pool.map(lambda share: run(share, end, environment), shares):
            ended = dict(_ENDED.findall(said))
            counts.update(ended.values())
            if any(outcome in _BAD for outcome in ended.values()) or not ended:
                print(said)
    bad, left = sum(counts[b] for b in _BAD), len(ids) - counts.total()
    print(f"{counts['PASSED']} passed, {bad} failed, {counts['SKIPPED']} skipped, {left} left")
    return 1 if bad or not counts else 0


def collected(selection: Sequence[str]) -> list[str]:
    """The ids of the tests that pytest's arguments select."""
    said = subprocess.run([*_PYTEST, "--collect-only", "-q", *selection], capture_output=True, text=True)
    return [line for line in said.stdout.splitlines() if "::" in line]


def shared_out(ids: Sequence[str], jobs: int) -> list[list[str]]:
    """The tests of each process: those of one case, their first parameter, together, so that what they need is built
    once."""
    by_case: dict[str, list[str]] = {}
    for test in ids:
        by_case.setdefault(re.sub(r"^.*?\[(.*?)(-.*)?\]$", r"\1", test), []).append(test)
    cases = list(by_case.values())
    return [[test for case in cases[i::jobs] for test in case] for i in range(min(jobs, len(cases)))]


def run(arguments: Sequence[str], end: float, environment: Mapping[str, str]) -> str:
    """What pytest says of these tests up to an instant of the monotonic clock."""
    command = [*_PYTEST, "-v", "--tb=short", *arguments]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            return process.communicate(timeout=max(0.0, end - time.monotonic()))[0]
        except subprocess.TimeoutExpired:
            process.kill()
            return process.communicate()[0]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
