"""What work may take before it is given up: seconds here, seconds and memory in other processes, which do not outlive
this one."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO

from fusion_cli.errors import FusionError

_SECONDS = 300.0
_SECONDS_PER_NODE = 0.05
_SECONDS_PER_GIB = 120.0
_PR_SET_PDEATHSIG = 1
MORE_TIME = "--timeout SECONDS allows more"
MORE_MEMORY = "--max-memory GIB allows more"


@dataclass(frozen=True)
class Budget:
    """What one piece of work may take: a stage here, opening or running a model once, a run of the compilers."""

    seconds: float = _SECONDS
    memory: int = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    """Bytes of data that one other process may have."""

    @classmethod
    def asked(cls, seconds: float | None, gib: float | None, nodes: int = 0, weights: int = 0) -> Budget:
        """What was asked for, or else what is plenty for a model of so many nodes and bytes of weights."""
        plenty = _SECONDS + nodes * _SECONDS_PER_NODE + weights / 2**30 * _SECONDS_PER_GIB
        return cls(plenty if seconds is None else seconds, cls.memory if gib is None else int(gib * 2**30))


class _TimeUp(BaseException):
    """Not an Exception: libraries may go on after those."""


@contextmanager
def deadline(seconds: float, complaint: str) -> Iterator[None]:
    """Give up what takes longer, where signals reach it: in the main thread, if nobody else has use for the alarm.
    Raises FusionError with the complaint."""

    def ring(_: int, __: FrameType | None) -> None:
        raise _TimeUp

    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGALRM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-3))
    try:
        yield
    except _TimeUp:
        raise FusionError(complaint, hint=MORE_TIME) from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)


def confine(parent: int, memory: int, last: signal.Signals = signal.SIGKILL) -> None:
    """Limit this process, which `parent` has started, to so many bytes of data, and have it get the signal `last` when
    the parent ends."""
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    limit = memory if hard == resource.RLIM_INFINITY else min(memory, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(last))
        if os.getppid() != parent:  # it has ended already
            os.kill(os.getpid(), last)


def run(
    command: Sequence[str],
    budget: Budget,
    *,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    heard: Callable[[str], None] = lambda line: None,
) -> subprocess.CompletedProcess[str]:
    """Run a program, with its output as text; `heard` gets the lines of stdout as they come, in another thread.
    Whatever ends the wait ends the program and all that it has started.

    Raises subprocess.TimeoutExpired.
    """
    parent = os.getpid()
    child = subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
        # ninja passes on what it can catch to what it has started.
        preexec_fn=lambda: confine(parent, budget.memory, signal.SIGTERM),
    )
    with child, ThreadPoolExecutor(2) as pool:
        texts = [pool.submit(_text, child.stdout, heard), pool.submit(_text, child.stderr)]
        end = time.monotonic() + budget.seconds
        try:
            out, err = (text.result(end - time.monotonic()) for text in texts)
            child.wait(max(end - time.monotonic(), 0.0))
        except BaseException as e:
            _kill_session(child.pid)
            child.wait()
            if isinstance(e, TimeoutError):  # of a text
                raise subprocess.TimeoutExpired(command, budget.seconds) from None
            raise
    return subprocess.CompletedProcess(command, child.returncode, out, err)


def _text(stream: IO[str] | None, heard: Callable[[str], None] = lambda line: None) -> str:
    """All of a stream, each line of which is told as it comes."""
    lines = []
    for line in stream or ():
        heard(line.rstrip("\n"))
        lines.append(line)
    return "".join(lines)


def _kill_session(leader: int) -> None:
    """Kill all processes of a session: ninja gives each command a group of its own."""
    with suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)
    while members := [pid for pid in map(int, _processes()) if _is_alive_in(leader, pid)]:
        for pid in members:  # and what they have started meanwhile, next
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _processes() -> Iterator[str]:
    return (path.name for path in Path("/proc").glob("[0-9]*"))


def _is_alive_in(session: int, pid: int) -> bool:
    try:
        state, _, _, own = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:4]
    except OSError:
        return False
    return int(own) == session and state != "Z"
