"""Running an optimized model: a session with the kernel libraries that fit its providers and this machine. Needs
ONNX Runtime, and nothing else that is not Python's own."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from fusion_cli.errors import FusionError, ModelError
from fusion_cli.runtime.bundle import Provider, find, find_library, trust_model
from fusion_cli.runtime.head import METADATA_KEY, read_head
from fusion_cli.runtime.manifest import LibraryEntry, read_manifest, write_manifest

if TYPE_CHECKING:
    import onnxruntime as ort

__all__ = ["METADATA_KEY", "find_library", "read_manifest", "session", "trust_model", "write_manifest"]

# The hash of the library that session options hold; ONNX Runtime itself does not tell.
_registered: WeakKeyDictionary[ort.SessionOptions, str] = WeakKeyDictionary()
# Where this process has loaded libraries from, by their path and hash.
_loaded: dict[tuple[Path, str], Path] = {}
_copies: list[TemporaryDirectory[str]] = []  # which go when the process ends


def session(
    path_or_bytes: str | PathLike[str] | bytes,
    sess_options: ort.SessionOptions | None = None,
    providers: Sequence[Provider] | None = None,
    provider_options: Sequence[Mapping[str, Any]] | None = None,
    *,
    bundle: str | PathLike[str] | None = None,
    trust: bool = False,
    **options: Any,
) -> ort.InferenceSession:
    """An InferenceSession of a model, with its fused kernels where they fit; the other arguments are
    InferenceSession's.

    `bundle` is the folder of the kernels, where that is not beside the model, or the model is in memory. A model
    without a bundle, or whose bundle is missing, damaged, not this user's (see `find_library`) or does not fit, runs on
    ONNX Runtime's own kernels; the reason is a warning. Raises ModelError if the model itself cannot be read, or
    `sess_options` was used for another optimized model.
    """
    import onnxruntime as ort  # optimizing, unlike running, needs no ONNX Runtime

    available = ort.get_available_providers()
    chosen = list(providers) if providers is not None else available
    settings = sess_options or ort.SessionOptions()
    model = path_or_bytes if isinstance(path_or_bytes, bytes) else Path(path_or_bytes)
    head, library = read_head(model), None
    try:
        given = _with_options(chosen, provider_options)
        folder = None if bundle is None else Path(bundle)
        library = find(model, head, given, available, trust=trust, folder=folder)
    except FusionError as e:
        warnings.warn(f"{e}; the model runs without its fused kernels", stacklevel=2)
    if library is not None:
        _register(settings, library)
    file = model if isinstance(model, bytes) else str(model)
    return ort.InferenceSession(file, settings, chosen, provider_options, **options)


def _with_options(providers: Sequence[Provider], options: Sequence[Mapping[str, Any]] | None) -> Sequence[Provider]:
    """Providers each with its options, which may be given apart."""
    if options is None or len(options) != len(providers):  # ONNX Runtime says what is wrong with that
        return providers
    return [p if not isinstance(p, str) else (p, given) for p, given in zip(providers, options, strict=True)]


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
        options.register_custom_ops_library(str(_loadable(library)))
        _registered[options] = library.sha256
    except Exception as e:  # ONNX Runtime raises its own, undocumented types
        warnings.warn(f"{library.path.name} cannot be loaded: {e}", stacklevel=3)


def _loadable(library: LibraryEntry) -> Path:
    """Where to load a library from: its path, or a copy if this process has loaded another from there since when the
    model was optimized again. A loader that knows a path gives what it has, whatever the file is now."""
    key = library.path, library.sha256
    if key not in _loaded:
        place = library.path
        if any(path == place for path, _ in _loaded):
            _copies.append(TemporaryDirectory(prefix="fusion-cli-", ignore_cleanup_errors=True))
            place = Path(_copies[-1].name) / library.path.name
            shutil.copyfile(library.path, place)
        _loaded[key] = place
    return _loaded[key]
