"""The manifest of a bundle: which kernel libraries belong to a model, what they must hash to, and which files were
written with them.

{"version": 1, "model": "fused.onnx", "model_sha256": "...", "data": ["fused.onnx-5b0c83f1d2e4a697.data"],
 "libraries": [{"target": "sm_90a", "kind": "cuda", "arch": "sm_90a", "path": "lib/libsm_90a-0f3c.so",
                "sha256": "...", "ops": ["LayerNormLinear_3fa9c1d2"]}],
 "files": ["lib/libsm_90a-0f3c.so", "report.json", ...], "ops": [...], "seal": "..."}
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from fusion_cli.errors import FusionError, ModelError
from fusion_cli.files import file_sha256
from fusion_cli.runtime.seal import is_sealed, seal
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
    """What a bundle holds, and for which model."""

    model: str
    """The name of the model's file."""
    model_sha256: str
    data: tuple[str, ...]
    """The names of the files beside the model that its weights are in."""
    files: frozenset[str]
    """Everything in the bundle but the manifest, relative to it."""
    libraries: tuple[LibraryEntry, ...]
    statement: bytes
    """All that it says, but for its seal."""
    seal: str

    @property
    def is_own(self) -> bool:
        """Whether this user has sealed it. Raises FusionError where others know the key."""
        return is_sealed(self.statement, self.seal)


def write_manifest(
    bundle: Path,
    *,
    model: Path,
    libraries: Sequence[tuple[Target, Library]],
    data: Sequence[str] = (),
    ops: Sequence[Mapping[str, Any]] = (),
) -> Path:
    """Write `manifest.json` into the folder `bundle`, which holds all that it is to; returns its path.

    `data` are the names of the files beside `model` that its weights are in. `ops` describes the operators for people
    and tools (name, rule, nodes, ...) and must be plain JSON.
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
    path = bundle / FILENAME
    content = {
        "version": _VERSION,
        "model": model.name,
        "model_sha256": file_sha256(model),
        "data": list(data),
        "libraries": entries,
        "files": sorted(files_in(bundle) - {FILENAME}),
        "ops": [dict(o) for o in ops],
    }
    try:
        sealed = seal(_statement(content)) if entries else ""
    except (OSError, FusionError) as e:
        warnings.warn(f"the libraries are not sealed as yours, and run where they are trusted only: {e}", stacklevel=2)
        sealed = ""
    _write(path, content, sealed)
    return path


def reseal(bundle: Path) -> None:
    """Make a bundle this user's, as it is. Raises ModelError, FusionError or OSError."""
    manifest = read_manifest(bundle)
    _write(bundle / FILENAME, json.loads(manifest.statement), seal(manifest.statement))


def _write(path: Path, content: Mapping[str, Any], sealed: str) -> None:
    path.write_text(json.dumps({**content, "seal": sealed}, indent=1) + "\n")


def _statement(content: Mapping[str, Any]) -> bytes:
    return json.dumps({k: v for k, v in content.items() if k != "seal"}, sort_keys=True).encode()


def read_manifest(bundle: Path) -> Manifest:
    """The manifest in the folder `bundle`. Raises ModelError if it is missing, damaged, or names files elsewhere."""
    path = bundle / FILENAME
    try:
        content = json.loads(path.read_text())
        if content["version"] != _VERSION:
            raise ModelError(f"bundle version {content['version']!r} is not {_VERSION}", where=str(path))
        libraries = tuple(_entry(bundle, e) for e in content["libraries"])
        data, files = tuple(map(str, content["data"])), frozenset(map(str, content["files"]))
        model, digest = str(content["model"]), str(content["model_sha256"])
        return Manifest(model, digest, data, files, libraries, _statement(content), str(content.get("seal", "")))
    except FileNotFoundError as e:
        raise ModelError("the bundle has no manifest", where=str(path), hint="optimize the model again") from e
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as e:
        raise ModelError(f"the bundle's manifest is damaged: {e!r}", where=str(path)) from e


def files_in(bundle: Path) -> set[str]:
    """Everything in a folder that is no folder, and the folders in which there is nothing, relative to it."""
    below = (p for p in bundle.rglob("*") if p.is_symlink() or not p.is_dir() or not any(p.iterdir()))
    return {p.relative_to(bundle).as_posix() for p in below}


def switching(bundle: Path, model_sha256: str) -> Path:
    """Where the bundle of a model lies while the model takes the place of another, whose bundle still has its name."""
    return bundle.with_name(f".{bundle.name}-{model_sha256[:16]}")


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
