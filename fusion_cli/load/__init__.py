"""Read an ONNX file into `onnx_ir`, refusing what cannot or must not be read."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError

from fusion_cli import collector
from fusion_cli.errors import ModelError, first_line
from fusion_cli.load.accepted import to_common_form
from fusion_cli.load.overridable import fix_initializers
from fusion_cli.load.structure import (
    check_bodies,
    check_external_data,
    check_functions,
    check_references,
    check_sizes,
    check_text,
    check_types,
    check_values,
    locations,
    put_in_order,
)
from fusion_cli.load.weights import settle_weights, without_weights
from fusion_cli.quiet import quiet
from fusion_cli.sizes.dims import name_sizes, number, rename_sizes, symbol
from fusion_cli.version import DOMAIN

OLDEST_OPSET = 7
NEWEST_OPSET = onnx.defs.onnx_opset_version()
_NAMELESS = "?"
"""What some converters call every size that they do not know; others take equal names for equal sizes."""
FUSED_KEY = "fusion.version"
"""Metadata key of models this tool has written."""


def load_model(path: Path, assume_constant: Collection[str] = ()) -> ir.Model:
    """The model at `path`, its weights left on disk, in the model file too.

    Graph inputs named in `assume_constant` become the constants that their initializers are ("all": every one that
    has an initializer). Raises ModelError when the file is missing, is no ONNX model, is cut short, refers to data
    that is missing or outside its folder, uses an opset outside OLDEST_OPSET..NEWEST_OPSET, is no graph (values that
    nothing makes, two of one name, cycles), has nodes or tensors of too many parts, has functions that call each other
    without end, or has no initializer for a name of `assume_constant`.
    """
    proto = _parse(path)
    check_sizes(proto, path)
    _check_opset(proto, path)
    check_text(proto, path)
    check_references(proto, path)
    check_external_data(proto, path)
    check_types(proto, path)
    to_common_form(proto, path)
    try:
        with quiet():
            model = ir.from_proto(proto)
    except (ValueError, TypeError, KeyError, ir.serde.SerdeError) as e:
        cause: BaseException = e
        while cause.__cause__ is not None:
            cause = cause.__cause__
        raise ModelError(f"the model is malformed: {first_line(cause)}", where=str(path)) from e
    check_functions(model, path)
    check_values(model, path)
    check_bodies(model, path)
    put_in_order(model, path)
    name_sizes(model, lambda name: None if name == _NAMELESS else symbol(name))
    settle_weights(model, path)
    fix_initializers(model, assume_constant, str(path))
    del proto
    collector.release()
    return model


def fix_sizes(model: ir.Model, sizes: Mapping[str, int]) -> None:
    """Give dimensions of the inputs and outputs, by name, the sizes that they have from now on."""

    def size(dim: str) -> int | str:
        found = number(dim, {symbol(name): size for name, size in sizes.items()})
        return dim if found is None else found

    rename_sizes([*model.graph.inputs, *model.graph.outputs], size)


def data_locations(path: Path) -> set[str]:
    """The files, relative to the folder of the model at `path`, in which it keeps weights outside its own. Raises
    ModelError as `load_model`."""
    return {entry.value for entry in locations(_parse(path))} - {path.name}


def is_fused(model: ir.Model) -> bool:
    """Whether this tool wrote the model, with functions that kernels stand for. Metadata alone say little: anyone may
    write them, and a model that was only simplified is as good as any."""
    return FUSED_KEY in model.metadata_props and any(f.domain == DOMAIN for f in model.functions.values())


def _parse(path: Path) -> onnx.ModelProto:
    if not path.exists():
        raise ModelError("no such file", where=str(path), hint="give the path of an .onnx file")
    if path.is_dir():
        raise ModelError("is a folder, not a model", where=str(path), hint="give the path of an .onnx file")
    data = without_weights(path)
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data)
    except DecodeError as e:
        if "MaxDepth" in str(e):
            hint = "bodies in bodies are read some thirty deep"
            raise ModelError("the model is nested too deep", where=str(path), hint=hint) from e
        # Every ONNX file in the wild starts with field 1 (ir_version), a varint: the byte 0x08.
        if data[:1] == b"\x08":
            raise ModelError("the file is cut short or damaged", where=str(path), hint="export or copy it again") from e
        raise ModelError("not an ONNX model", where=str(path), hint="export the model to ONNX first") from e
    if not proto.HasField("graph") or not proto.ir_version:
        raise ModelError("not an ONNX model", where=str(path), hint="export the model to ONNX first")
    return proto


def _check_opset(proto: onnx.ModelProto, path: Path) -> None:
    versions = {o.domain or "": o.version for o in proto.opset_import}
    version = versions.get("", versions.get("ai.onnx"))
    uses_default_domain = any(n.domain in ("", "ai.onnx") for n in proto.graph.node)
    if version is None and uses_default_domain:
        hint = "export it again; opset_import is missing"
        raise ModelError("the model imports no version of the ONNX operators", where=str(path), hint=hint)
    if version is not None and not OLDEST_OPSET <= version <= NEWEST_OPSET:
        hint = f"convert the model to an opset from {OLDEST_OPSET} to {NEWEST_OPSET}"
        raise ModelError(f"opset {version} is not supported", where=str(path), hint=hint)
