"""Write the output so that it appears whole or not at all, and replaces nothing but an output.

Everything is written to a folder beside the output (`staging`), checked and tried there, and moved into place at the
end (`switch`).
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx
import onnx_ir as ir

from fusion_cli import collector
from fusion_cli.errors import ModelError
from fusion_cli.files import file_sha256
from fusion_cli.load import FUSED_KEY, data_locations
from fusion_cli.load.checker import fault
from fusion_cli.load.structure import locations
from fusion_cli.load.weights import InModelFile, write_without_weights
from fusion_cli.quiet import quiet
from fusion_cli.runtime.head import METADATA_KEY
from fusion_cli.save.staging import Staging, commit, staging
from fusion_cli.save.stream import write_model
from fusion_cli.save.switch import data_name
from fusion_cli.simplify.iterations import declare_again
from fusion_cli.sizes.dims import name_sizes
from fusion_cli.sizes.parsing import written
from fusion_cli.version import __version__

__all__ = ["Staging", "commit", "save_model", "save_original", "staging"]

_EXTERNAL_FROM = 1 << 30
"""Weights of more bytes than this are kept in a file of their own: a protobuf ends at 2 GiB."""
_WEIGHTS = "weights"
"""What that file is called until it is written, and can be named by its content."""


Shapes = Sequence[Sequence[int | str] | None]
"""Of outputs: numbers, and the names of dimensions; "" for one without."""


def save_model(model: ir.Model, stage: Staging, outputs: Shapes) -> None:
    """Write the model into the staging folder, weights outside it where they were or where they are too many, and
    check it. Raises ModelError if the checker finds fault with it but not with the original: ONNX Runtime runs models
    that the checker rejects, such as those whose outputs have no shape.

    `outputs` is what the original says of the shapes of its outputs: that is what they are asked for by.
    """
    for value, dims in zip(model.graph.outputs, outputs, strict=True):
        if dims is not None:
            value.shape = ir.Shape([None if d == "" else d for d in dims])
    declare_again(model)
    name_sizes(model, written)
    model.metadata_props[FUSED_KEY] = __version__
    model.metadata_props[METADATA_KEY] = stage.bundle.name
    for path in stage.data:  # of a version that was taken back
        path.unlink()
    with quiet():
        if _is_external(model):
            ir.save(model, stage.model, external_data=_WEIGHTS)
            weights = stage.folder / _WEIGHTS
            name = data_name(stage.output.name, file_sha256(weights))
            weights.rename(stage.folder / name)
            _refer(onnx.load(stage.model, load_external_data=False), stage.model, {_WEIGHTS: name})
        else:
            write_model(model, stage.model)
    # The checker reads whole files into memory, and has nothing to say of the weights.
    with tempfile.NamedTemporaryFile(dir=stage.folder, suffix=".onnx") as weightless:
        write_without_weights(stage.model, Path(weightless.name))
        said = fault(Path(weightless.name))
    collector.release()
    if said and not fault(stage.original):
        raise ModelError(f"the checker rejects the model as it would be written: {said}", where=str(stage.output))


def save_original(stage: Staging) -> None:
    """Put the original as it is in the place of all that was put together so far: copies of its file and of those that
    weights of it are in, whose names alone are others."""
    shutil.rmtree(stage.bundle)
    for path in (*stage.data, stage.model):
        path.unlink(missing_ok=True)
    stage.bundle.mkdir()
    names = {}
    for location in sorted(data_locations(stage.original)):
        path = stage.original.parent / location
        names[location] = data_name(stage.output.name, file_sha256(path))
        shutil.copyfile(path, stage.folder / names[location])
    if names:
        _refer(onnx.load(stage.original, load_external_data=False), stage.model, names)
    else:
        shutil.copyfile(stage.original, stage.model)


def _refer(model: onnx.ModelProto, path: Path, names: Mapping[str, str]) -> None:
    """Write the model with other names of the files that weights of it are in."""
    for entry in locations(model):
        entry.value = names[entry.value]
    path.write_bytes(model.SerializeToString())


def _is_external(model: ir.Model) -> bool:
    """Whether weights were in files of their own, or are too many for the model file."""
    values = (v for graph in model.graphs() for v in graph.initializers.values())
    tensors = [v.const_value for v in values if v.const_value is not None]
    apart = any(isinstance(t, ir.ExternalTensor) and not isinstance(t, InModelFile) for t in tensors)
    return apart or sum(t.nbytes for t in tensors if not t.dtype.is_string()) > _EXTERNAL_FROM
