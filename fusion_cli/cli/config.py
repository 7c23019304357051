"""Options from a file: the table [tool.fusion-cli] of pyproject.toml, or the whole of fusion.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click

from fusion_cli.errors import FusionError, did_you_mean


def find_config(folder: Path) -> tuple[Path, Mapping[str, Any]] | None:
    """The nearest file of the folder and those above that has options, and these. Raises FusionError for one that is no
    TOML."""
    for place in (folder, *folder.parents):
        for name, keys in (("fusion.toml", ()), ("pyproject.toml", ("tool", "fusion-cli"))):
            path = place / name
            if path.is_file() and (table := _table(path, keys)) is not None:
                return path, table
    return None


def _table(path: Path, keys: Iterable[str]) -> Mapping[str, Any] | None:
    try:
        table: Any = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise FusionError(f"cannot be read: {error}", where=str(path)) from error
    for key in keys:
        table = table.get(key) if isinstance(table, dict) else None
    return table if isinstance(table, dict) else None


def defaults_for(command: click.Command, others: Iterable[click.Command], folder: Path) -> dict[str, Any]:
    """What the file gives for the options of a command, by the names of its parameters; what is for `others` is left
    out. Raises FusionError for a name that no command has."""
    found = find_config(folder)
    if found is None:
        return {}
    path, table = found
    own, given = _options(command), dict(table)
    defaults = {own[name]: given.pop(name) for name in table if name in own}
    if given:
        known = {name for other in others for name in _options(other)}
        for name in given:
            if name not in known:
                raise FusionError(f"no option '{name}'", where=str(path), hint=did_you_mean(name, known | own.keys()))
    return defaults


def _options(command: click.Command) -> dict[str, str]:
    """The parameters by their options' long names."""
    options = (p for p in command.params if isinstance(p, click.Option) and p.name)
    return {o.removeprefix("--"): str(p.name) for p in options for o in p.opts if o.startswith("--")}
