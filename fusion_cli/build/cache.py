"""Build products by what they are made from, so that equal kernels are compiled once.

What a key leads to is a file in a folder of its own, named by its content: one that was damaged since is not found.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from fusion_cli.errors import BuildError
from fusion_cli.files import copy_whole, file_sha256

_TOKEN = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|//[^\n]*|/\*.*?\*/', re.DOTALL)
_INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


def default_cache_dir() -> Path:
    """FUSION_CLI_CACHE, or fusion-cli in the user's cache folder."""
    own = os.environ.get("FUSION_CLI_CACHE")
    if own:
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "fusion-cli"


def claim(cache: Path) -> None:
    """Make the cache where there is none, and see that nobody else writes to it: what is in it runs. Raises BuildError
    or OSError."""
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = cache.stat()
    if found.st_uid != os.geteuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        hint = "remove it, or give a folder of your own in FUSION_CLI_CACHE"
        raise BuildError("others can write to the cache of kernels", where=str(cache), hint=hint)


def digest(parts: Iterable[str]) -> str:
    """A name for a sequence of texts; where one ends matters."""
    state = hashlib.sha256()
    for part in parts:
        data = part.encode()
        state.update(len(data).to_bytes(8, "little"))
        state.update(data)
    return state.hexdigest()


def strip_comments(text: str) -> str:
    """C++ without comments (node names of one model must not make its kernels differ from another's)."""
    bare = _TOKEN.sub(lambda m: m.group() if m.group()[0] in "\"'" else " ", text)
    return "\n".join(line.rstrip() for line in bare.splitlines() if line.strip())


def included(text: str, root: Path) -> list[Path]:
    """The headers under `root` that a source includes, directly or not, in order of discovery."""
    found: dict[Path, None] = {}
    pending = [text]
    while pending:
        for name in _INCLUDE.findall(pending.pop()):
            path = root / name
            if path not in found and path.is_file():
                found[path] = None
                pending.append(path.read_text())
    return list(found)


def find(folder: Path) -> Path | None:
    """What the folder of a key holds, if it is what was put there; what is not is removed."""
    for path in sorted(folder.glob("[!.]*")):  # not what another run is about to put there
        if path.is_file() and file_sha256(path) == path.stem:
            return path
        with suppress(OSError):  # of another user, perhaps; what is put beside it is found all the same
            path.unlink()
    return None


def put(made: Path, folder: Path) -> Path:
    """Copy a file into the folder of its key."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{file_sha256(made)}{made.suffix}"
    copy_whole(made, path)
    return path
