"""What a session has to know of a model: which bundle it names, and what its functions compute.

Read field by field from the file itself (protobuf's wire format, the field numbers of onnx.proto), so that neither onnx
is needed nor a large model parsed twice: graph and weights are passed over.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from fusion_cli.errors import ModelError
from fusion_cli.version import DOMAIN

METADATA_KEY = "fusion.bundle"
"""The key of the model's metadata that holds the bundle's folder, relative to the model's."""

_METADATA, _FUNCTION = 14, 25
_NAME, _DOMAIN = 1, 10
_ENTRY = {1: "text", 2: "text"}
_TENSOR: dict[int, Any] = {
    1: "numbers",
    2: "text",
    4: "words",
    5: "numbers",
    6: "texts",
    7: "numbers",
    9: "text",
    10: "words",
    11: "numbers",
    13: _ENTRY,
    14: "text",
}
_SPARSE = {1: _TENSOR, 2: _TENSOR, 3: "numbers"}
_NODE: dict[int, Any] = {1: "texts", 2: "texts", 4: "text", 7: "text", 8: "text"}
_GRAPH = {1: _NODE, 5: _TENSOR, 11: {1: "text"}, 12: {1: "text"}, 15: _SPARSE}
_ATTRIBUTE = {
    1: "text",
    2: "real",
    3: "text",
    4: "text",
    5: _TENSOR,
    6: _GRAPH,
    7: "words",
    8: "numbers",
    9: "texts",
    10: _TENSOR,
    11: _GRAPH,
    14: "texts",
    15: "texts",
    20: "text",
    21: "text",
    22: _SPARSE,
    23: _SPARSE,
}
_NODE[5] = _ATTRIBUTE
_OPSET = {1: "text", 2: "text"}
_BODY = {1: "text", 4: "texts", 5: "texts", 6: "texts", 7: _NODE, 9: _OPSET, 10: "text", 11: _ATTRIBUTE, 13: "text"}
"""What of a function says what it computes: all but the names of its nodes, texts, types and metadata."""


@dataclass(frozen=True)
class Head:
    """What a model says of its bundle; `functions` are those that kernels can stand for, each with the SHA-256 of what
    it computes."""

    bundle: str | None
    functions: Mapping[str, str]


def read_head(model: Path | bytes) -> Head:
    """The head of a model, in a file or in memory. Raises ModelError where there is none."""
    where = "the model in memory" if isinstance(model, bytes) else str(model)
    try:
        with io.BytesIO(model) if isinstance(model, bytes) else model.open("rb") as file:
            return _head(file)
    except FileNotFoundError as e:
        raise ModelError("there is no such file", where=where) from e
    except OSError as e:
        raise ModelError(f"cannot be read: {e.strerror or e}", where=where) from e
    except (ValueError, TypeError, RecursionError) as e:
        raise ModelError("this is not an ONNX model", where=where) from e


def _head(file: BinaryIO) -> Head:
    bundle, functions = None, {}
    for number, value in _fields(file, (_METADATA, _FUNCTION)):
        if number == _METADATA:
            entry = dict(_canonical(value, _ENTRY))
            if bundle is None and entry.get(1) == METADATA_KEY.encode():
                bundle = entry.get(2, b"").decode()
        else:
            body = _canonical(value, _BODY)
            said = dict(body)
            if said.get(_DOMAIN) == DOMAIN.encode():
                functions[said.get(_NAME, b"").decode()] = hashlib.sha256(repr(body).encode()).hexdigest()
    return Head(bundle, functions)


def _canonical(message: int | bytes, schema: Mapping[int, Any]) -> list[tuple[int, Any]]:
    """The fields of a schema, in order of their numbers, however they are written: repeated numbers packed or one by
    one, values that are the default written or left out, attributes and imports in any order."""
    found: dict[int, list[int | bytes]] = {}
    for number, value in _fields(_opened(message), schema):
        found.setdefault(number, []).append(value)
    fields = ((number, _value(values, schema[number])) for number, values in sorted(found.items()))
    return [(number, value) for number, value in fields if value]


def _value(values: list[int | bytes], kind: Any) -> Any:
    if isinstance(kind, Mapping):
        messages = [_canonical(v, kind) for v in values]
        return sorted(messages, key=repr) if kind in (_ATTRIBUTE, _OPSET) else messages
    if kind == "numbers":
        return [n for v in values for n in ([v] if isinstance(v, int) else _packed(v))]
    if kind == "words":
        return b"".join(v for v in values if isinstance(v, bytes))
    return values if kind == "texts" else 0 if kind == "real" and values[-1] == bytes(4) else values[-1]


def _packed(data: bytes) -> Iterator[int]:
    file = io.BytesIO(data)
    while file.tell() < len(data):
        yield _number(file)


def _opened(message: int | bytes) -> io.BytesIO:
    if isinstance(message, int):
        raise ValueError("a number where a message belongs")
    return io.BytesIO(message)


def _fields(file: BinaryIO, wanted: Container[int]) -> Iterator[tuple[int, int | bytes]]:
    """Of a message the fields of these numbers: a number, or the bytes of anything else. Raises ValueError."""
    end = file.seek(0, io.SEEK_END)
    file.seek(0)
    while file.tell() < end:
        tag = _number(file)
        number, kind = tag >> 3, tag & 7
        if kind == 0:
            value = _number(file)
            if number in wanted:
                yield number, value
            continue
        if kind not in (1, 2, 5):
            raise ValueError(f"no field of kind {kind}")
        size = {1: 8, 5: 4}[kind] if kind != 2 else _number(file)
        if size > end - file.tell():
            raise ValueError("cut short")
        if number in wanted:
            yield number, file.read(size)
        else:
            file.seek(size, io.SEEK_CUR)


def _number(file: BinaryIO) -> int:
    """A number of seven bits a byte."""
    value = 0
    for shift in range(0, 70, 7):
        byte = file.read(1)
        if not byte:
            raise ValueError("cut short")
        value |= (byte[0] & 127) << shift
        if byte[0] < 128:
            return value
    raise ValueError("a number of more than ten bytes")
