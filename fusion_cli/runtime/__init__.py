"""Running an optimized model: a session with the kernel libraries that fit its providers and this machine."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import onnx

from fusion_cli.errors import FusionError, ModelError
from fusion_cli.files import file_sha256
from fusion_cli.runtime.manifest import (
    METADATA_KEY,
    LibraryEntry,
    Manifest,
    inside,
    read_manifest,
    reseal,
    switching,
    write_manifest,
)
from fusion_cli.runtime.provider import compute_capability, fit

if TYPE_CHECKING:
    import onnxruntime as ort

__all__ = ["METADATA_KEY", "find_library", "read_manifest", "session", "trust_model", "write_manifest"]

# The second, part of every ONNX Runtime wheel, runs only operators that call a remote service.
_ON_CPU = {"CPUExecutionProvider", "AzureExecutionProvider"}

# The hash of the library that session options hold; ONNX Runtime itself does not tell.
_registered: WeakKeyDictionary[ort.SessionOptions, str] = WeakKeyDictionary()

Provider = str | tuple[str, Mapping[str, Any]]


def session(
    path: str | Path,
    providers: Sequence[Provider] | None = None,
    sess_options: ort.SessionOptions | None = None,
    trust: bool = False,
) -> ort.InferenceSession:
    """An InferenceSession of a model, with its fused kernels where they fit.

    `providers` are ONNX Runtime's (default: all that are available). A model without a bundle, or whose bundle is
    missing, damaged, not this user's (see `find_library`) or does not fit, runs on ONNX Runtime's own kernels; the
    reason is a warning. Raises ModelError if the model itself cannot be read, or `sess_options` was used for another
    optimized model.
    """
    import onnxruntime as ort  # optimizing, unlike running, needs no ONNX Runtime

    model = Path(path)
    available = ort.get_available_providers()
    chosen = list(providers) if providers is not None else available
    options = sess_options or ort.SessionOptions()
    name, library = _bundle_name(model), None
    try:
        library = None if name is None else _find(model, name, chosen, available, trust)
    except FusionError as e:
        warnings.warn(f"{e}; the model runs without its fused kernels", stacklevel=2)
    if library is not None:
        _register(options, library)
    return ort.InferenceSession(str(model), options, providers=chosen)


def _register(options: ort.SessionOptions, library: LibraryEntry) -> None:
    """Add a library to session options, which take the operators of one model only."""
    present = _registered.get(options)
    if present == library.sha256:
        return
    if present is not None:
        raise ModelError(
            "these SessionOptions already hold the kernels of another model",
            hint="use new SessionOptions for each model",
        )
    try:
        options.register_custom_ops_library(str(library.path))
        _registered[options] = library.sha256
    except Exception as e:  # ONNX Runtime raises its own, undocumented types
        warnings.warn(f"{library.path.name} cannot be loaded: {e}", stacklevel=3)


def find_library(
    model: Path, providers: Sequence[Provider], available: Sequence[str], trust: bool = False
) -> LibraryEntry | None:
    """The library to register for these providers, of which ONNX Runtime has those `available`; None for a model
    without a bundle, or without a library that fits.

    Raises ModelError if the bundle is missing or damaged or, unless asked to `trust` it, was not sealed by this user:
    when it was built here, or by `trust_model`.
    """
    name = _bundle_name(model)
    return None if name is None else _find(model, name, providers, available, trust)


def _find(
    model: Path, name: str, providers: Sequence[Provider], available: Sequence[str], trust: bool
) -> LibraryEntry | None:
    bundle, digest = _bundle(model, name)
    manifest = read_manifest(bundle)
    library = _choose(manifest, _kind(providers, available), _device(providers))
    if library is None:
        return None
    if not trust and not manifest.is_own:
        hint = "if you know where they come from, trust them: `fusion-cli trust MODEL` once, or --trust, or trust=True"
        raise ModelError(
            "its libraries were not built here by this user, or were changed", where=str(bundle), hint=hint
        )
    _check(model, digest, manifest, [library])
    return library


def trust_model(model: Path) -> tuple[LibraryEntry, ...]:
    """Have the libraries of a model run for this user as if they were built here; returns them. Raises ModelError if
    the model has none, or one of them is not that of the manifest."""
    name = _bundle_name(model)
    if name is None:
        raise ModelError("was not optimized by fusion-cli, and has no libraries", where=str(model))
    bundle, digest = _bundle(model, name)
    manifest = read_manifest(bundle)
    _check(model, digest, manifest, manifest.libraries)
    reseal(bundle)
    return manifest.libraries


def _bundle(model: Path, name: str) -> tuple[Path, str]:
    """The bundle of this name beside a model, and the model's hash."""
    bundle, digest = inside(model.parent, name), file_sha256(model)
    interrupted = switching(bundle, digest)
    return interrupted if interrupted.is_dir() else bundle, digest


def _bundle_name(model: Path) -> str | None:
    try:
        proto = onnx.load(str(model), load_external_data=False)
    except FileNotFoundError as e:
        raise ModelError("there is no such file", where=str(model)) from e
    except Exception as e:  # protobuf's DecodeError has no stable home
        raise ModelError("this is not an ONNX model", where=str(model)) from e
    return next((p.value for p in proto.metadata_props if p.key == METADATA_KEY), None)


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
    libraries = [e for e in manifest.libraries if e.kind == kind]
    if kind != "cuda" or not libraries:
        return libraries[0] if libraries else None
    capability = compute_capability(device)
    if capability is None:
        return None
    best = max(libraries, key=lambda e: fit(e.arch, capability))
    return best if fit(best.arch, capability) else None


def _check(model: Path, digest: str, manifest: Manifest, libraries: Sequence[LibraryEntry]) -> None:
    """Raises ModelError unless model and libraries are the ones the manifest was written for."""
    for library in libraries:
        if not library.path.is_file():
            raise ModelError("the bundle lacks a library", where=str(library.path))
        if file_sha256(library.path) != library.sha256:
            raise ModelError("the library is not the one that was built", where=str(library.path))
    if digest != manifest.model_sha256:
        raise ModelError("the model was changed after it was optimized", where=str(model), hint="optimize it again")
