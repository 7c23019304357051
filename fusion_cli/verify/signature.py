"""What must be known of a model to run it and to judge what it gives, without keeping the model."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from fusion_cli.verify.integers import index_bound


@dataclass(frozen=True)
class Input:
    """An input that a caller must give."""

    name: str
    dtype: ir.DataType | None
    is_tensor: bool
    shape: tuple[int | str, ...] | None
    """Numbers, and the names of dimensions; "" for one without."""
    below: int | None
    """What its integers must be less than: the smallest dimension that they index. None if they index nothing."""

    def symbol(self, axis: int) -> str:
        """The name of a dynamic dimension, or one made up for it."""
        assert self.shape is not None
        return str(self.shape[axis]) or f"{self.name}[{axis}]"


@dataclass(frozen=True)
class Signature:
    """The inputs of a model, the element types of its floating-point values as numpy names them, and how many nodes
    read that value, constants aside, which most read."""

    inputs: tuple[Input, ...]
    float_types: frozenset[str]
    most_readers: int


def signature_of(model: ir.Model) -> Signature:
    """The signature of a model as it was loaded. Inputs that have an initializer need not be given."""
    wanted = (v for v in model.graph.inputs if v.name not in model.graph.initializers)
    made = (v for node in model.graph for v in node.outputs)
    most_readers = max((len(v.uses()) for v in (*model.graph.inputs, *made)), default=0)
    return Signature(tuple(map(_input, wanted)), _float_types(model), most_readers)


def _input(value: ir.Value) -> Input:
    is_tensor = value.type is None or isinstance(value.type, ir.TensorType)
    shape = None
    if value.shape is not None:
        shape = tuple(d if isinstance(d, int) else d.value or "" for d in value.shape)
    return Input(value.name or "", value.dtype, is_tensor, shape, index_bound(value))


def _float_types(model: ir.Model) -> frozenset[str]:
    types = {v.dtype for v in (*model.graph.inputs, *model.graph.outputs)}
    for node in model.graph.all_nodes():
        types.update(v.dtype for v in (*node.inputs, *node.outputs) if v is not None)
        if node.op_type == "Cast":
            types.add(ir.DataType(node.attributes.get_int("to", ir.DataType.FLOAT)))
    return frozenset(t.numpy().name for t in types if t is not None and t.is_floating_point())
