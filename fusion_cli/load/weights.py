"""Weights stay in the file: a model of gigabytes is read, changed and written without them in memory.

Only the graph is parsed. Of each large initializer the parser sees where in the model file its bytes lie, in the form
that ONNX has for data in a file of its own; small ones are read, wherever they are.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import onnx
import onnx_ir as ir

LARGE = 1 << 14
"""Bytes from which on an initializer stays where it is."""
_LENGTH_DELIMITED = 2
Piece = bytes | memoryview
# Field numbers of onnx.proto.
GRAPH, INITIALIZER, RAW_DATA, EXTERNAL = 7, 5, 9, 14


class InModelFile(ir.ExternalTensor):
    """A weight whose bytes are part of the model file."""


def without_weights(path: Path) -> bytes:
    """The model at `path`, serialized, with references to the file in place of the bytes of large initializers.

    A file that is no sequence of protobuf fields is returned as it is: the parser says what is wrong with it.
    """
    with _pieces(path) as pieces:
        return b"".join(pieces)


def write_without_weights(path: Path, output: Path) -> None:
    """Write what `without_weights` returns."""
    with _pieces(path) as pieces, output.open("wb") as file:
        file.writelines(pieces)


@contextmanager
def _pieces(path: Path) -> Iterator[list[Piece]]:
    """What is left of a model without its weights, most of it where it lies in the file."""
    if not path.stat().st_size:
        yield []
        return
    with (
        path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
        memoryview(mapped) as data,
    ):
        try:
            pieces = list(_model(data, path.name))
        except (ValueError, IndexError):
            pieces = [data]
        try:
            yield pieces
        finally:
            for piece in pieces:
                if isinstance(piece, memoryview):
                    piece.release()


def settle_weights(model: ir.Model, path: Path) -> None:
    """Tell the tensors that are not in memory where their files are, and read the small ones."""
    for node in model.graph.all_nodes():
        for name, attribute in node.attributes.items():
            if attribute.type == ir.AttributeType.TENSOR and isinstance(attribute.value, ir.TensorProtoTensor):
                node.attributes[name] = ir.AttrTensor(name, _by_itself(attribute.value))
    for graph in model.graphs():
        for value in graph.initializers.values():
            tensor = value.const_value
            if isinstance(tensor, ir.TensorProtoTensor):
                value.const_value = _by_itself(tensor)
            if not isinstance(tensor, ir.ExternalTensor):
                continue
            tensor.base_dir = str(path.parent)
            if tensor.nbytes < LARGE:
                array = _at(path.parent / tensor.location, tensor).numpy().copy()
                value.const_value = ir.Tensor(array, name=tensor.name)
            elif tensor.location == path.name:
                value.const_value = _at(path, tensor)


def _by_itself(tensor: ir.TensorProtoTensor) -> ir.TensorProtocol:
    """The tensor without the message it came in, which would keep the whole model's message in memory. One whose data
    do not fit its shape stays as it is: it may never be read."""
    try:
        array = tensor.numpy()
    except ValueError:
        return tensor
    if tensor.dtype == ir.DataType.STRING:
        return ir.StringTensor(array, shape=tensor.shape, name=tensor.name)
    return ir.Tensor(array.copy(), dtype=tensor.dtype, shape=tensor.shape, name=tensor.name)


def _at(path: Path, tensor: ir.ExternalTensor) -> InModelFile:
    """The tensor by its absolute path: the library refuses links in a base folder, which `check_external_data` has
    looked into already."""
    place = (str(path.resolve()), tensor.offset, tensor.length)
    return InModelFile(*place, tensor.dtype, shape=tensor.shape, name=tensor.name)


def _model(data: memoryview, location: str) -> Iterator[Piece]:
    for number, start, body, end in _fields(data, 0, len(data)):
        if number == GRAPH:
            graph = list(_graph(data, body, end, location))
            yield from message(GRAPH, b"", more=sum(map(len, graph)))
            yield from graph
        else:
            yield data[start:end]


def _graph(data: memoryview, start: int, end: int, location: str) -> Iterator[Piece]:
    since = start  # what is kept is copied in long pieces
    for number, first, body, last in _fields(data, start, end):
        if number == INITIALIZER and last - body >= LARGE:
            yield data[since:first]
            yield from message(INITIALIZER, _tensor(data, body, last, location))
            since = last
    yield data[since:end]


def _tensor(data: memoryview, start: int, end: int, location: str) -> bytes:
    fields = list(_fields(data, start, end))
    raw = [(body, last) for number, _, body, last in fields if number == RAW_DATA]
    if len(raw) != 1 or raw[0][1] - raw[0][0] < LARGE or any(number == EXTERNAL for number, *_ in fields):
        return bytes(data[start:end])
    reference = onnx.TensorProto(data_location=onnx.TensorProto.EXTERNAL)
    for key, value in (("location", location), ("offset", raw[0][0]), ("length", raw[0][1] - raw[0][0])):
        reference.external_data.add(key=key, value=str(value))
    kept = b"".join(data[first:last] for number, first, _, last in fields if number != RAW_DATA)
    reference_bytes: bytes = reference.SerializeToString()
    return kept + reference_bytes


def _fields(data: memoryview, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """The fields of a message: number, where the field starts, and where its content starts and ends.

    Raises ValueError or IndexError where the bytes are no such sequence.
    """
    while at < end:
        start = at
        key, at = _varint(data, at)
        kind = key & 7
        if kind == _LENGTH_DELIMITED:
            size, at = _varint(data, at)
            last = at + size
        elif kind == 0:
            _, last = _varint(data, at)
        else:
            last = at + {1: 8, 5: 4}.get(kind, end + 1)
        if last > end:
            raise ValueError("a field reaches beyond its message")
        yield key >> 3, start, at, last
        at = last


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    """A number of seven bits a byte, the lowest first, and where it ends."""
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, at
        shift += 7
        if shift > 63:
            raise ValueError("a number of more than 64 bits")


def message(number: int, content: bytes, more: int = 0) -> Iterator[bytes]:
    """A length-delimited field; `more` bytes of its content are written by the caller afterwards."""
    yield _encoded(number << 3 | _LENGTH_DELIMITED) + _encoded(len(content) + more)
    yield content


def _encoded(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)
