"""A lock as a file: JSON, sorted, so that a change of it reads as what changed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from fusion_cli.errors import FusionError, first_line
from fusion_cli.lock import FORMAT, Lock
from fusion_cli.report import plain
from fusion_cli.report.asked import Asked
from fusion_cli.structuring import structured
from fusion_cli.types import Options

_HINT = "write it anew with optimize --lock"


def write_lock(lock: Lock, path: Path) -> None:
    """Write a lock. Raises OSError."""
    path.write_text(json.dumps(plain(lock), indent=2, sort_keys=True, allow_nan=False) + "\n", encoding="utf-8")


def read_lock(path: Path) -> Lock:
    """The lock in a file. Raises FusionError if it is none that this version can read."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise FusionError(f"cannot be read as a lock: {first_line(error)}", where=str(path), hint=_HINT) from error
    if not isinstance(content, dict) or content.get("lock") != FORMAT:
        raise FusionError("no lock of this version's format", where=str(path), hint=_HINT)
    try:
        lock: Lock = structured(Lock, content)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FusionError(f"the lock is damaged: {error!r}", where=str(path), hint=_HINT) from error
    return lock


def apply_options(asked: Asked, options: Options) -> Options:
    """The options with what a lock asks for."""
    return replace(
        options,
        **{name: getattr(asked, name) for name in _SAME},
        rule_paths=tuple(map(Path, asked.rule_paths)),
        inputs=None if asked.inputs is None else Path(asked.inputs),
    )


_SAME = ("targets", "rules", "opt_level", "shapes", "dims", "fixed_dims", "assume_constant", "algebra", "force")
