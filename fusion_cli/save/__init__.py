"""Write the output so that it appears whole or not at all.

Everything is written to a folder beside the output and moved into place at the end: first the weights and the
bundle, last the model. If a move fails, what was there before is put back.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import onnx
import onnx_ir as ir

from fusion_cli import collector
from fusion_cli.errors import FusionError, ModelError, first_line
from fusion_cli.load import FUSED_KEY
from fusion_cli.load.structure import tensors
from fusion_cli.load.weights import InModelFile, without_weights, write_without_weights
from fusion_cli.quiet import quiet
from fusion_cli.runtime.manifest import METADATA_KEY
from fusion_cli.save.stream import write_model
from fusion_cli.sizes.dims import name_sizes
from fusion_cli.sizes.parsing import written
from fusion_cli.version import __version__

_EXTERNAL_FROM = 1 << 30
"""Weights of more bytes than this are kept in a file of their own: a protobuf ends at 2 GiB."""


@dataclass(frozen=True)
class Staging:
    """Where the output is put together; the same names as at its destination."""

    folder: Path
    output: Path

    @property
    def model(self) -> Path:
        return self.folder / self.output.name

    @property
    def bundle(self) -> Path:
        return self.folder / bundle_name(self.output)


def bundle_name(output: Path) -> str:
    """The name of the folder that goes with a model: `fused.fusion` for `fused.onnx`."""
    return f"{output.stem}.fusion"


@contextmanager
def staging(output: Path) -> Iterator[Staging]:
    """A folder to put the output together in, removed at the end whatever happens."""
    if not output.parent.is_dir():
        raise FusionError("no such folder", where=str(output.parent), hint="create it, or give another output path")
    if output.is_dir():
        raise FusionError("is a folder; the output is a file", where=str(output))
    with tempfile.TemporaryDirectory(prefix=f".{output.stem}-", dir=output.parent) as name:
        stage = Staging(Path(name), output)
        stage.bundle.mkdir()
        yield stage


Shapes = Sequence[Sequence[int | str] | None]
"""Of outputs: numbers, and the names of dimensions; "" for one without."""


def save_model(model: ir.Model, stage: Staging, original: Path, outputs: Shapes) -> None:
    """Write the model into the staging folder, weights outside it where they were or where they are too many, and
    check it. Raises ModelError if the checker finds fault with it but not with the original: ONNX Runtime runs models
    that the checker rejects, such as those whose outputs have no shape.

    `outputs` is what the original says of the shapes of its outputs: that is what they are asked for by.
    """
    for value, dims in zip(model.graph.outputs, outputs, strict=True):
        if dims is not None:
            value.shape = ir.Shape([None if d == "" else d for d in dims])
    name_sizes(model, written)
    model.metadata_props[FUSED_KEY] = __version__
    model.metadata_props[METADATA_KEY] = stage.bundle.name
    with quiet():
        if _is_external(model):
            ir.save(model, stage.model, external_data=f"{stage.output.name}.data")
        else:
            write_model(model, stage.model)
    # The checker reads whole files into memory, and has nothing to say of the weights.
    with tempfile.NamedTemporaryFile(dir=stage.folder, suffix=".onnx") as weightless:
        write_without_weights(stage.model, Path(weightless.name))
        fault = _fault(Path(weightless.name))
    collector.release()
    if fault and not _fault(original):
        raise ModelError(f"the checker rejects the model as it would be written: {fault}", where=str(stage.output))


def save_original(original: Path, stage: Staging) -> None:
    """Put the original as it is in the place of all that was put together so far: copies of its file and of those that
    weights of it are in, whose names alone are others."""
    for path in stage.folder.iterdir():
        _remove(path)
    stage.bundle.mkdir()
    graph = onnx.ModelProto.FromString(without_weights(original))
    locations = sorted({entry.value for entry in _locations(graph)} - {original.name})
    if not locations:
        shutil.copyfile(original, stage.model)
        return
    names = {location: f"{stage.output.name}.data{i or ''}" for i, location in enumerate(locations)}
    proto = onnx.load(original, load_external_data=False)
    for entry in _locations(proto):
        entry.value = names[entry.value]
    stage.model.write_bytes(proto.SerializeToString())
    for location, name in names.items():
        shutil.copyfile(original.parent / location, stage.folder / name)


def _locations(model: onnx.ModelProto) -> Iterator[onnx.StringStringEntryProto]:
    """Where tensors say that their data are: in which files."""
    apart = (t for t in tensors(model) if t.data_location == onnx.TensorProto.EXTERNAL)
    return (entry for t in apart for entry in t.external_data if entry.key == "location")


def _is_external(model: ir.Model) -> bool:
    """Whether weights were in files of their own, or are too many for the model file."""
    values = (v for graph in model.graphs() for v in graph.initializers.values())
    tensors = [v.const_value for v in values if v.const_value is not None]
    apart = any(isinstance(t, ir.ExternalTensor) and not isinstance(t, InModelFile) for t in tensors)
    return apart or sum(t.nbytes for t in tensors if not t.dtype.is_string()) > _EXTERNAL_FROM


def _fault(path: Path) -> str:
    """The first line of what the checker says against a model. That shapes contradict each other is no fault here:
    once constants are folded, shape inference sees through what it did not before, and finds what a model says of its
    outputs to be wrong."""
    try:
        onnx.checker.check_model(path)
    except onnx.checker.ValidationError as e:
        return first_line(e)
    return ""


def commit(stage: Staging) -> None:
    """Move everything into place, the model last."""
    names = [p.name for p in stage.folder.iterdir() if p != stage.model] + [stage.model.name]
    target = stage.output.parent
    kept = Path(tempfile.mkdtemp(prefix=f".{stage.output.stem}-old-", dir=target))
    moved: list[str] = []
    try:
        for name in names:
            if (target / name).exists():
                os.replace(target / name, kept / name)
            os.replace(stage.folder / name, target / name)
            moved.append(name)
    except OSError:
        for name in names:
            if name in moved:
                _remove(target / name)
            if (kept / name).exists():
                os.replace(kept / name, target / name)
        raise
    finally:
        shutil.rmtree(kept, ignore_errors=True)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
