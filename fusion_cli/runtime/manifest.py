"""The manifest of a bundle: which kernel libraries belong to a model, and what they must hash to.

{"version": 1, "model_sha256": "...", "ops": [...],
 "libraries": [{"target": "sm_90a", "kind": "cuda", "arch": "sm_90a", "path": "lib/libsm_90a-0f3c.so",
                "sha256": "...", "ops": ["LayerNormLinear_3fa9c1d2"]}]}
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from fusion_cli.errors import ModelError
from fusion_cli.types import Library, Target

METADATA_KEY = "fusion.bundle"
"""The key of the model's metadata that holds the bundle's folder, relative to the model's."""

FILENAME = "manifest.json"
_VERSION = 1


@dataclass(frozen=True)
class LibraryEntry:
    """A library of a bundle; `path` is absolute and lies inside the bundle."""

    target: str
    kind: str
    arch: str
    path: Path
    sha256: str
    ops: tuple[str, ...]


@dataclass(frozen=True)
class Manifest:
    """What a bundle holds."""

    model_sha256: str
    libraries: tuple[LibraryEntry, ...]


def write_manifest(
    bundle: Path,
    *,
    model_sha256: str,
    libraries: Sequence[tuple[Target, Library]],
    ops: Sequence[Mapping[str, Any]] = (),
) -> Path:
    """Write `manifest.json` into the folder `bundle`, which holds the libraries; returns its path.

    `ops` describes the operators for people and tools (name, rule, nodes, ...) and must be plain JSON.
    """
    entries = [
        {
            "target": target.name,
            "kind": target.kind,
            "arch": target.arch,
            "path": library.path.resolve().relative_to(bundle.resolve()).as_posix(),
            "sha256": file_sha256(library.path),
            "ops": list(library.ops),
        }
        for target, library in libraries
    ]
    content = {"version": _VERSION, "model_sha256": model_sha256, "libraries": entries, "ops": [dict(o) for o in ops]}
    path = bundle / FILENAME
    path.write_text(json.dumps(content, indent=1) + "\n")
    return path


def read_manifest(bundle: Path) -> Manifest:
    """The manifest in the folder `bundle`. Raises ModelError if it is missing, damaged, or names files elsewhere."""
    path = bundle / FILENAME
    try:
        content = json.loads(path.read_text())
        if content["version"] != _VERSION:
            raise ModelError(f"bundle version {content['version']!r} is not {_VERSION}", where=str(path))
        libraries = tuple(_entry(bundle, e) for e in content["libraries"])
        return Manifest(str(content["model_sha256"]), libraries)
    except FileNotFoundError as e:
        raise ModelError("the bundle has no manifest", where=str(path), hint="optimize the model again") from e
    except (OSError, ValueError, KeyError, TypeError) as e:
        raise ModelError(f"the bundle's manifest is damaged: {e!r}", where=str(path)) from e


def _entry(bundle: Path, entry: Mapping[str, Any]) -> LibraryEntry:
    return LibraryEntry(
        str(entry["target"]),
        str(entry["kind"]),
        str(entry["arch"]),
        inside(bundle, str(entry["path"])),
        str(entry["sha256"]),
        tuple(map(str, entry["ops"])),
    )


def inside(folder: Path, relative: str) -> Path:
    """The path `relative` below `folder`, followed through links. Raises ModelError if that leads elsewhere."""
    pure = PurePosixPath(relative)
    root = folder.resolve()
    path = (root / relative).resolve()
    if not relative or pure.is_absolute() or ".." in pure.parts or "\\" in relative or root not in path.parents:
        raise ModelError(f"{relative!r} leads out of its folder", where=str(folder))
    return path


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
