"""Run models for some seconds each and tell at which clock and power the GPU does, and whether power is what limits it.

    python -m benchmarks.gpu_power [--made WAY] [--work FOLDER] [--seconds N] ID ...

Needs a GPU, torch, onnxruntime-gpu, nvidia-smi, and what `benchmarks.gpu_models` has made of a model in the folder
--work. A graph of a run is replayed, so that the GPU waits for nothing.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click

from benchmarks import gpu_models
from benchmarks.gpu_write import require_made

_ASKED = ("clocks.sm", "clocks.max.sm", "power.draw", "power.limit", "clocks_event_reasons.sw_power_cap")
_EVERY_MS = 100
_AT_ONCE = 50
"""Runs between two moments at which the host waits."""
_WARM = 1.0
"""Seconds at the beginning that are left out: what nvidia-smi tells of power is a mean of the last second."""


@dataclass(frozen=True)
class Sample:
    """What a GPU does at a moment: its clock and its fastest one (MHz), its power and the most it may take (W), and
    whether that makes it slower."""

    clock: float
    fastest: float
    power: float
    limit: float
    is_capped: bool


@click.command(help=(__doc__ or "").split("\n\n")[0])
@click.argument("ids", nargs=-1, required=True, metavar="ID ...")
@click.option("--made", type=click.Choice(["fused", "quick"]), default="quick", show_default=True)
@click.option("--work", type=click.Path(path_type=Path), default=gpu_models.WORK, show_default=True)
@click.option("--seconds", type=click.FloatRange(min=_WARM, min_open=True), default=4.0, show_default=True)
def main(ids: Sequence[str], made: str, work: Path, seconds: float) -> None:
    if shutil.which("nvidia-smi") is None:
        raise click.ClickException("there is no nvidia-smi on PATH: it comes with NVIDIA's driver")
    paths = [work.resolve() / f"{id}.onnx" for id in ids]
    for path in paths:
        require_made(path, made, gpu_models.__name__)
    for path in paths:
        click.echo(f"{path.stem}, {made}: {summary(*watched(path, made, seconds))}")


def watched(path: Path, made: str, seconds: float) -> tuple[float, list[Sample]]:
    """Milliseconds of a run where one follows the other for so long, and what the GPU does once it is warm."""
    import torch  # which only machines with a GPU need to have

    from benchmarks.contenders import captured
    from benchmarks.gpu_once import of_model

    with torch.no_grad():
        contender = captured(of_model(path, made))
        ms: list[float] = []
        with told(f"GPU-{torch.cuda.get_device_properties(torch.cuda.current_device()).uuid}") as lines:
            end = time.monotonic() + seconds
            with torch.cuda.stream(contender.stream):
                while (start := time.monotonic()) < end:
                    for _ in range(_AT_ONCE):
                        contender.call()
                    torch.cuda.synchronize()
                    ms.append((time.monotonic() - start) / _AT_ONCE * 1e3)
    return statistics.median(ms), samples(lines)


@contextmanager
def told(gpu: str) -> Iterator[list[str]]:
    """What nvidia-smi says of a GPU meanwhile, once it is over."""
    query = ("nvidia-smi", "-i", gpu, f"--query-gpu={','.join(_ASKED)}", "--format=csv,noheader,nounits")
    lines: list[str] = []
    with subprocess.Popen([*query, "-lms", str(_EVERY_MS)], stdout=subprocess.PIPE, text=True) as smi:
        try:
            yield lines
        finally:
            smi.terminate()
            lines += smi.communicate()[0].splitlines()


def samples(lines: Sequence[str]) -> list[Sample]:
    """Those of nvidia-smi's lines after the first second; a last one that is not whole is left out. Raises
    ClickException where there are none, as of a GPU that does not tell."""
    whole = [fields for line in lines if len(fields := [f.strip() for f in line.split(",")]) == len(_ASKED)]
    try:
        found = [Sample(*map(float, numbers), is_capped=capped == "Active") for *numbers, capped in whole]
    except ValueError as problem:
        raise click.ClickException(f"nvidia-smi does not tell a number: {problem}") from problem
    warm = found[round(_WARM * 1e3 / _EVERY_MS) :]
    if not warm:
        raise click.ClickException(f"nvidia-smi told too little: {len(found)} times")
    return warm


def summary(ms: float, found: Sequence[Sample]) -> str:
    """All of it in a line."""
    clock, power = (statistics.median(values) for values in ((s.clock for s in found), (s.power for s in found)))
    capped = sum(s.is_capped for s in found) / len(found)
    return (
        f"{ms:.4f} ms a run at {clock:.0f} of {found[0].fastest:.0f} MHz and {power:.0f} of {found[0].limit:.0f} W,"
        f" slower for its power {capped:.0%} of the time"
    )


if __name__ == "__main__":
    main()
