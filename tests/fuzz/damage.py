"""Models that are wrong in one place or a few: a field, a name, a type, a size, a node, a byte."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

_NUMBERS = (0, 1, -1, 2, 7, 64, -64, 1 << 31, -(1 << 31), (1 << 62), -(1 << 63), (1 << 63) - 1)
_NAMES = (
    "",
    "x0",
    "\n::error::forged",
    "\x1b[31m",
    "../../etc/passwd",
    "$(id)",
    "a" * 5000,
    "\u202e",
    "%s%n",
    "9**9**9",
)
_MOST_FIELDS = 3


def damage(model: onnx.ModelProto, rng: Random) -> bytes:
    """The file of a model after a few changes, of which none is in its bytes or all are."""
    changed = onnx.ModelProto.FromString(model.SerializeToString())
    if rng.random() < 0.2:
        return _in_bytes(bytearray(changed.SerializeToString()), rng)
    for _ in range(rng.randrange(1, _MOST_FIELDS + 1)):
        try:
            rng.choice(_CHANGES)(changed, rng)
        except (IndexError, ValueError, TypeError):
            continue  # there is no such thing to change
    data: bytes = changed.SerializeToString()
    return data


def _in_bytes(data: bytearray, rng: Random) -> bytes:
    match rng.randrange(3):
        case 0:
            return bytes(data[: rng.randrange(len(data))])
        case 1:
            at = rng.randrange(len(data))
            return bytes(data[:at] + data[at + rng.randrange(1, 8) :])
    for _ in range(rng.choice((1, 1, 4))):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(data)


def _node(model: onnx.ModelProto, rng: Random) -> onnx.NodeProto:
    return rng.choice(model.graph.node)


def _value(model: onnx.ModelProto, rng: Random) -> onnx.ValueInfoProto:
    graph = model.graph
    return rng.choice((*graph.input, *graph.output, *graph.value_info))


def _operator(model: onnx.ModelProto, rng: Random) -> None:
    others = [n.op_type for n in model.graph.node]
    _node(model, rng).op_type = rng.choice((*others, "Loop", "If", "Scan", "Einsum", "TopK", "Nothing", "FusedMatMul"))


def _domain(model: onnx.ModelProto, rng: Random) -> None:
    _node(model, rng).domain = rng.choice(("com.microsoft", "ai.onnx.ml", "fusion", "nowhere", "ai.onnx"))


def _input(model: onnx.ModelProto, rng: Random) -> None:
    node, other = _node(model, rng), _node(model, rng)
    node.input[rng.randrange(len(node.input))] = rng.choice(("", "nothing", *other.input, *other.output))


def _inputs(model: onnx.ModelProto, rng: Random) -> None:
    node = _node(model, rng)
    match rng.randrange(3):
        case 0:
            del node.input[rng.randrange(len(node.input)) :]
        case 1:
            node.input.append(rng.choice(node.input))
        case _:
            node.input[:] = reversed(list(node.input))


def _output(model: onnx.ModelProto, rng: Random) -> None:
    node = _node(model, rng)
    match rng.randrange(3):
        case 0:
            node.output.append("more")
        case 1:
            del node.output[-1:]
        case _:
            node.output[0] = rng.choice(_node(model, rng).output)


def _attribute(model: onnx.ModelProto, rng: Random) -> None:
    attribute = rng.choice(rng.choice([n for n in model.graph.node if n.attribute]).attribute)
    match rng.randrange(5):
        case 0:
            attribute.type = rng.choice((0, 1, 2, 3, 4, 5, 6, 7, 8))
        case 1:
            attribute.name = rng.choice(("axis", "to", "perm", "", "axes", "mode"))
        case 2:
            attribute.i = rng.choice(_NUMBERS)
        case 3:
            attribute.ints.append(rng.choice(_NUMBERS))
        case _:
            attribute.ref_attr_name = "other"


def _new_attribute(model: onnx.ModelProto, rng: Random) -> None:
    name, value = rng.choice(("axis", "keepdims", "alpha", "perm", "to", "transA", "group", "epsilon")), 0
    value = rng.choice((rng.choice(_NUMBERS), float("nan"), [rng.choice(_NUMBERS)], "text", []))
    _node(model, rng).attribute.append(
        helper.make_attribute(name, value, attr_type=onnx.AttributeProto.INTS if value == [] else None)
    )


def _size(model: onnx.ModelProto, rng: Random) -> None:
    dims = _value(model, rng).type.tensor_type.shape.dim
    match rng.randrange(4):
        case 0:
            rng.choice(dims).dim_value = rng.choice(_NUMBERS)
        case 1:
            rng.choice(dims).dim_param = rng.choice((*_NAMES, "a", "b", "a+b", "a*0", "-1", "((("))
        case 2:
            del dims[-1:]
        case _:
            dims.add(dim_value=rng.choice(_NUMBERS))


def _type(model: onnx.ModelProto, rng: Random) -> None:
    _value(model, rng).type.tensor_type.elem_type = rng.randrange(0, 26)


def _tensor(model: onnx.ModelProto, rng: Random) -> None:
    tensor = rng.choice(model.graph.initializer)
    match rng.randrange(6):
        case 0:
            tensor.data_type = rng.randrange(0, 26)
        case 1:
            tensor.dims.append(rng.choice(_NUMBERS))
        case 2:
            tensor.raw_data = tensor.raw_data[: rng.randrange(len(tensor.raw_data) + 1)]
        case 3:
            tensor.name = rng.choice(_NAMES)
        case 4:
            tensor.data_location = TensorProto.EXTERNAL
            location = rng.choice(("../secret", "/etc/passwd", "m.onnx", "", "a\0b", "none.data"))
            tensor.external_data.add(key="location", value=location)
        case _:
            array = numpy_helper.to_array(tensor)
            number = rng.choice(_NUMBERS) if array.dtype.kind == "i" else np.nan
            other = np.full(array.shape, number).astype(array.dtype)
            tensor.CopyFrom(numpy_helper.from_array(other, tensor.name))


def _name(model: onnx.ModelProto, rng: Random) -> None:
    rng.choice((_node(model, rng), _value(model, rng), model.graph)).name = rng.choice(_NAMES)


def _order(model: onnx.ModelProto, rng: Random) -> None:
    nodes = [onnx.NodeProto.FromString(n.SerializeToString()) for n in model.graph.node]
    match rng.randrange(3):
        case 0:
            rng.shuffle(nodes)
        case 1:
            nodes.append(rng.choice(nodes))
        case _:
            del nodes[rng.randrange(len(nodes))]
    del model.graph.node[:]
    model.graph.node.extend(nodes)


def _version(model: onnx.ModelProto, rng: Random) -> None:
    match rng.randrange(3):
        case 0:
            model.opset_import[0].version = rng.choice((*_NUMBERS, 7, 9, 11, 12, 13, 17, 21, 23))
        case 1:
            model.ir_version = rng.choice((0, 1, 3, 10, 99))
        case _:
            del model.opset_import[:]


def _metadata(model: onnx.ModelProto, rng: Random) -> None:
    value = rng.choice((*_NAMES, "../x", "0.1.0"))
    model.metadata_props.add(key=rng.choice(("fusion.version", "fusion.bundle")), value=value)


def _function(model: onnx.ModelProto, rng: Random) -> None:
    """The nodes as a function that is called; of the name of another or of itself now and then."""
    node, name = _node(model, rng), rng.choice(("F", "Relu", "G"))
    body = onnx.NodeProto.FromString(node.SerializeToString())
    if rng.random() < 0.3:
        body.op_type, body.domain = name, "f"
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("f", 1)]
    made = helper.make_function(
        "f", name, list(dict.fromkeys(i for i in body.input if i)), body.output, [body], imports
    )
    model.functions.append(made)
    model.opset_import.append(imports[1])
    node.op_type, node.domain = name, "f"
    node.input[:] = made.input
    del node.attribute[:]


_CHANGES: tuple[Callable[[onnx.ModelProto, Random], None], ...] = (
    *(_operator, _input, _inputs, _output, _attribute, _new_attribute, _size, _type, _tensor, _order) * 2,
    *(_domain, _name, _version, _metadata, _function),
)
