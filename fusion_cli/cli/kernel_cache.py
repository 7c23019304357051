"""`fusion-cli cache`: the compiled kernels that are kept from run to run."""

from __future__ import annotations

import click

from fusion_cli.build.cache import KINDS, default_cache_dir, entries, parse_bytes, shrink, size_limit
from fusion_cli.cli.common import debug_option, echo_json, json_option
from fusion_cli.report.readable import counted, show_bytes


@click.group()
def cache() -> None:
    """Say what the cache of compiled kernels holds; clean it."""


@cache.command()
@json_option
@debug_option
def info(as_json: bool, debug: bool) -> None:
    """Where the cache is, and how much of what it holds."""
    folder, held = default_cache_dir(), entries(default_cache_dir())
    sizes = {kind: [e.nbytes for e in held if (folder / kind) in e.path.parents] for kind in KINDS}
    total = sum(e.nbytes for e in held)
    if as_json:
        counts = {kind: {"files": len(found), "bytes": sum(found)} for kind, found in sizes.items()}
        echo_json({"folder": str(folder), "bytes": total, "limit": size_limit(), **counts})
        return
    click.echo(f"{folder}: {show_bytes(total)} of at most {show_bytes(size_limit())}")
    for kind, found in sizes.items():
        click.echo(f"  {kind:<9}  {counted(len(found), 'file')}, {show_bytes(sum(found))}")


@cache.command()
@click.option("--to", "most", default="0", metavar="SIZE", show_default=True, help="Leave as much, used last: 500MB.")
@debug_option
def clean(most: str, debug: bool) -> None:
    """Remove what is in the cache, what was not used for longest first."""
    freed = shrink(default_cache_dir(), parse_bytes(most, "--to"), spare=0.0)
    click.echo(f"{default_cache_dir()}: {show_bytes(freed)} freed")
