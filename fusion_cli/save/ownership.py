"""What may be replaced: what an earlier run has written, as the manifest of its bundle says."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from fusion_cli.errors import FusionError, ModelError
from fusion_cli.files import file_sha256
from fusion_cli.runtime.bundle import bundle_of
from fusion_cli.runtime.manifest import FILENAME, Manifest, files_in, read_manifest

_ELSEWHERE = "give another output path, or move it away"
_SHOWN = 3


def check_output(output: Path, original: Path, overwrite: bool, in_place: bool) -> None:
    """Refuse an output where something stands that this tool has not written, or, but for `in_place`, that the model is
    read from; with `overwrite` what it has written may have been changed since. Raises FusionError."""
    where = str(output)
    if output.is_dir():
        raise FusionError("is a folder; the output is a file", where=where)
    if not output.name.isprintable():
        raise FusionError("the name of the output has characters that are no text", where=where, hint="give another")
    exists = os.path.lexists(output)
    if exists and not stat.S_ISREG(output.lstat().st_mode):
        raise FusionError("is not a regular file, and is not replaced", where=where, hint="give the path of a file")
    is_read = exists and original.exists() and output.samefile(original)
    if is_read and not in_place:
        hint = "--in-place replaces it; or give another output path"
        raise FusionError("is the model that is read", where=where, hint=hint)
    bundle = bundle_of(output)
    manifest = owned(bundle, output.name) if os.path.lexists(bundle) else None
    if is_read:
        return
    if exists and manifest is None and output.stat().st_size > 0:  # an empty one was made to have the name
        raise FusionError("exists, and nothing says that fusion-cli wrote it", where=where, hint=_ELSEWHERE)
    if exists and manifest is not None and not overwrite and manifest.model_sha256 != file_sha256(output):
        hint = "--overwrite replaces it all the same"
        raise FusionError("was changed after fusion-cli wrote it", where=where, hint=hint)


def owned(bundle: Path, model: str) -> Manifest:
    """The manifest of a bundle that this tool has written for a model of this name. Raises FusionError if it is not
    such, or if anything else is in it."""
    where = str(bundle)
    if bundle.is_symlink() or not bundle.is_dir():
        raise FusionError("is where the bundle goes, and no folder of fusion-cli's", where=where, hint=_ELSEWHERE)
    try:
        manifest = read_manifest(bundle)
    except ModelError as e:
        raise FusionError(
            f"is where the bundle goes, and nothing says that fusion-cli wrote it: {e.message}",
            where=where,
            hint=_ELSEWHERE,
        ) from e
    if manifest.model != model:
        hint = "outputs in one folder need names that differ before the last dot"
        raise FusionError(f"is the bundle of '{manifest.model}'", where=where, hint=hint)
    foreign = sorted(files_in(bundle) - manifest.files - {FILENAME})
    if foreign:
        listed = ", ".join(f"'{name}'" for name in foreign[:_SHOWN]) + (", ..." if len(foreign) > _SHOWN else "")
        raise FusionError(f"holds what fusion-cli did not write: {listed}", where=where, hint=_ELSEWHERE)
    return manifest
