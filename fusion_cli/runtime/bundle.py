"""The bundle of a model, and which of its libraries runs here: one that is this user's, for functions that the model
has as they were, for the providers of the session and this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from glob import escape
from pathlib import Path
from typing import Any

from fusion_cli.errors import ModelError
from fusion_cli.files import file_sha256
from fusion_cli.runtime.head import Head, read_head
from fusion_cli.runtime.manifest import LibraryEntry, Manifest, inside, read_manifest, reseal, switching
from fusion_cli.runtime.provider import compute_capability, fit, this_platform

# The second, part of every ONNX Runtime wheel, runs only operators that call a remote service.
_ON_CPU = {"CPUExecutionProvider", "AzureExecutionProvider"}

Provider = str | tuple[str, Mapping[str, Any]]


def bundle_of(model: Path) -> Path:
    """The folder that goes with a model: `fused.fusion` beside `fused.onnx`."""
    return model.with_name(f"{model.stem}.fusion")


def find_library(
    model: Path, providers: Sequence[Provider], available: Sequence[str], trust: bool = False
) -> LibraryEntry | None:
    """The library to register for these providers, of which ONNX Runtime has those `available`; None for a model
    without a bundle, or without a library that fits.

    Raises ModelError if the bundle is missing or damaged, if functions of the model that kernels are for were changed,
    or, unless asked to `trust` it, if the bundle was not sealed by this user: when it was built here, or by
    `trust_model`.
    """
    return find(model, read_head(model), providers, available, trust=trust)


def find(
    model: Path | bytes,
    head: Head,
    providers: Sequence[Provider],
    available: Sequence[str],
    *,
    trust: bool,
    folder: Path | None = None,
) -> LibraryEntry | None:
    """As `find_library`, of a model whose head was read, with its bundle in `folder` where that is given."""
    bundle = folder or _bundle(model, head)
    if bundle is None:
        return None
    manifest = read_manifest(bundle)
    library = _choose(manifest, _kind(providers, available), _device(providers))
    if library is None:
        return None
    if not trust and not manifest.is_own:
        hint = "if you know where they come from, trust them: `fusion-cli trust MODEL` once, or --trust, or trust=True"
        raise ModelError(
            "its libraries were not built here by this user, or were changed", where=str(bundle), hint=hint
        )
    _check(model, head, manifest, [library])
    return library


def trust_model(model: Path) -> tuple[LibraryEntry, ...]:
    """Have the libraries of a model run for this user as if they were built here; returns them. Raises ModelError if
    the model has none, or one of them is not that of the manifest."""
    head = read_head(model)
    bundle = _bundle(model, head)
    if bundle is None:
        raise ModelError("was not optimized by fusion-cli, and has no libraries", where=str(model))
    manifest = read_manifest(bundle)
    _check(model, head, manifest, manifest.libraries)
    reseal(bundle)
    return manifest.libraries


def _bundle(model: Path | bytes, head: Head) -> Path | None:
    """The bundle beside a model: the one of its name, else the one that it names, from before it was renamed. A tool
    that has written the model again may have left that name out, and what was written as it was may name anything."""
    if isinstance(model, bytes) or (head.bundle is None and not head.functions):
        return None
    beside = inside(model.parent, bundle_of(model).name)
    if any(beside.parent.glob(f".{escape(beside.name)}-*")):  # only then is it worth to read all of the model
        interrupted = switching(beside, file_sha256(model))
        if interrupted.is_dir():
            return interrupted
    if beside.is_dir():
        return beside
    return None if head.bundle is None else inside(model.parent, head.bundle)


def _kind(providers: Sequence[Provider], available: Sequence[str]) -> str:
    """The kind of kernels a session can use: with a GPU in it, CPU kernels would only cause copies."""
    names = [p if isinstance(p, str) else p[0] for p in providers]
    usable = [n for n in names if n in available]
    if "CUDAExecutionProvider" in usable:
        return "cuda"
    return "cpu" if set(usable) <= _ON_CPU else ""


def _device(providers: Sequence[Provider]) -> int:
    for provider in providers:
        if not isinstance(provider, str) and provider[0] == "CUDAExecutionProvider":
            return int(provider[1].get("device_id", 0))
    return 0


def _choose(manifest: Manifest, kind: str, device: int) -> LibraryEntry | None:
    """The library to register, if any: one operator set serves one provider."""
    here = this_platform()
    libraries = [e for e in manifest.libraries if e.kind == kind and e.platform == here]
    if kind != "cuda" or not libraries:
        return libraries[0] if libraries else None
    capability = compute_capability(device)
    if capability is None:
        return None
    best = max(libraries, key=lambda e: fit(e.arch, capability))
    return best if fit(best.arch, capability) else None


def _check(model: Path | bytes, head: Head, manifest: Manifest, libraries: Sequence[LibraryEntry]) -> None:
    """Raises ModelError unless the libraries are those of the manifest, and their kernels compute what the functions
    of the model do: these are as they were when it was written."""
    where = "the model in memory" if isinstance(model, bytes) else str(model)
    for library in libraries:
        if not library.path.is_file():
            raise ModelError("the bundle lacks a library", where=str(library.path))
        if file_sha256(library.path) != library.sha256:
            raise ModelError("the library is not the one that was built", where=str(library.path))
        left = [op for op in library.ops if op in head.functions]
        changed = next((op for op in left if head.functions[op] != manifest.functions.get(op)), None)
        if changed is not None:
            message = f"its function '{changed}' was changed after it was optimized"
            raise ModelError(message, where=where, hint="optimize it again")
        if library.ops and not left:
            message = f"has no function that {library.path.name} has a kernel for: a tool that wrote it took them out"
            raise ModelError(message, where=where, hint="optimize last")
