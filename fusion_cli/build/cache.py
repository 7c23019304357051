"""Build products by what they are made from, so that equal kernels are compiled once.

What a key leads to is a file in a folder of its own, named by its content: one that was damaged since is not found.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fusion_cli.errors import BuildError, FusionError
from fusion_cli.files import file_sha256

DECISIONS = "decisions"
"""The folder for what was decided by measuring."""
KINDS = ("objects", "libraries", "logs", DECISIONS)
"""The folders of the cache."""
DEFAULT_SIZE = 5 * 10**9
SPARED = 3600.0
"""Seconds for which what was used is not removed: another run may be about to link it."""
_UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9}
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
            with suppress(OSError):
                os.utime(path)  # what is used stays longest
            return path
        with suppress(OSError):  # of another user, perhaps; what is put beside it is found all the same
            path.unlink()
    return None


@dataclass(frozen=True)
class Entry:
    """A file of the cache: its size in bytes, and when it was last used, in seconds since the epoch."""

    path: Path
    nbytes: int
    used: float


def entries(cache: Path) -> list[Entry]:
    """What the cache holds, what was used last at the end."""
    found = []
    walked = (files for kind in KINDS for files in os.walk(cache / kind))  # which passes over what disappears
    for path in (Path(folder, name) for folder, _, names in walked for name in names):
        with suppress(FileNotFoundError):  # another run may clean up
            state = path.stat()
            found.append(Entry(path, state.st_size, state.st_mtime))
    return sorted(found, key=lambda e: e.used)


def shrink(cache: Path, most: int, spare: float = SPARED) -> int:
    """Remove what was not used for longest until the cache holds `most` bytes, but nothing that was used in the last
    `spare` seconds; returns the bytes that were freed."""
    held = entries(cache)
    total, freed, now = sum(e.nbytes for e in held), 0, time.time()
    for entry in held:
        if total - freed <= most or now - entry.used < spare:
            break
        with suppress(OSError):  # of another user, perhaps
            entry.path.unlink()
            freed += entry.nbytes
            entry.path.parent.rmdir()
    return freed


def size_limit() -> int:
    """How many bytes the cache may hold: FUSION_CLI_CACHE_SIZE, such as 500MB or 2GB; else DEFAULT_SIZE. Raises
    FusionError."""
    text = os.environ.get("FUSION_CLI_CACHE_SIZE")
    return DEFAULT_SIZE if not text else parse_bytes(text, "FUSION_CLI_CACHE_SIZE")


def parse_bytes(text: str, where: str) -> int:
    """A size such as 500MB, with decimal units. Raises FusionError."""
    parts = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kMG]?B?)\s*", text)
    if parts is None:
        raise FusionError(f"'{text}' is no size", where=where, hint="give one such as 500MB or 2GB")
    return int(float(parts[1]) * _UNITS[parts[2].removesuffix("B")])


def put(made: Path, folder: Path) -> Path:
    """Move a file of the cache into the folder of its key."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{file_sha256(made)}{made.suffix}"
    os.replace(made, path)
    return path
