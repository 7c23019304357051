"""Files by their content, and copies that appear whole."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from pathlib import Path


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def copy_whole(source: Path, path: Path) -> None:
    """Copy a file so that it appears at `path` whole or not at all. Raises OSError, which names the path that could not
    be written."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    os.close(descriptor)
    try:
        shutil.copyfile(source, name)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException as e:
        Path(name).unlink(missing_ok=True)
        if isinstance(e, OSError):
            e.filename = str(path)
        raise
