"""Folders to work in, beside an output or in the cache. The system lets go of a lock when a process ends, however it
ends: so a run tells the folders of those that were killed from the folders of those that go on."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from glob import escape
from pathlib import Path

from fusion_cli.errors import FusionError

try:
    import fcntl
except ImportError:  # on Windows, for one
    fcntl = None  # type: ignore[assignment]

_SUFFIX = ".fusion-staging"
_PATIENCE = 60.0
"""Seconds to wait for another run that moves its output to the same folder."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """While no other run has the lock of the folder. Raises FusionError if one has it for long."""
    end = time.monotonic() + _PATIENCE
    held = None
    while held is None:
        try:
            held = _lock(folder)
        except BlockingIOError as e:
            if time.monotonic() > end:
                raise FusionError("another process has locked the folder", where=str(folder), hint="try later") from e
            time.sleep(0.05)
        except OSError:  # of a file system without locks: one run at a time is then up to the user
            break
    try:
        yield
    finally:
        if held is not None:
            os.close(held)


@contextmanager
def working_folder(output: Path) -> Iterator[Path]:
    """A new folder beside `output`, removed at the end whatever happens; made while `output`'s own folder is locked."""
    folder = Path(tempfile.mkdtemp(prefix=f".{output.name}-", suffix=_SUFFIX, dir=output.parent))
    held = None
    with suppress(OSError):  # of file systems without locks, where `collect` finds nothing
        held = _lock(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if held is not None:
            os.close(held)


def collect(output: Path) -> None:
    """Remove the working folders of runs that were killed, while `output`'s own folder is locked."""
    for folder in output.parent.glob(f".{escape(output.name)}-*{_SUFFIX}"):
        with suppress(OSError):  # its run goes on, or nobody can tell
            held = _lock(folder)
            shutil.rmtree(folder, ignore_errors=True)
            os.close(held)


@contextmanager
def scratch(output: Path) -> Iterator[Path]:
    """A working folder, once those of runs that were killed are removed."""
    with ExitStack() as stack:
        with locked(output.parent):
            collect(output)
            folder = stack.enter_context(working_folder(output))
        yield folder


def _lock(folder: Path) -> int:
    """A descriptor that holds the lock of a folder until it is closed. Raises BlockingIOError where another has it, and
    another OSError where the file system, or all of the system, knows none."""
    if fcntl is None:
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP), str(folder))
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
