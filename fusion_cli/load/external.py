"""Checks on tensors before anything is read or allocated for them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import onnx
import onnx_ir as ir

from fusion_cli.errors import ModelError
from fusion_cli.load.accepted import graphs_of, nodes_of


def check_external_data(proto: onnx.ModelProto, path: Path) -> None:
    """Refuse external data that is missing, cut short or outside the model's folder, and raw data of a wrong size."""
    for tensor in _tensors(proto):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            _check_file(tensor, path)
        elif tensor.HasField("raw_data"):
            _check_raw(tensor, path)


def _check_file(tensor: onnx.TensorProto, path: Path) -> None:
    info = {e.key: e.value for e in tensor.external_data}
    location = info.get("location", "")
    file = path.parent / location
    where = f"{path}: tensor '{tensor.name}'"
    folder = path.parent.resolve()
    own = location == path.name  # which `without_weights` refers to; it may be a link
    if not location or Path(location).is_absolute() or not (own or file.resolve().is_relative_to(folder)):
        raise ModelError(
            f"external data '{location}' lies outside the model's folder",
            where=where,
            hint="keep the data file beside the model",
        )
    if not file.is_file():
        raise ModelError(f"external data file '{location}' is missing", where=where, hint="copy it beside the model")
    try:
        offset, length = int(info.get("offset", 0)), int(info.get("length", 0))
    except ValueError as e:
        raise ModelError("external data has a malformed offset or length", where=where) from e
    needed = _nbytes(tensor)
    if offset < 0 or length < 0 or (length and needed is not None and length != needed):
        data = "the tensor" if own else "external data"
        raise ModelError(f"{data} is {length} bytes where its shape needs {needed}", where=where)
    if offset + (length or needed or 0) > file.stat().st_size:
        raise ModelError(f"external data file '{location}' is cut short", where=where, hint="copy it again")


def _check_raw(tensor: onnx.TensorProto, path: Path) -> None:
    needed = _nbytes(tensor)
    if needed is not None and len(tensor.raw_data) != needed:
        raise ModelError(
            f"tensor '{tensor.name}' holds {len(tensor.raw_data)} bytes where its shape needs {needed}",
            where=str(path),
            hint="the file is damaged; export it again",
        )


def _nbytes(tensor: onnx.TensorProto) -> int | None:
    try:
        itemsize: float = ir.DataType(tensor.data_type).itemsize
    except (ValueError, TypeError):
        return None
    elements: int = math.prod(tensor.dims)
    return math.ceil(elements * itemsize)


def _tensors(proto: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    for graph in graphs_of(proto):
        yield from graph.initializer
        for sparse in graph.sparse_initializer:
            yield from (sparse.values, sparse.indices)
    for node in nodes_of(proto):
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            if attribute.HasField("sparse_tensor"):
                yield from (attribute.sparse_tensor.values, attribute.sparse_tensor.indices)
            yield from attribute.tensors
