"""Names for build products by what they are made from, so that equal kernels are compiled once."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable
from pathlib import Path

_TOKEN = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|//[^\n]*|/\*.*?\*/', re.DOTALL)
_INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


def default_cache_dir() -> Path:
    """FUSION_CLI_CACHE, or fusion-cli in the user's cache folder."""
    own = os.environ.get("FUSION_CLI_CACHE")
    if own:
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "fusion-cli"


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
