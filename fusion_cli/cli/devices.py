"""`fusion-cli devices`: the hardware profiles the cost model predicts with."""

from __future__ import annotations

import tomllib
from pathlib import Path

import click
from rich.markup import escape
from rich.table import Table

from fusion_cli.cli.common import debug_option, echo_json, json_option, stdout
from fusion_cli.errors import FusionError, did_you_mean
from fusion_cli.resources import resource_dir


@click.group()
def devices() -> None:
    """List and show hardware profiles."""


@devices.command("list")
@json_option
@debug_option
def list_devices(as_json: bool, debug: bool) -> None:
    """Every profile: its name and what it describes."""
    found = _profiles()
    if as_json:
        echo_json([{"name": name, **tomllib.loads(path.read_text("utf-8"))} for name, path in found.items()])
        return
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for column in ("device", "description"):
        table.add_column(column)
    for name, path in found.items():
        table.add_row(escape(name), escape(str(tomllib.loads(path.read_text("utf-8")).get("description", ""))))
    stdout().print(table)


@devices.command("show")
@click.argument("name")
@debug_option
def show_device(name: str, debug: bool) -> None:
    """The numbers of the profile NAME, with their units."""
    found = _profiles()
    if name not in found:
        hint = did_you_mean(name, found) or f"there are {', '.join(found)}"
        raise FusionError(f"no device profile '{name}'", hint=hint)
    click.echo(found[name].read_text("utf-8").rstrip())


def _profiles() -> dict[str, Path]:
    return {path.stem: path for path in sorted(resource_dir("devices").glob("*.toml"))}
