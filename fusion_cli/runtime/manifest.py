"""The manifest of a bundle: which kernel libraries belong to a model, what they must hash to, and which files were
written with them.

{"version": 2, "model": "fused.onnx", "model_sha256": "...", "data": ["fused.onnx-5b0c83f1d2e4a697.data"],
 "functions": {"LayerNormLinear_3fa9c1d2": "..."},
 "libraries": [{"target": "sm_90a", "kind": "cuda", "arch": "sm_90a", "platform": "linux-x86_64",
                "path": "lib/sm_90a.so", "sha256": "...", "ops": ["LayerNormLinear_3fa9c1d2"]}],
 "files": ["lib/sm_90a.so", "report.json", ...], "ops": [...], "seal": "..."}
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from fusion_cli.errors import FusionError, ModelError
from fusion_cli.files import file_sha256
from fusion_cli.runtime.head import read_head
from fusion_cli.runtime.provider import this_platform
from fusion_cli.runtime.seal import is_sealed, seal

if TYPE_CHECKING:  # where models only run, there is no compiler that has these
    from fusion_cli.types import Library, Target

FILENAME = "manifest.json"
_VERSION = 2


@dataclass(frozen=True)
class LibraryEntry:
    """A library of a bundle; `path` is absolute and lies inside the bundle."""

    target: str
    kind: str
    arch: str
    platform: str
    """What it was built to run on, such as "linux-x86_64"."""
    path: Path
    sha256: str
    ops: tuple[str, ...]


@dataclass(frozen=True)
class Manifest:
    """What a bundle holds, and for which model."""

    model: str
    """The name of the model's file, when it was written."""
    model_sha256: str
    functions: Mapping[str, str]
    """The functions that there are kernels for, and the SHA-256 of what each computes."""
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
    entries: list[dict[str, Any]] = [
        {
            "target": target.name,
            "kind": target.kind,
            "arch": target.arch,
            "platform": target.platform or this_platform(),
            "path": library.path.resolve().relative_to(bundle.resolve()).as_posix(),
            "sha256": file_sha256(library.path),
            "ops": list(library.ops),
        }
        for target, library in libraries
    ]
    path = bundle / FILENAME
    functions = read_head(model).functions
    content = {
        "version": _VERSION,
        "model": model.name,
        "model_sha256": file_sha256(model),
        "data": list(data),
        "functions": {op: functions[op] for op in sorted({o for e in entries for o in e["ops"]} & set(functions))},
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
            message = f"bundle version {content['version']!r} is not {_VERSION}"
            raise ModelError(message, where=str(path), hint="optimize the model again")
        libraries = tuple(_entry(bundle, e) for e in content["libraries"])
        data, files = tuple(map(str, content["data"])), frozenset(map(str, content["files"]))
        functions = {str(name): str(digest) for name, digest in content["functions"].items()}
        model, digest = str(content["model"]), str(content["model_sha256"])
        sealed = str(content.get("seal", ""))
        return Manifest(model, digest, functions, data, files, libraries, _statement(content), sealed)
    except FileNotFoundError as e:
        raise ModelError("the bundle has no manifest", where=str(path), hint="optimize the model again") from e
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as e:
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
        str(entry["platform"]),
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
