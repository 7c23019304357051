"""Does the suite notice? Applies the mutants of catalogue.toml one at a time, each in a copy of the tree, and runs the
tests named for it.

    python -m tests.mutants [--gpu] [--stage STAGE ...] [--only TEXT] [--jobs N]

Prints which survived, and for every stage how many were killed; exit code 1 if that is less than 90 % of all that ran,
or if tests fail without any mutant. Those that only a GPU can tell run with --gpu.
"""

from __future__ import annotations

import argparse
import os
import queue
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from tests.mutants.catalogue import MUTANTS, ROOT, Mutant

_LEAST = 0.9
_SECONDS = 600
"""What takes longer hangs, which the suite notices."""
_PASSED, _FAILED, _MISUSED = 0, 1, (4, 5)
"""Exit codes of pytest; it is misused where there is no such file or no such test."""
_times = count(1_700_000_000, 2)
"""Times of changed files, none twice: Python tells by them that what it has compiled is of another text."""


class Tree:
    """A copy of the repository to change files in."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        ignored = shutil.ignore_patterns(".*", "__pycache__", "dist", "demo-out")
        shutil.copytree(ROOT, folder, ignore=ignored, dirs_exist_ok=True)

    @contextmanager
    def changed(self, mutant: Mutant) -> Iterator[None]:
        path = self.folder / mutant.file
        text = path.read_text()
        _write(path, mutant.applied(text))
        try:
            yield
        finally:
            _write(path, text)

    def run(self, tests: str, *, gpu: bool) -> int:
        """pytest's exit code; that of a failed test if it takes too long."""
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
        # Where there is a GPU there may be little else.
        command += ["-m", "gpu"] if gpu else ["--hypothesis-seed=0"]
        files, _, names = tests.partition(" -k ")
        path = os.pathsep.join([str(self.folder), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = {**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "0"}
        try:
            return subprocess.run(
                [*command, *files.split(), *(["-k", names] if names else [])],
                cwd=self.folder,
                env=environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=_SECONDS,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            return _FAILED


def _write(path: Path, text: str) -> None:
    path.write_text(text)
    time = next(_times)
    os.utime(path, (time, time))


class Trees:
    """As many copies as there are jobs, each for one of them at a time."""

    def __init__(self, folder: Path, jobs: int) -> None:
        self._free: queue.Queue[Tree] = queue.Queue()
        for i in range(jobs):
            self._free.put(Tree(folder / f"tree{i}"))

    @contextmanager
    def one(self) -> Iterator[Tree]:
        tree = self._free.get()
        try:
            yield tree
        finally:
            self._free.put(tree)

    def failing(self, files: tuple[str, bool]) -> bool:
        """Whether tests (and whether they are a GPU's) fail where nothing is changed."""
        with self.one() as tree:
            return tree.run(files[0], gpu=files[1]) != _PASSED

    def kills(self, mutant: Mutant) -> bool:
        """Whether a mutant's tests fail with it; it survives where there are none."""
        with self.one() as tree, tree.changed(mutant):
            code = tree.run(mutant.tests, gpu=mutant.gpu)
        killed = code != _PASSED and code not in _MISUSED
        print("killed  " if killed else "NO TESTS" if code in _MISUSED else "SURVIVED", mutant, flush=True)
        return killed


def run(mutants: Sequence[Mutant], jobs: int) -> tuple[list[str], dict[Mutant, bool]]:
    """The test files that fail before anything is changed, and which mutants are killed of those whose tests do not."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, ThreadPoolExecutor(jobs) as pool:
        trees = Trees(Path(folder), jobs)
        files = list(dict.fromkeys((file, m.gpu) for m in mutants for file in m.files))
        wrong = [file for (file, _), failing in zip(files, pool.map(trees.failing, files), strict=True) if failing]
        fit = [m for m in mutants if not set(m.files) & set(wrong)]
        return wrong, dict(zip(fit, pool.map(trees.kills, fit), strict=True))


def table(killed: dict[Mutant, bool], skipped: Sequence[Mutant]) -> str:
    """A line per stage, and one of all."""
    dead, alive, absent = (
        Counter(m.stage for m in mutants)
        for mutants in ([m for m, k in killed.items() if k], [m for m, k in killed.items() if not k], skipped)
    )
    stages = dict.fromkeys(m.stage for m in MUTANTS if m in killed or m in skipped)
    rows = [("stage", "killed", "survived", "not run")]
    rows += [(s, str(dead[s]), str(alive[s]), str(absent[s])) for s in stages]
    rows.append(("all", str(dead.total()), str(alive.total()), str(absent.total())))
    return "\n".join(f"{stage:<12}" + "".join(f"{cell:>10}" for cell in cells) for stage, *cells in rows)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("--gpu", action="store_true", help="also those that only a GPU can tell")
    parser.add_argument("--stage", nargs="+", choices=list(dict.fromkeys(m.stage for m in MUTANTS)))
    parser.add_argument("--only", default="", help="those of files or texts that contain this")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    asked = parser.parse_args()
    chosen = [m for m in MUTANTS if (not asked.stage or m.stage in asked.stage) and asked.only in str(m)]
    skipped = [m for m in chosen if m.gpu and not asked.gpu]
    wrong, killed = run([m for m in chosen if m not in skipped], asked.jobs)
    skipped = [m for m in chosen if m not in killed]
    rate = sum(killed.values()) / max(len(killed), 1)
    survivors = [m for m in MUTANTS if killed.get(m) is False]
    print(table(killed, skipped), f"{rate:.1%} of {len(killed)} killed", sep="\n\n")
    print(*(f"survived: {m} (tests: {m.tests})" for m in survivors), sep="\n")
    print(*(f"fails without any mutant: {file}" for file in wrong), sep="\n")
    return int(rate < _LEAST or bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
