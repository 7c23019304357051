"""Optimize the GPU benchmark's models on a machine with nvcc, and pack them for one with a GPU.

    python -m benchmarks.gpu_prepare [--only GLOB] [--force]

Packs fused graphs and compiled libraries into `.gpu-work/work.tar.xz`, without the weights: those are drawn again over
there from the examples' seeds (examples/weights.py), so that hundreds of megabytes need not travel. Then, on the
machine with the GPU: `python -m benchmarks.gpu`.
"""

from __future__ import annotations

import hashlib
import shutil
import tarfile
import tempfile
from fnmatch import fnmatch
from pathlib import Path

import click
import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

import fusion_cli
from benchmarks.gpu_cases import ARCHIVE, CASES, TARGET, WORK, Case
from examples import weights


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
    """Optimize one case in `scratch`, and put what must travel into `target`; returns a line about it."""
    original = weights.restore(case.example, scratch / "original.onnx")
    fused = scratch / "fused.onnx"
    # The kernels cannot run here: they are verified where they are measured.
    report = fusion_cli.optimize(original, fused, targets=[TARGET], dims=case.dims, force=force, verify=False)
    target.mkdir()
    bundle = scratch / "fused.fusion"
    if bundle.is_dir():
        shutil.copytree(bundle, target / bundle.name, ignore=shutil.ignore_patterns("src", "report.html"))
    model = onnx.load(fused)
    forget_weights(model, onnx.load(original))
    onnx.save(model, target / "fused.weightless.onnx")
    libraries = ", ".join(f"{lib.path.name} {lib.path.stat().st_size >> 10} KiB" for lib in report.libraries)
    return f"{report.summary.fusions} fusions, {libraries or 'no library'}"


def forget_weights(fused: onnx.ModelProto, original: onnx.ModelProto) -> None:
    """Give every initializer of `fused` that comes from one of `original` the recipe of that one, and drop its data."""
    recipes = {t.name: weights.recipe_of(t) for t in stripped(original).graph.initializer}
    sources = [t for t in original.graph.initializer if recipes[t.name]]
    by_content = {digest(t): t for t in sources}
    for tensor in fused.graph.initializer:
        if source := by_content.get(digest(tensor)):
            weights.set_recipe(tensor, **recipes[source.name])
        elif found := scaled(tensor, sources):
            weights.set_recipe(tensor, **recipes[found[0].name], scale=found[1])


def stripped(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of a restored example with its weights left out again."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    weights.strip(copy)
    return copy


def digest(tensor: TensorProto) -> bytes:
    """A hash of the values, whatever the name and the shape."""
    return hashlib.sha256(numpy_helper.to_array(tensor).tobytes()).digest()


def scaled(tensor: TensorProto, sources: list[TensorProto]) -> tuple[TensorProto, list[float]] | None:
    """The source that `tensor` is, up to one factor per output channel, and those factors; None if there is none."""
    if len(tensor.dims) != 4:
        return None
    values = numpy_helper.to_array(tensor).reshape(tensor.dims[0], -1)
    for source in sources:
        if source.dims == tensor.dims:
            base = numpy_helper.to_array(source).reshape(values.shape)
            factors = (values * base).sum(axis=1) / (base * base).sum(axis=1)
            if np.allclose(base * factors[:, None], values, rtol=1e-4, atol=1e-6):
                return source, factors.tolist()
    return None


if __name__ == "__main__":
    main()
