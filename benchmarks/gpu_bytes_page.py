"""What `benchmarks.gpu_bytes` counted, as a Markdown page and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.kept_page import keep_found
from benchmarks.nsight import mib, short
from benchmarks.tally import table

TO_BE = 0.85
"""The share of the activations' bytes that is to be saved."""


@dataclass(frozen=True)
class Moved:
    """The bytes that all launches of a kernel read from memory and wrote there."""

    name: str
    launches: int
    read: int
    written: int

    @property
    def total(self) -> int:
        return self.read + self.written


@dataclass(frozen=True)
class Counted:
    """One run of a model by ONNX Runtime without optimizations, and one of what was `made` of it, which has so many
    `nodes`; `weights` is bytes."""

    id: str
    made: str
    date: str
    device: str
    nodes: int
    weights: int
    before: tuple[Moved, ...]
    after: tuple[Moved, ...]

    @property
    def saved(self) -> float:
        """The share of the activations' bytes."""
        return 1 - (_total(self.after) - self.weights) / (_total(self.before) - self.weights)


def write_page(counted: Counted, folder: Path) -> Path:
    """Write `gpu-bytes-DEVICE.md` and `.json` into `folder`, with the other models that are there already; returns the
    path of the page."""
    return keep_found("gpu-bytes", counted, ("id",), folder, page)


def page(models: Sequence[Counted]) -> str:
    """The Markdown page: a table of the models, and one of the kernels of each."""
    head = [
        "model",
        "written",
        "nodes",
        "unoptimized, MiB",
        "kernels",
        "fused, MiB",
        "kernels",
        "weights",
        "saved",
        "date",
    ]
    parts = [
        f"# Bytes moved on {models[0].device}",
        "Made by `python -m benchmarks.gpu_bytes`: what one run reads from the GPU's memory and writes there, by Nsight"
        " Compute, without optimizations in ONNX Runtime and as `python -m benchmarks.gpu_models` has written it."
        f" *Saved* is of what is left without the weights, which is to be {TO_BE:.0%}.",
        table(head, map(_row, models)),
    ]
    for counted in models:
        for way, kernels in ((counted.made, counted.after), ("unoptimized", counted.before)):
            parts += [
                f"## {counted.id}, {way}",
                table(["kernel", "launches", "read, MiB", "written, MiB"], map(_kernel, kernels)),
            ]
    return "\n\n".join(parts) + "\n"


def summary(counted: Counted) -> str:
    """A model's bytes in short, and the kernels that move most of them."""
    lines = [
        f"{way}: {mib(_total(moved))} MiB by {_launches(moved)} kernels,"
        f" without weights {mib(_total(moved) - counted.weights)} MiB"
        for way, moved in (("unoptimized", counted.before), (counted.made, counted.after))
    ]
    lines += [f"  {mib(k.read):>5} + {mib(k.written):>5} MiB  {k.launches} x {short(k.name)}" for k in counted.after]
    saved = f"{counted.saved:.1%} of the activations' bytes saved (to be {TO_BE:.0%}); {counted.nodes} nodes"
    return "\n".join([*lines, saved])


def _row(counted: Counted) -> list[str]:
    sides = [cell for moved in (counted.before, counted.after) for cell in (mib(_total(moved)), str(_launches(moved)))]
    return [
        counted.id,
        counted.made,
        str(counted.nodes),
        *sides,
        mib(counted.weights),
        f"{counted.saved:.1%}",
        counted.date,
    ]


def _kernel(kernel: Moved) -> list[str]:
    return [f"`{short(kernel.name)}`", str(kernel.launches), mib(kernel.read), mib(kernel.written)]


def _total(moved: Sequence[Moved]) -> int:
    return sum(kernel.total for kernel in moved)


def _launches(moved: Sequence[Moved]) -> int:
    return sum(kernel.launches for kernel in moved)
