"""Whose libraries run here. A library is a program; that it hashes to what a manifest says shows only that the two fit.
So a manifest has a seal: an HMAC-SHA256 of what it says, with a key that this user alone can read."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path

from fusion_cli.errors import FusionError

_BYTES = 32


def configuration() -> Path:
    """`fusion-cli` in the user's configuration folder."""
    base = os.environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / "fusion-cli"


def key_path() -> Path:
    """`key` there."""
    return configuration() / "key"


def seal(statement: bytes) -> str:
    """The seal of a statement; the user's key is made where there is none. Raises OSError or FusionError where there
    can be none, or others know it."""
    from fusion_cli.folders import collect, locked  # what only opens models needs no folders

    path = key_path()
    if os.path.lexists(path):
        with locked(path.parent):
            collect(path)
    else:
        _make(path)
    return _seal(statement, path)


def is_sealed(statement: bytes, by: str) -> bool:
    """Whether the seal is this user's, and of this statement. Raises FusionError where others know the key."""
    try:
        return hmac.compare_digest(_seal(statement, key_path()).encode(), by.encode())
    except OSError:  # no key, so nothing was sealed with it
        return False


def _seal(statement: bytes, path: Path) -> str:
    return hmac.new(_read(path), statement, hashlib.sha256).hexdigest()


def _read(path: Path) -> bytes:
    with os.fdopen(os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0)), "rb") as file:
        found, key = os.fstat(file.fileno()), file.read()
    if reason := _known_to_others(path, found):
        hint = "remove it, and build again or trust again what it has sealed"
        raise FusionError(f"{reason} the key that tells which libraries are yours", where=str(path), hint=hint)
    if len(key) != _BYTES:
        raise FusionError(f"is no key of {_BYTES} bytes", where=str(path), hint="remove it")
    return key


def _known_to_others(path: Path, found: os.stat_result) -> str:
    """Why the key may not be this user's alone, "" if it is. Where files have neither an owner nor a mode that Python
    tells, as on Windows, a user's own is what lies in the profile folder, links followed: its access list is the
    user's, the system's and the administrators', and what is made in it inherits that."""
    if hasattr(os, "geteuid"):
        is_own = found.st_uid == os.geteuid() and not stat.S_IMODE(found.st_mode) & 0o077
        return "" if is_own else "others can read"
    profile = Path.home().resolve()
    return "" if profile in path.resolve().parents else f"nothing outside {profile} says here who can read"


def _make(path: Path) -> None:
    """Put a new key at `path`, whole, unless another run is first."""
    from fusion_cli.folders import scratch

    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with scratch(path) as folder:  # which others cannot read
        made = folder / path.name
        with os.fdopen(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(secrets.token_bytes(_BYTES))
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            os.link(made, path)
