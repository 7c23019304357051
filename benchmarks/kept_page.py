"""Pages that keep what earlier runs have found on the same device."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

Row = Mapping[str, Any]


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


def slug(device: str) -> str:
    """A device's name as part of a file's."""
    return re.sub("[^a-z0-9]+", "-", device.lower()).strip("-")
