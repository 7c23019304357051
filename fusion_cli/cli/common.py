"""What the commands share: errors as one line, option values, and where text goes."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from rich.console import Console

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
_AGAIN_SECONDS = 0.05


class Commands(click.Group):
    """A group that ends every failure with one line on stderr and the exit code of its kind."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; FusionError and OSError become a message, anything else says it is a fault of ours."""
        logging.getLogger().addHandler(logging.NullHandler())  # libraries' remarks are no business of the user's
        try:
            with warnings.catch_warnings():
                warnings.showwarning = _show_warning
                with _tidy_end():
                    return super().invoke(ctx)
        except (BrokenPipeError, click.ClickException, click.exceptions.Exit, click.Abort):
            raise  # click's own business; a broken pipe: the reader of our output has gone
        except Exception as error:
            from fusion_cli.report.failures import failure  # loaded when there is something to print

            if wants_traceback(ctx):
                traceback.print_exc()
            message, code = failure(error, wants_traceback(ctx))
            click.echo(f"error: {message}", err=True)
            ctx.exit(code)


@contextmanager
def _tidy_end() -> Iterator[None]:
    """Have SIGTERM and SIGHUP clean up as Ctrl-C does: they leave every `with` block."""

    def leave(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    tell = sys.unraisablehook

    ends: dict[object, signal.Signals] = {128 + number: number for number in before}

    def again(lost: sys.UnraisableHookArgs) -> None:
        """Destructors and what the collector calls let nothing out: the signal comes once more, after them."""
        number = ends.get(lost.exc_value.code) if isinstance(lost.exc_value, SystemExit) else None
        if number is None:
            tell(lost)
        else:
            threading.Timer(_AGAIN_SECONDS, os.kill, (os.getpid(), number)).start()

    sys.unraisablehook = again
    try:
        yield
    finally:
        sys.unraisablehook = tell
        for number, handler in before.items():
            signal.signal(number, handler)


def _show_warning(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
    """Ours are UserWarnings, for the user; other kinds are for the authors of libraries."""
    from fusion_cli.report.readable import printable  # loaded when there is something to print

    if category is UserWarning:
        click.echo(f"warning: {printable(str(message))}", err=True)


def wants_traceback(ctx: click.Context) -> bool:
    """Whether --debug was given to the command."""
    return bool(ctx.meta.get("fusion_cli.debug"))


def option_group(*given: Callable[[F], F]) -> Callable[[F], F]:
    """Several options as one decorator; --help lists them in this order."""
    return lambda command: reduce(lambda decorated, option: option(decorated), reversed(given), command)


def _remember(ctx: click.Context, _: click.Parameter, value: bool) -> bool:
    ctx.meta["fusion_cli.debug"] = value
    if value:
        logging.basicConfig(stream=sys.stderr, level=logging.INFO)
    return value


def named(form: str, parse: Callable[[str], T]) -> Callable[..., dict[str, T]]:
    """A callback that makes a dictionary of values such as `form`, NAME=TEXT."""

    def callback(_: click.Context, option: click.Parameter, values: Sequence[str]) -> dict[str, T]:
        found = {}
        for value in values:
            name, _sep, text = value.rpartition("=")
            try:
                found[name] = parse(text)
            except ValueError:
                name = ""
            if not name:
                raise click.BadParameter(f"'{value}' is not of the form {form}", param=option)
        return found

    return callback


def _parse_shape(text: str) -> tuple[int, ...]:
    return tuple(_size(d, least=0) for d in text.split(",")) if text else ()


def _parse_range(text: str) -> tuple[int, int]:
    low, _, high = text.partition(":")
    least = _size(low, least=1)
    return least, _size(high or low, least=least)


def parse_size(text: str) -> int:
    """A size of at least one. Raises ValueError."""
    return _size(text, least=1)


def _size(text: str, least: int) -> int:
    size = int(text)
    if size < least:
        raise ValueError(text)
    return size


def _hush(ctx: click.Context, _: click.Parameter, value: bool) -> bool:
    ctx.meta["fusion_cli.quiet"] = value
    return value


def is_quiet(ctx: click.Context) -> bool:
    """Whether --quiet was given to the command."""
    return bool(ctx.meta.get("fusion_cli.quiet"))


def quiet_option(help: str = "Show no progress.") -> Callable[[F], F]:
    """No progress on stderr."""
    return click.option("-q", "--quiet", is_flag=True, expose_value=False, callback=_hush, help=help)


debug_option = click.option(
    "--debug", is_flag=True, callback=_remember, help="Show tracebacks and logs; debug info in kernels."
)

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON to stdout.")
"""Machine-readable output and nothing else on stdout."""

model_options = option_group(
    click.option(
        "--shape",
        "shapes",
        multiple=True,
        callback=named("INPUT=1,2,3", _parse_shape),
        metavar="INPUT=1,2,3",
        help="Shape of an input.",
    ),
    click.option(
        "--dim",
        "dims",
        multiple=True,
        callback=named("NAME=8 or NAME=1:4096", _parse_range),
        metavar="NAME=N or NAME=LOW:HIGH",
        help="Size of a symbolic dimension, or its range.",
    ),
    click.option("--inputs", type=click.Path(path_type=Path), metavar="FILE.npz", help="Arrays to run with."),
)
"""What a model's inputs are."""


budget_options = option_group(
    click.option(
        "--timeout",
        type=click.FloatRange(min=0, min_open=True),
        metavar="SECONDS",
        help="For a stage, a run of a model or of compilers.",
    ),
    click.option(
        "--max-memory",
        type=click.FloatRange(min=0, min_open=True),
        metavar="GIB",
        help="For a process of ONNX Runtime or of a compiler.",
    ),
)
"""What is given up as too much."""


def stdout() -> Console:
    """The console of results. Not a terminal: as wide as the text needs, up to 160 columns."""
    from rich.console import Console

    return Console(soft_wrap=False) if sys.stdout.isatty() else Console(width=160)


def echo_json(value: object) -> None:
    """Print a value made of plain JSON types."""
    click.echo(json.dumps(value, indent=2, allow_nan=False))
