"""Files by their content, copies that appear whole, and what is to survive a loss of power."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def appearing(path: Path) -> Iterator[Path]:
    """A file to write, which then appears at `path` whole, or not at all where something is raised meanwhile. Raises
    OSError, which names the path that could not be written."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    os.close(descriptor)
    try:
        yield Path(name)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException as e:
        Path(name).unlink(missing_ok=True)
        if isinstance(e, OSError):
            e.filename = str(path)
        raise


def copy_whole(source: Path, path: Path) -> None:
    """Copy a file so that it appears at `path` whole or not at all; raises as `appearing` does."""
    with appearing(path) as new:
        shutil.copyfile(source, new)


def flush(paths: Iterable[Path]) -> None:
    """Wait until files, and folders with all that is in them, are on the disk. Raises OSError where one cannot be."""
    for path in paths:
        if path.is_dir():
            flush(path.iterdir())
            flush_names(path)
        else:
            _flush(path)


def flush_names(folder: Path) -> None:
    """Wait until the names in a folder are on the disk, where the file system knows how."""
    with suppress(OSError):
        _flush(folder)


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
