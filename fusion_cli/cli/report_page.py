"""`fusion-cli report`: what a run found, as a page to look at."""

from __future__ import annotations

import webbrowser
from pathlib import Path

import click

from fusion_cli.cli.common import debug_option
from fusion_cli.errors import FusionError
from fusion_cli.page import page
from fusion_cli.report.located import find_report
from fusion_cli.report.read import read_report


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--html", "out", required=True, type=click.Path(path_type=Path), help="Where to write the page.")
@click.option("--open", "shows", is_flag=True, help="Show it in the browser.")
@debug_option
def report(file: Path, out: Path, shows: bool, debug: bool) -> None:
    """Draw FILE, a report.json or a model that optimize wrote, as one HTML file."""
    found = find_report(file)
    if found is None:
        hint = "give a report.json, or a model with its bundle beside it"
        raise FusionError("no run is known of it", where=str(file), hint=hint)
    if out.exists() and out.read_bytes()[:15].lower() != b"<!doctype html>":
        raise FusionError("is there and no HTML", where=str(out), hint="give another place with --html")
    out.write_text(page(read_report(found)), encoding="utf-8")
    click.echo(f"{out}: written")
    if shows:
        webbrowser.open(out.resolve().as_uri())
