"""An output is put together in a folder of its own, and then takes the place of the one before."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from fusion_cli.errors import FusionError
from fusion_cli.folders import collect, locked, working_folder
from fusion_cli.runtime.bundle import bundle_of
from fusion_cli.save.ownership import check_output
from fusion_cli.save.switch import settle, switch

_FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True)
class Staging:
    """Where the output is put together; the same names as at its destination."""

    folder: Path
    output: Path
    original: Path
    """What the output is made from."""
    overwrite: bool = False
    """Whether an earlier output may be replaced that was changed since."""
    in_place: bool = False
    """Whether the output may take the place of what it is made from."""

    @property
    def model(self) -> Path:
        return self.folder / self.output.name

    @property
    def bundle(self) -> Path:
        return bundle_of(self.model)

    @property
    def data(self) -> list[Path]:
        """The files that weights of the model are in."""
        return sorted(p for p in self.folder.iterdir() if p.is_file() and p != self.model)


@contextmanager
def staging(output: Path, original: Path, overwrite: bool = False, in_place: bool = False) -> Iterator[Staging]:
    """A folder to put the output together in, removed at the end whatever happens. What killed runs have left is
    collected before.

    Raises FusionError if something stands where the output is to go that must not be replaced (see `check_output`), and
    where there is no room for it.
    """
    if not output.parent.is_dir():
        raise FusionError("no such folder", where=str(output.parent), hint="create it, or give another output path")
    with ExitStack() as stack:
        with locked(output.parent):
            collect(output)
            folder = stack.enter_context(working_folder(output))
            settle(output, original, folder)
            check_output(output, original, overwrite, in_place)
        stage = Staging(folder, output, original, overwrite, in_place)
        try:
            stage.bundle.mkdir()
            yield stage
        except OSError as e:
            if e.errno not in _FULL:
                raise
            hint = "make room, or give an output path elsewhere"
            raise FusionError(f"cannot be written: {e.strerror}", where=str(output), hint=hint) from e


def commit(stage: Staging) -> None:
    """Put what was staged in the place of what was there. Killed at any moment it leaves the one or the other whole;
    where it raises before the model is replaced, what was there is unchanged."""
    with locked(stage.output.parent):
        check_output(stage.output, stage.original, stage.overwrite, stage.in_place)
        switch(stage.model, stage.bundle, stage.data, stage.output)
        settle(stage.output, stage.original, stage.folder)
