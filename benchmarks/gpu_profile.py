"""Tell what the kernels of models, or of cases of `benchmarks.kernels`, have the GPU do, and what their warps wait for.

    python -m benchmarks.gpu_profile [--made WAY] [--work FOLDER] [--results FOLDER] ID ...

Needs Nsight Compute (ncu) with access to its counters, and what `benchmarks.gpu_models` has made of a model, or
`benchmarks.kernels` of a case, in the folder --work. The page keeps what earlier runs have found. ncu runs every kernel
by itself, as often as it needs: its time is not the one that the kernel takes beside others.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path

import click

from benchmarks import gpu_models, kernels, nsight
from benchmarks.gpu_options import PAGES, results_option
from benchmarks.gpu_profile_page import Launch, Profile, summary, write_page

MADE = {"fused": gpu_models, "quick": gpu_models, "kernels": kernels, "own": kernels}
"""What a way was made by."""
SECTIONS = ("SpeedOfLight", "ComputeWorkloadAnalysis", "Occupancy", "SchedulerStats", "WarpStateStats")
_TENSOR = re.compile(r"sm__\w*pipe_tensor\w*\.avg\.pct_of_peak_sustained_active")
"""Architectures name the tensor cores' pipes differently."""
_STALL = re.compile(r"smsp__average_warps_issue_stalled_(\w+)_per_issue_active\.ratio")


@click.command(help=(__doc__ or "").split("\n\n")[0])
@click.argument("ids", nargs=-1, required=True, metavar="ID ...")
@click.option("--made", type=click.Choice(list(MADE)), default="quick", show_default=True)
@click.option("--work", type=click.Path(path_type=Path), help="Folder of what was made. [default: its benchmark's]")
@results_option
def main(ids: Sequence[str], made: str, work: Path | None, results: Path | None) -> None:
    maker = MADE[made]
    paths = [(work or maker.WORK).resolve() / f"{id}.onnx" for id in ids]
    for path in paths:
        nsight.require(path, made, maker.__name__)
    for path in paths:
        said = nsight.profiled(path, made, asked())
        found = tuple(launch(metrics) for metrics in nsight.launches(said))
        profile = Profile(path.stem, made, date.today().isoformat(), nsight.device(said), found)
        click.echo(f"{summary(profile)}\n{write_page(profile, results or PAGES)}")


def asked() -> list[str]:
    """ncu's options for the metrics that `launch` reads."""
    return [*(word for section in SECTIONS for word in ("--section", section)), "--metrics", ",".join(nsight.MOVED)]


def launch(metrics: Mapping[str, str]) -> Launch:
    """One launch of a kernel; what ncu did not tell is nought."""

    def of(metric: str) -> float:
        return nsight.number(metrics, metric) if metrics.get(metric) else 0.0

    stalls = {match[1]: of(name) for name in metrics if (match := _STALL.fullmatch(name))}
    read, written = nsight.moved(metrics)
    return Launch(
        name=metrics["Kernel Name"],
        us=of("gpu__time_duration.sum") / 1e3,
        read=read,
        written=written,
        memory=of("gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"),
        tensor=max((of(name) for name in metrics if _TENSOR.fullmatch(name)), default=0.0),
        issue=100 * of("smsp__issue_active.avg.per_cycle_active"),
        warps=of("sm__warps_active.avg.pct_of_peak_sustained_active"),
        stalls=tuple(sorted(stalls.items(), key=lambda stall: -stall[1])),
    )


if __name__ == "__main__":
    main()
