"""Interrupt runs at each of their calls that change files, and see what is left.

    python -m tests.faults [--scene NAME] [--how NAME] [--every N]

A run of each scene (scenes.py) is ended, or refused by the system, at its first such call, at its second and so on:
killed before it, killed after half of a write, sent SIGTERM or SIGINT, on a disk that is full from there on, or of
which that one call fails. After each the old output or the new one has to be there whole and what is none of ours
unchanged, and after the next run nothing left behind. `shim.c`, preloaded, stands between the process and the C library
for that. Prints what is wrong, and how many calls there were; exit code 1 if anything is.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path

from fusion_cli.build.compiler import find_cxx
from fusion_cli.errors import FusionError
from fusion_cli.limits import Budget, run
from tests.faults.scenes import SCENES, Scene, content, fault, left

HOW = {"kill": 0, "torn": -1, "full": -2, "fail": -3, "SIGTERM": int(signal.SIGTERM), "SIGINT": int(signal.SIGINT)}
"""What shim.c does at a call."""
_DEADLY = frozenset({"kill", "torn"})
_WITHOUT_COMMAND = ("kill", "torn", "full", "fail")
"""The command answers signals."""
_ENDS = {"full": {0, 1, 5}, "fail": {0, 1, 5}, "SIGTERM": {0, 128 + signal.SIGTERM}, "SIGINT": {0, 1}}
"""Exit codes; 0 where what went wrong did not matter."""
_SHOWN = 500
_OF_THE_USER = frozenset({"cache", "cache/objects", "config", "config/fusion-cli"})
"""Folders that are made once, and may stay empty."""


class Stage:
    """Where one scene is played, again and again from the same beginning."""

    def __init__(self, scene: Scene, folder: Path) -> None:
        self.scene, self.folder, self.said = scene, folder / "scene", folder / "said"
        self._beginning = folder / "beginning"
        scene.prepare(self.folder)
        self.folder.rename(self._beginning)
        self.before = content(self._beginning)
        self._begin()
        status, self.calls = self.play(-1, "kill")
        if status != 0:
            raise RuntimeError(self.said.read_text())
        self.after = left(self.folder)

    def _begin(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(self._beginning, self.folder)

    def play(self, number: int, how: str) -> tuple[int, int]:
        """How a run ends, in another process, and how many calls it had, of which that of a number is hit."""
        shim, (reader, writer) = ctypes.CDLL(None), os.pipe()
        child = os.fork()
        if child == 0:
            code = 70
            try:
                signal.signal(signal.SIGINT, signal.default_int_handler)
                os.dup2(os.open(self.said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
                os.dup2(2, 1)
                shim.fault_arm(str(self.folder).encode(), ctypes.c_long(number), HOW[how])
                code = self.scene.run(self.folder)
            except (OSError, FusionError) as error:
                code, _ = 1, sys.stderr.write(f"error: {error}\n")
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os.write(writer, str(shim.fault_count()).encode())
                os._exit(code)
        os.close(writer)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        calls = int(os.read(reader, 100) or -1)
        os.close(reader)
        return status, calls

    def problems(self, number: int, how: str) -> Iterator[str]:
        """What is wrong after a run that is hit at a call, and after the next."""
        self._begin()
        status, _ = self.play(number, how)
        said = self.said.read_text()
        if status not in ({-signal.SIGKILL} if how in _DEADLY else _ENDS[how]):
            yield f"ended with {status}: {said[-_SHOWN:]}"
        if status in (1, 5) and how != "SIGINT" and not any(line.startswith("error: ") for line in said.splitlines()):
            yield f"said {said[-_SHOWN:]}"
        # Where no key can be made, libraries are written all the same, and that is said.
        if found := fault(self.folder, self.before, trust="not sealed as yours" in said):
            yield found
        more = left(self.folder) - set(self.before) - self.after - _OF_THE_USER
        if how == "full" and more:
            yield f"left {sorted(more)}"
        status, _ = self.play(-1, "kill")
        if status != 0:
            yield f"the next run ended with {status}: {self.said.read_text()[-_SHOWN:]}"
        if found := fault(self.folder, self.before):
            yield f"after the next run: {found}"
        if more := left(self.folder) ^ self.after:
            yield f"after the next run: {sorted(more)}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--scene", choices=SCENES, action="append")
    parser.add_argument("--how", choices=HOW, action="append")
    parser.add_argument("--every", type=int, default=1, help="of how many calls one is hit")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        if "FAULTS" not in os.environ:
            environment = {**os.environ, "LD_PRELOAD": str(compiled(Path(folder))), "FAULTS": "armed"}
            command = [sys.executable, "-m", "tests.faults", *sys.argv[1:]]
            return os.spawnve(os.P_WAIT, sys.executable, command, environment)
        bad = 0
        for name in asked.scene or SCENES:
            stage = Stage(SCENES[name], Path(folder, name))
            for how in asked.how or (_WITHOUT_COMMAND if SCENES[name].only_switch else HOW):
                hit = range(0, stage.calls, asked.every)
                found = [f"{name}, {how} at call {n}: {said}" for n in hit for said in stage.problems(n, how)]
                summary = f"{name}, {how}: {len(hit)} of {stage.calls} calls hit, {len(found)} problems"
                print(*found, summary, sep="\n", flush=True)
                bad += len(found)
    return min(bad, 1)


def compiled(folder: Path) -> Path:
    """The shim as a library."""
    compiler = find_cxx("")
    assert compiler is not None
    source, library = Path(__file__).with_name("shim.c"), folder / "shim.so"
    flags = ["-x", "c", "-O1", "-Wall", "-Werror", "-shared", "-fPIC"]
    made = run([str(compiler.path), *flags, str(source), "-o", str(library), "-ldl"], Budget())
    assert made.returncode == 0, made.stderr
    return library


if __name__ == "__main__":
    sys.exit(main())
