"""Pages that keep what earlier runs have found on the same device."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

from fusion_cli.structuring import structured

Row = Mapping[str, Any]


class Found(Protocol):
    """What a run has found on a device, as a dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def device(self) -> str: ...


_Found = TypeVar("_Found", bound=Found)


def keep(
    name: str, device: str, rows: Iterable[Row], keys: Sequence[str], folder: Path, page: Callable[[list[Row]], str]
) -> Path:
    """Write `NAME-DEVICE.md`, the `page` of all rows, and `.json` into `folder`: these rows, and those that are there
    already whose `keys` are others; returns the path of the page."""
    path = folder / f"{name}-{slug(device)}.md"
    record = path.with_suffix(".json")
    earlier = json.loads(record.read_text()) if record.is_file() else []
    by_keys = {tuple(row[key] for key in keys): row for row in (*earlier, *rows)}
    everything = list(by_keys.values())
    folder.mkdir(parents=True, exist_ok=True)
    record.write_text(json.dumps(everything, indent=1) + "\n")
    path.write_text(page(everything))
    return path


def keep_found(
    name: str, found: _Found, keys: Sequence[str], folder: Path, page: Callable[[list[_Found]], str]
) -> Path:
    """The same of a dataclass, in whose fields the `keys` are; the `page` is of all such."""
    return keep(
        name, found.device, [asdict(found)], keys, folder, lambda rows: page([structured(type(found), r) for r in rows])
    )


def slug(device: str) -> str:
    """A device's name as part of a file's."""
    return re.sub("[^a-z0-9]+", "-", device.lower()).strip("-")
