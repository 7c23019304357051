"""Are the kernels clean? Runs the cases of the GPU tests under compute-sanitizer, family by family and tool by tool.

    python -m tests.sanitize [--family NAME ...] [--tool TOOL ...] [--seconds N] [--shares N]

Needs a GPU, nvcc and compute-sanitizer. Builds the libraries first, then prints a line per family and tool; exit code 1
if one is not clean. What was said of it lies in the folder of --logs.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from tests.sanitize.families import FAMILIES

TOOLS = ("memcheck", "racecheck", "synccheck")
FAULTY = 86
"""Exit code of compute-sanitizer where it found something."""
_APART = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
"""Every tensor has memory of its own, so that what lies behind it is nobody's."""
_OPTIONS = {"synccheck": ("--num-cuda-barriers", "1024")}
"""By tool. By itself it reckons with fewer barriers in a block than cuDNN's kernels have."""
_START = 120
"""Seconds for what is loaded before the first kernel, and for the last size."""


@dataclass(frozen=True)
class Outcome:
    """What a tool said of a family: the verdict in words, and how many sizes were run of how many."""

    verdict: str
    ran: int
    left: int
    seconds: float
    log: str

    @property
    def is_clean(self) -> bool:
        return self.verdict == "clean" and self.ran > 0

    def __str__(self) -> str:
        unfinished = f", {self.left} left out for time" if self.left else ""
        return f"{self.verdict}: {self.ran} runs{unfinished}, {self.seconds:.0f} s"


def sanitized(command: Sequence[str], tool: str, seconds: float) -> Outcome:
    """Run a command that prints `ran` per size and `left N` at its end under a tool, for `seconds` at most."""
    options = _OPTIONS.get(tool, ())
    checked = ["compute-sanitizer", "--tool", tool, "--error-exitcode", str(FAULTY), *options, *command]
    start = time.monotonic()
    try:
        run = subprocess.run(
            checked, env=os.environ | _APART, capture_output=True, text=True, timeout=seconds, check=False
        )
        log, code = run.stdout + run.stderr, run.returncode
    except subprocess.TimeoutExpired as expired:
        log, code = (expired.stdout or b"").decode() + (expired.stderr or b"").decode(), None
    taken = time.monotonic() - start
    left = re.search(r"^left (\d+)$", log, re.MULTILINE)
    ran = len(re.findall(r"^ran ", log, re.MULTILINE))
    return Outcome(verdict(log, code), ran, int(left[1]) if left else 0, taken, log)


def joined(shares: Sequence[Outcome]) -> Outcome:
    """What was said of a family whose sizes were shared out: clean where all shares are."""
    bad = next((s.verdict for s in shares if s.verdict != "clean"), "clean")
    ran, left = sum(s.ran for s in shares), sum(s.left for s in shares)
    return Outcome(bad, ran, left, max(s.seconds for s in shares), "\n".join(s.log for s in shares))


def verdict(log: str, code: int | None) -> str:
    """What a tool found, in its own words, or why it found nothing."""
    if code is None:
        return "not done in time"
    if "Internal Sanitizer Error" in log:
        return "the tool has failed, as it does for want of memory: fewer --jobs"
    summary = re.findall(r"^=+ (?:ERROR|RACECHECK) SUMMARY: (.*)$", log, re.MULTILINE)
    if code == FAULTY:
        return summary[-1] if summary else "errors"
    if code:
        return f"exit code {code}: {(log.strip().splitlines() or [''])[-1][:200]}"
    if not summary:
        return "no summary: was compute-sanitizer attached?"
    return "clean" if summary[-1].startswith("0 ") else summary[-1]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sanitize")
    parser.add_argument("--family", nargs="+", choices=list(FAMILIES), default=list(FAMILIES))
    parser.add_argument("--tool", nargs="+", choices=TOOLS, default=list(TOOLS))
    parser.add_argument("--seconds", type=int, default=40, help="for the runs of a family under a tool")
    parser.add_argument("--shares", type=int, default=1, help="processes among which a family's sizes are shared out")
    parser.add_argument("--jobs", type=int, default=4, help="tools that run at a time; nine fill 80 GB")
    parser.add_argument("--work", type=Path, default=Path(".gpu-work/sanitize"), help="folder of the libraries")
    parser.add_argument("--logs", type=Path, help="folder of what was said [default: that of the libraries]")
    asked = parser.parse_args()
    if shutil.which("compute-sanitizer") is None:
        parser.error("there is no compute-sanitizer on PATH: it comes with the CUDA toolkit")
    cases = [sys.executable, "-m", "tests.sanitize.cases", str(asked.work)]
    subprocess.run([*cases, "build", *asked.family], check=True)
    logs: Path = asked.logs or asked.work
    logs.mkdir(parents=True, exist_ok=True)

    def check(task: tuple[str, str, int]) -> Outcome:
        family, tool, share = task
        run = [*cases, "run", family, str(asked.seconds), str(share), str(asked.shares)]
        return sanitized(run, tool, asked.seconds + _START)

    pairs = list(product(asked.family, asked.tool))
    is_clean = True
    with ThreadPoolExecutor(asked.jobs) as pool:
        outcomes = pool.map(check, ((*pair, share) for pair in pairs for share in range(asked.shares)))
        for family, tool in pairs:
            outcome = joined([next(outcomes) for _ in range(asked.shares)])
            print(f"{family} {tool}: {outcome}", flush=True)
            if not outcome.is_clean:
                is_clean = False
                (logs / f"{family}-{tool}.log").write_text(outcome.log)
    return 0 if is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
