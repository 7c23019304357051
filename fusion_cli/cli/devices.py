"""`fusion-cli devices`: the hardware profiles the cost model predicts with."""

from __future__ import annotations

import tomllib
from pathlib import Path

import click
from rich.markup import escape
from rich.table import Table

from fusion_cli.calibrate import calibrate as measure
from fusion_cli.cli.common import debug_option, echo_json, json_option, quiet_option, stdout
from fusion_cli.cli.follow import progress
from fusion_cli.devices.known import add_profile, base_for, known_profiles, user_folder
from fusion_cli.devices.profile import read_profile
from fusion_cli.errors import FusionError, did_you_mean
from fusion_cli.page import roofline
from fusion_cli.report.readable import printable
from fusion_cli.targets import NAMES, device_of, resolve_targets


@click.group()
def devices() -> None:
    """List, show, measure and add hardware profiles."""


@devices.command("list")
@json_option
@debug_option
def list_devices(as_json: bool, debug: bool) -> None:
    """Every profile: its name, whose it is, whether it was measured, and what it describes."""
    found = {name: (path, tomllib.loads(path.read_text("utf-8"))) for name, path in known_profiles().items()}
    if as_json:
        echo_json([{**data, "name": name, "is_own": _is_own(path)} for name, (path, data) in found.items()])
        return
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for column in ("device", "", "description"):
        table.add_column(column)
    for name, (path, data) in found.items():
        notes = ["your own"] * _is_own(path) + ["not measured"] * (not data.get("measured", True))
        table.add_row(escape(name), ", ".join(notes), escape(printable(str(data.get("description", "")))))
    stdout().print(table)


@devices.command("show")
@click.argument("name")
@click.option("--plot", type=click.Path(path_type=Path), metavar="FILE.svg", help="Draw its roofline there instead.")
@debug_option
def show_device(name: str, plot: Path | None, debug: bool) -> None:
    """The numbers of the profile NAME, with their units."""
    path = _find(name)
    if plot is None:
        click.echo(path.read_text("utf-8").rstrip())
        return
    if plot.exists() and b"<svg" not in plot.read_bytes()[:200]:
        raise FusionError("is there and no SVG", where=str(plot), hint="give another place with --plot")
    plot.write_text(roofline(read_profile(path)), encoding="utf-8")
    click.echo(f"{plot}: written")


@devices.command("add")
@click.argument("profile", metavar="FILE|NAME")
@debug_option
def add_device(profile: str, debug: bool) -> None:
    """Predict with the profile in FILE, or with the one of NAME, for all targets of its architecture."""
    path = Path(profile) if Path(profile).is_file() else _find(profile)
    click.echo(f"{add_profile(path.read_text('utf-8'), path.stem)}: from now on predictions are made with it")


@devices.command("remove")
@click.argument("name")
@debug_option
def remove_device(name: str, debug: bool) -> None:
    """Predict with your own profile NAME no more."""
    path = _find(name)
    if not _is_own(path):
        raise FusionError(f"'{name}' comes with fusion-cli", hint="only your own can be removed")
    path.unlink()
    click.echo(f"{path}: removed")


@devices.command("calibrate")
@click.option("--target", default="auto", show_default=True, metavar="|".join(NAMES), help="What device to measure.")
@click.option("--name", help="What to call the profile.  [default: my-TARGET]")
@quiet_option()
@debug_option
def calibrate(target: str, name: str | None, debug: bool) -> None:
    """Measure this machine's GPU, or CPU, in ONNX Runtime, and predict with that from now on.

    It takes a minute or two, in which nothing else should run.
    """
    found = resolve_targets([target])[0]
    if found.kind == "portable":
        raise FusionError("there is no device to measure", hint="give --target cpu, or a CUDA target")
    own = name or f"my-{found.name}"
    with progress(f"measuring {found.name}") as listener:
        text = measure(base_for(found), own, device_of(found)[0], listener)
    click.echo(f"{add_profile(text, own)}: from now on predictions are made with it")


def _find(name: str) -> Path:
    found = known_profiles()
    if name not in found:
        hint = did_you_mean(name, found) or f"there are {', '.join(found)}"
        raise FusionError(f"no device profile '{name}'", hint=hint)
    return found[name]


def _is_own(path: Path) -> bool:
    return path.parent == user_folder()
