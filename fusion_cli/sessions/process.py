"""Sessions in a process of their own: what crashes there is a model that does not run, not the end of this program."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from threading import Timer
from types import TracebackType
from typing import Any, Protocol, Self, TypedDict, Unpack

from fusion_cli.limits import MORE_TIME, Budget
from fusion_cli.sessions import Array, CannotRun, OverBudget, Providers, Use
from fusion_cli.sessions.timing import Timing


class Runner(Protocol):
    """A model that is open."""

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Every output by name. Raises CannotRun."""
        ...

    def time_against(self, others: Sequence[Any], feeds: Mapping[str, Array], *, seconds: float, most: int) -> Timing:
        """This model, the first, and others, opened in the same place, on the same inputs. Raises CannotRun."""
        ...


class OpenOptions(TypedDict, total=False):
    """Of `open_model`."""

    libraries: Sequence[Path]
    providers: Providers
    folder: Path | None
    use: Use
    threads: int
    constants: Mapping[str, Array]


class Opener(Protocol):
    """How a model is opened: `open_model`, or `Process.open`."""

    def __call__(self, model: Path | bytes, **options: Unpack[OpenOptions]) -> Runner: ...


class Process:
    """Another process that opens models and runs them; it starts with the first, and ends with the `with` block.

    If it crashes, the models open in it are lost: CannotRun for each of them, and the next one is opened in a new one.
    So it is where an answer takes longer than the `budget` has seconds: OverBudget.
    """

    def __init__(self, budget: Budget | None = None) -> None:
        self.budget = budget or Budget()
        self._child: subprocess.Popen[bytes] | None = None
        self._numbers = count()
        self._unused: list[int] = []
        """Models that nobody refers to any more, to be closed before the next is opened."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._child is not None:
            if error is not None:
                self._child.kill()
            with suppress(subprocess.TimeoutExpired):
                self._child.communicate(timeout=self.budget.seconds)
            self._child.kill()

    def open(self, model: Path | bytes, **options: Unpack[OpenOptions]) -> RemoteRunner:
        """As `open_model`."""
        number = next(self._numbers)
        self.ask("open", number, model, options)
        runner = RemoteRunner(self, number)
        weakref.finalize(runner, self._unused.append, number)
        return runner

    def available_providers(self) -> list[str]:
        """What ONNX Runtime has here. Raises CannotRun where there is no ONNX Runtime."""
        found: list[str] = self.ask("available_providers")
        return found

    def ask(self, command: str, *arguments: object) -> Any:
        """What the worker's command gives (see worker.py). Raises CannotRun, also if the process ends instead."""
        if self._child is None:
            self._child = _start(self.budget)
        unused, self._unused[:] = tuple(self._unused), []
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        late = Timer(self.budget.seconds, self._child.kill)
        late.daemon = True  # a signal may end this program before it is cancelled
        try:
            late.start()
            pickle.dump((unused, command, arguments), self._child.stdin, pickle.HIGHEST_PROTOCOL)
            self._child.stdin.flush()
            answer = pickle.load(self._child.stdout)
        except (EOFError, OSError, pickle.UnpicklingError) as error:
            said = self._obituary()
            if late.finished.is_set():
                raise OverBudget(f"it took more than {self.budget.seconds:g} s; {MORE_TIME}") from error
            raise CannotRun(said) from error
        finally:
            late.cancel()
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def _obituary(self) -> str:
        assert self._child is not None
        self._child.kill()  # if it lives, it has lost the thread
        self._child.communicate()
        code = self._child.returncode
        self._child = None
        if code >= 0:
            return f"ONNX Runtime ended its process with exit code {code}"
        return f"ONNX Runtime crashed: {signal.strsignal(-code) or f'signal {-code}'}"


class RemoteRunner:
    """A model open in another process; closed there when nobody refers to it any more."""

    def __init__(self, process: Process, number: int) -> None:
        self._process, self._number = process, number

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """As `LocalRunner.run`."""
        outputs: dict[str, Array] = self._process.ask("run", self._number, dict(feeds))
        return outputs

    def time_against(
        self, others: Sequence[RemoteRunner], feeds: Mapping[str, Array], *, seconds: float, most: int
    ) -> Timing:
        """As `LocalRunner.time_against`."""
        numbers = [other._number for other in others]
        timing: Timing = self._process.ask("time", self._number, numbers, dict(feeds), seconds, most)
        return timing


def _start(budget: Budget) -> subprocess.Popen[bytes]:
    """The worker, with the same modules to import as here, and none from the current folder."""
    path = os.pathsep.join(p for p in sys.path if p)
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "fusion_cli.sessions.worker", str(os.getpid()), str(budget.memory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": path},
    )
