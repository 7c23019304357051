"""One model and its bundle in the place of another, so that at any moment one of the two is there whole.

The rename of the model is the switch. What the new one needs arrives before, under names that nothing else has: weights
in files named by their content, the bundle under a name that tells which model it is for, by which
`fusion_cli.runtime` finds it too. Afterwards the bundle takes the name that people know it by. Whatever a run that is
killed leaves undone or behind is for `settle` at the start of the next. So it is where the power fails: what the new
model needs is on the disk before the switch, and the switch before the old one goes.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from glob import escape
from pathlib import Path

from fusion_cli.errors import FusionError
from fusion_cli.files import file_sha256, flush, flush_names
from fusion_cli.load import data_locations
from fusion_cli.runtime.bundle import bundle_of
from fusion_cli.runtime.manifest import switching
from fusion_cli.save.ownership import owned


def data_name(output: str, sha256: str) -> str:
    """The name of a file with weights of the model `output`."""
    return f"{output}-{sha256[:16]}.data"


def switch(model: Path, bundle: Path, data: Sequence[Path], output: Path) -> None:
    """Move a model to `output`, and what it needs to where it looks for it. Raises OSError or FusionError where it
    cannot, and then nothing has changed."""
    moved: list[tuple[Path, Path]] = []

    def move(path: Path, place: Path) -> None:
        os.rename(path, place)
        moved.append((path, place))

    flush([bundle, *data, model])
    try:
        move(bundle, switching(bundle_of(output), file_sha256(model)))
        for path in data:
            place = output.with_name(path.name)
            if not os.path.lexists(place):
                move(path, place)
            elif file_sha256(place) != file_sha256(path):
                hint = "move it away: weights of the output need this name"
                raise FusionError("is not what its name says", where=str(place), hint=hint)
        flush_names(output.parent)
        os.replace(model, output)
    except BaseException:
        if model.exists():
            for path, place in reversed(moved):
                os.rename(place, path)
        raise
    flush_names(output.parent)


def settle(output: Path, original: Path, trash: Path) -> None:
    """Give the bundle that came for the model at `output` its name, and remove those that came for others or that it
    replaces, with weights that only they name and that the model `original` is not read from. The folder `trash` is
    there already: a disk that is full has no room for one.

    Raises FusionError where one of them holds what this tool has not written.
    """
    bundle = bundle_of(output)
    arrived = sorted(bundle.parent.glob(f".{escape(bundle.name)}-" + "[0-9a-f]" * 16))
    if not arrived:
        return
    current = switching(bundle, file_sha256(output)) if output.is_file() else bundle
    kept = current if current in arrived else bundle
    gone = [p for p in (*arrived, bundle) if p != kept and os.path.lexists(p)]
    needed = set(owned(kept, output.name).data) if kept.is_dir() else set()
    obsolete = {name for p in gone for name in owned(p, output.name).data} - needed
    if obsolete:
        read = {(original.parent / location).resolve() for location in data_locations(original)}
        own = re.compile(re.escape(f"{output.name}-") + r"[0-9a-f]{16}\.data")
        for path in (output.with_name(name) for name in obsolete if own.fullmatch(name)):
            if path.resolve() not in read:
                path.unlink(missing_ok=True)
    for path in gone:  # in one step, so that none is found in parts
        os.rename(path, trash / f"{path.name}.gone")
        shutil.rmtree(trash / f"{path.name}.gone", ignore_errors=True)
    if kept != bundle:
        os.rename(kept, bundle)
