"""Write a model as one file, its weights straight from the files they lie in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import onnx
import onnx_ir as ir

from fusion_cli.load.weights import InModelFile, message

# Field numbers of onnx.proto.
_GRAPH, _INITIALIZER, _RAW_DATA = 7, 5, 9


def write_model(model: ir.Model, path: Path) -> None:
    """Serialize the model to `path`: what `onnx_ir.save` writes, in constant memory for weights that are in files."""
    proto = ir.to_proto(model)
    weights = model.graph.initializers
    tensors = [list(_initializer(t, weights[t.name].const_value)) for t in proto.graph.initializer]
    proto.graph.ClearField("initializer")
    graph = proto.graph.SerializeToString()
    proto.ClearField("graph")
    size = sum(part.nbytes if isinstance(part, InModelFile) else len(part) for parts in tensors for part in parts)
    with path.open("wb") as file:
        file.write(proto.SerializeToString())
        for piece in message(_GRAPH, graph, more=size):
            file.write(piece)
        for part in (part for parts in tensors for part in parts):
            if isinstance(part, InModelFile):
                part.tofile(file)
            else:
                file.write(part)


def _initializer(proto: onnx.TensorProto, tensor: ir.TensorProtocol | None) -> Iterator[bytes | InModelFile]:
    """The field of one initializer in pieces."""
    if not isinstance(tensor, InModelFile):
        yield from message(_INITIALIZER, proto.SerializeToString())
        return
    proto.ClearField("data_location")
    proto.ClearField("external_data")
    head = proto.SerializeToString() + next(message(_RAW_DATA, b"", more=tensor.nbytes))
    yield from message(_INITIALIZER, head, more=tensor.nbytes)
    yield tensor
