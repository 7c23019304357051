"""Count the bytes that a run of a model moves through a GPU's memory, fused and by ONNX Runtime unoptimized.

    python -m benchmarks.gpu_bytes [--model ID] [--work FOLDER] [--results FOLDER]

Needs Nsight Compute (ncu) with access to its counters, and what `benchmarks.gpu_models` has made of the model in the
folder --work. What is left when weights are taken off, which every run reads once, are activations. The page has the
kernels, those that move most first, and keeps the models of earlier runs.
"""

from __future__ import annotations

import sys
from datetime import date
from pathlib import Path

import click
import onnx

from benchmarks import gpu_models, nsight
from benchmarks.gpu_bytes_page import TO_BE, Counted, Moved, summary, write_page
from benchmarks.gpu_options import PAGES, results_option
from benchmarks.gpu_write import made_path


@click.command(help=(__doc__ or "").split("\n\n")[0])
@click.option("--model", default="decomposed_b1_s2048_d4096", show_default=True, metavar="ID")
@click.option("--made", type=click.Choice(["fused", "quick"]), default="fused", show_default=True)
@click.option("--work", type=click.Path(path_type=Path), default=gpu_models.WORK, show_default=True)
@results_option
def main(model: str, made: str, work: Path, results: Path | None) -> None:
    path = work.resolve() / f"{model}.onnx"
    nsight.require(path, made, gpu_models.__name__)
    said = {way: nsight.profiled(path, way, ("--metrics", ",".join(nsight.MOVED))) for way in ("unoptimized", made)}
    counted = Counted(
        id=model,
        made=made,
        date=date.today().isoformat(),
        device=nsight.device(said[made]),
        nodes=len(onnx.load(made_path(path, made), load_external_data=False).graph.node),
        weights=weight_bytes(path),
        before=traffic(said["unoptimized"]),
        after=traffic(said[made]),
    )
    click.echo(f"{summary(counted)}\n{write_page(counted, results or PAGES)}")
    sys.exit(0 if counted.saved >= TO_BE else 1)


def traffic(said: str) -> tuple[Moved, ...]:
    """What each kernel has moved, those that move most first, of ncu's raw page. Raises ClickException where it has
    none."""
    found: dict[str, list[tuple[int, int]]] = {}
    for launch in nsight.launches(said):
        found.setdefault(launch["Kernel Name"], []).append(nsight.moved(launch))
    moved = [Moved(name, len(each), *map(sum, zip(*each, strict=True))) for name, each in found.items()]
    return tuple(sorted(moved, key=lambda kernel: -kernel.total))


def weight_bytes(path: Path) -> int:
    """Of the original's initializers."""
    return sum(len(t.raw_data) for t in onnx.load(path).graph.initializer)


if __name__ == "__main__":
    main()
