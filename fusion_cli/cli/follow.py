"""What goes on, on stderr: on a terminal a line that changes, elsewhere a new one every few seconds."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager

import click
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from fusion_cli.cli.common import is_quiet
from fusion_cli.listener import NOBODY, Listener
from fusion_cli.report.readable import printable

EVERY = 5.0
"""Seconds between lines where there is no terminal: what is done sooner says nothing."""


@contextmanager
def progress(title: str, verbose: bool = False) -> Iterator[Listener]:
    """A listener that shows what it hears, with the time since the beginning, and if `verbose` every decision in a line
    of its own; shows nothing where --quiet was given."""
    if is_quiet(click.get_current_context()):
        yield NOBODY
        return
    console = Console(stderr=True)
    if not console.is_terminal:
        with _InLog(title, verbose).ticking() as listener:
            yield listener
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as shown:
        yield _OnTerminal(title, verbose, shown)


class _Shown(Listener, ABC):
    """Knows the stage and how far it is."""

    def __init__(self, title: str, verbose: bool) -> None:
        self.title, self.verbose = title, verbose
        self.name = ""
        self.far = ""

    def stage(self, name: str) -> None:
        if name != self.name:  # stages of parts come many times
            self.name, self.far = name, ""
            self.changed()

    def step(self, done: int, total: int, what: str) -> None:
        self.far = f", {done} of {total}: {what}"
        self.changed()

    def decided(self, what: str) -> None:
        if self.verbose:
            self.print(printable(f"{self.name}: {what}"))

    @property
    def line(self) -> str:
        return printable(f"{self.title}: {self.name}{self.far}" if self.name else self.title)

    @abstractmethod
    def changed(self) -> None:
        """What `line` says is another."""

    @abstractmethod
    def print(self, line: str) -> None:
        """Show a line that stays."""


class _OnTerminal(_Shown):
    def __init__(self, title: str, verbose: bool, shown: Progress) -> None:
        super().__init__(title, verbose)
        self.shown = shown
        self.task = shown.add_task(self.line, total=None)

    def changed(self) -> None:
        self.shown.update(self.task, description=self.line)

    def print(self, line: str) -> None:
        self.shown.console.print(line, markup=False, highlight=False, soft_wrap=True)


class _InLog(_Shown):
    def __init__(self, title: str, verbose: bool) -> None:
        super().__init__(title, verbose)
        self.start = time.monotonic()

    def changed(self) -> None:
        """The next tick tells."""

    def print(self, line: str) -> None:
        seconds = int(time.monotonic() - self.start)
        click.echo(f"{seconds // 60}:{seconds % 60:02d} {line}", err=True)

    @contextmanager
    def ticking(self) -> Iterator[Listener]:
        """While what is done is said every few seconds."""
        over = threading.Event()

        def tick() -> None:
            while not over.wait(EVERY):
                self.print(self.line)

        thread = threading.Thread(target=tick, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            over.set()
            thread.join()
