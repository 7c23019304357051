"""What the GPU benchmarks that keep what they have done are asked alike."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

PAGES = Path("benchmarks/results")

results_option = click.option(
    "--results", type=click.Path(path_type=Path), help=f"Folder for the page. [default: {PAGES}]"
)


def kept_options(work: Path, holds: str, timeout: str, tiny: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """--results, --work (by default `work`, for what it `holds`), --timeout, --retry and --tiny of a command."""
    options = (
        results_option,
        click.option(
            "--work", type=click.Path(path_type=Path), default=work, show_default=True, help=f"Folder for {holds}."
        ),
        click.option("--timeout", type=int, default=300, show_default=True, help=f"Seconds for {timeout}."),
        click.option("--retry", is_flag=True, help="Do again what did not end ok in an earlier run."),
        click.option("--tiny", is_flag=True, help=f"{tiny}: tries the benchmark, on a CPU too."),
    )

    def with_options(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return with_options


def pages_folder(results: Path | None, work: Path, tiny: bool) -> Path:
    """Where the page goes: pages of tiny models lie with what was made of them."""
    return results or (work if tiny else PAGES)
