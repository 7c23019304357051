"""Optimize the GPU benchmark's models on a machine with nvcc, and pack them for one with a GPU.

    python -m benchmarks.gpu_prepare [--only GLOB] [--force]

Packs fused graphs and compiled libraries into `.gpu-work/work.tar.xz`, without the weights: those are drawn again over
there from the examples' seeds (examples/weights.py), so that hundreds of megabytes need not travel. Then, on the
machine with the GPU: `python -m benchmarks.gpu`.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import click
import numpy as np
import numpy.typing as npt
import onnx
from onnx import numpy_helper

import fusion_cli
from benchmarks.gpu_cases import ARCHIVE, CASES, FACTS, TARGET, WORK, Case
from examples import weights
from fusion_cli.report import Report

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Drawn:
    """An initializer's values and the recipe they were drawn by."""

    values: Array
    recipe: dict[str, Any]


@click.command(help=(__doc__ or "").split("\n\n")[0])
@click.option("--only", default="*", metavar="GLOB", help="Only the examples whose name matches.")
@click.option("--force", is_flag=True, help="Take every fusion, whatever its score.")
def main(only: str, force: bool) -> None:
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir()
    for case in CASES:
        if fnmatch(case.example, only):
            with tempfile.TemporaryDirectory() as folder:
                click.echo(f"{case.example}: {prepare(case, Path(folder), WORK / case.example, force=force)}")
    with tarfile.open(ARCHIVE, "w:xz", preset=9) as archive:
        for packed in sorted(p for p in WORK.iterdir() if p.is_dir()):
            archive.add(packed, packed.name)
            shutil.rmtree(packed)
    click.echo(f"{ARCHIVE}: {ARCHIVE.stat().st_size / 2**20:.2f} MiB")


def prepare(case: Case, scratch: Path, target: Path, *, force: bool) -> str:
    """Optimize one case in `scratch`, and put what must travel into `target`; returns a line about it.

    Where nothing pays, everything is taken: the kernels are to be checked and timed all the same.
    """
    original = weights.restore(case.example, scratch / "original.onnx")
    fused = scratch / "fused.onnx"
    report = optimize(case, original, fused, force=force)
    if not report.fusions:
        force = True
        report = optimize(case, original, fused, force=force)
    target.mkdir()
    bundle = scratch / "fused.fusion"
    shutil.copytree(bundle, target / bundle.name, ignore=shutil.ignore_patterns("src", "report.*"))
    facts = {"rules": dict(Counter(f.rule for f in report.fusions)), "forced": force}
    (target / FACTS).write_text(json.dumps(facts))
    model = onnx.load(fused)
    forget_weights(model, onnx.load(weights.graph_path(case.example)))
    onnx.save(model, target / "fused.weightless.onnx")
    packed = sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
    return f"{facts}, {packed >> 10} KiB"


def optimize(case: Case, original: Path, fused: Path, *, force: bool) -> Report:
    """Fuse one model for the GPU. The kernels cannot run here: they are verified where they are measured."""
    return fusion_cli.optimize(original, fused, targets=[TARGET], dims=case.dims, force=force, verify=False)


def forget_weights(fused: onnx.ModelProto, bare: onnx.ModelProto) -> None:
    """Drop the data of every initializer of `fused` that comes from one of the weightless graph `bare`, and note that
    one's recipe in its place."""
    sources = {}
    for tensor in bare.graph.initializer:
        if recipe := weights.recipe_of(tensor):
            values = weights.draw(tensor)
            sources[digest(values)] = Drawn(values, recipe)
    for tensor in fused.graph.initializer:
        values = numpy_helper.to_array(tensor)
        if source := sources.get(digest(values)):
            weights.set_recipe(tensor, **source.recipe)
        elif found := scaled(values, sources.values()):
            source, factors = found
            weights.set_recipe(tensor, **source.recipe, scale=factors)


def digest(values: Array) -> bytes:
    """A hash of the values, whatever their name and shape."""
    return hashlib.sha256(values.tobytes()).digest()


def scaled(values: Array, sources: Iterable[Drawn]) -> tuple[Drawn, list[float]] | None:
    """The source that a convolution's weights are, up to one factor per output channel, and those factors."""
    if values.ndim != 4:
        return None
    rows = values.reshape(values.shape[0], -1)
    for source in sources:
        if source.values.shape == values.shape:
            base = source.values.reshape(rows.shape)
            factors = (rows * base).sum(axis=1) / (base * base).sum(axis=1)
            if np.allclose(base * factors[:, None], rows, rtol=1e-4, atol=1e-6):
                return source, factors.tolist()
    return None


if __name__ == "__main__":
    main()
