"""Time exports whose batch and sequence are open at 1 to 4096 tokens, with one library, against ONNX Runtime.

    python -m benchmarks.gpu_dynamic [--only NAMES] [--quick] [--results FOLDER]

The models are those that gpu_models.toml calls dynamic. Needs what `benchmarks.gpu_models` needs; what is done lies in
the folder --work: the same command goes on where the last was stopped.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from benchmarks.gpu_dynamic_page import problems, write_page
from benchmarks.gpu_options import kept_options, pages_folder
from benchmarks.gpu_specs import chosen, load_specs
from benchmarks.runs import Run

SIZES = (
    (1, 1), (1, 2), (1, 7), (1, 16), (1, 33), (1, 64), (1, 128), (1, 200), (1, 384), (1, 512), (1, 1000), (1, 2048),
    (1, 4096), (2, 64), (3, 50), (4, 33), (16, 17), (128, 1), (8, 128), (64, 64), (8, 512),
)  # fmt: skip
"""Batch and sequence."""
WORK = Path(".gpu-work/dynamic")


@click.command(help=(__doc__ or "").split("\n\n")[0])
@click.option("--only", default="*", metavar="NAMES", help="Only these models: globs, separated by commas.")
@click.option("--quick", is_flag=True, help="Optimize without comparing and timing (--no-verify).")
@kept_options(WORK, "exports", "one step of a model", "Small models at few sizes")
def main(only: str, quick: bool, results: Path | None, work: Path, timeout: int, retry: bool, tiny: bool) -> None:
    specs = chosen(load_specs("dynamic", tiny=tiny), only)
    if not specs:
        raise click.UsageError(f"no dynamic model of gpu_models.toml is called {only}")
    made, folder = "quick" if quick else "fused", work.resolve()
    pages = pages_folder(results, work, tiny)
    sizes = [f"{made} {b}x{s}" for b, s in SIZES if not tiny or b * s <= 128]
    entries = [s.entry for s in specs]
    written = Run(folder, "benchmarks.gpu_write", len(specs), timeout).wanted(
        entries, ("export", made), folder / "written.jsonl", retry
    )
    timed = []
    for entry in entries:
        run = Run(folder, "benchmarks.gpu_dynamic_case", 1, timeout)
        timed += run.wanted([entry], sizes, folder / "timed.jsonl", retry)
        click.echo(f"{entry['id']}: {write_page(written, timed, pages)}")
    sys.exit(1 if problems((*written, *timed)) else 0)


if __name__ == "__main__":
    main()
