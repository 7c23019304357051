"""What must be known of a model to run it and to judge what it gives, without keeping the model."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from fusion_cli.operators.registry import MOVES

_INDEXING = {"Gather", "GatherElements"}
"""Operators whose second input holds positions along an axis of their first."""
_FORWARD = MOVES | {"Cast", "Concat", "Slice", "Tile"}
"""Operators that hand the elements of their first input on."""
_MAX_STEPS = 256


Dims = tuple[int | str, ...]
"""Numbers, and the names of dimensions; "" for one without."""


@dataclass(frozen=True)
class Input:
    """An input that a caller must give."""

    name: str
    dtype: ir.DataType | None
    is_tensor: bool
    shape: Dims | None
    below: int | None
    """What its integers must be less than: the smallest dimension that they index. None if they index nothing."""

    def symbol(self, axis: int) -> str:
        """The name of a dynamic dimension, or one made up for it."""
        assert self.shape is not None
        return str(self.shape[axis]) or f"{self.name}[{axis}]"


@dataclass(frozen=True)
class Signature:
    """The inputs of a model, what it says of the shapes of its outputs, the element types of its floating-point values
    as numpy names them, and how many nodes read that value, constants aside, which most read."""

    inputs: tuple[Input, ...]
    outputs: tuple[Dims | None, ...]
    float_types: frozenset[str]
    most_readers: int


def signature_of(model: ir.Model) -> Signature:
    """The signature of a model as it was loaded. Inputs that have an initializer need not be given."""
    wanted = (v for v in model.graph.inputs if v.name not in model.graph.initializers)
    made = (v for node in model.graph for v in node.outputs)
    most_readers = max((len(v.uses()) for v in (*model.graph.inputs, *made)), default=0)
    return Signature(
        tuple(map(_input, wanted)), tuple(map(_declared, model.graph.outputs)), _float_types(model), most_readers
    )


def _input(value: ir.Value) -> Input:
    is_tensor = value.type is None or isinstance(value.type, ir.TensorType)
    return Input(value.name or "", value.dtype, is_tensor, _declared(value), _index_bound(value))


def _declared(value: ir.Value) -> Dims | None:
    if value.shape is None:
        return None
    return tuple(d if isinstance(d, int) else d.value or "" for d in value.shape)


def _float_types(model: ir.Model) -> frozenset[str]:
    types = {v.dtype for v in (*model.graph.inputs, *model.graph.outputs)}
    for node in model.graph.all_nodes():
        types.update(v.dtype for v in (*node.inputs, *node.outputs) if v is not None)
        if node.op_type == "Cast":
            types.add(ir.DataType(node.attributes.get_int("to", ir.DataType.FLOAT)))
    return frozenset(t.numpy().name for t in types if t is not None and t.is_floating_point())


def _index_bound(value: ir.Value) -> int | None:
    """What the integers in `value` must be less than: the smallest dimension that they index.

    None if, as far as can be followed, they index nothing; such an input is most often a mask of zeros and ones.
    """
    bounds: list[int] = []
    pending, seen = [value], {value}
    while pending and len(seen) < _MAX_STEPS:
        for user, index in pending.pop().uses():
            bound = _bound_of(user, index)
            if bound is not None:
                bounds.append(bound)
            elif user.op_type in _FORWARD and (index == 0 or user.op_type == "Concat"):
                fresh = [o for o in user.outputs if o not in seen]
                seen.update(fresh)
                pending.extend(fresh)
    return min(bounds, default=None)


def _bound_of(user: ir.Node, index: int) -> int | None:
    """What `user` allows its input `index` to be less than, if that input holds positions."""
    if user.op_type == "OneHot" and index == 0:
        depth = user.inputs[1].const_value if user.inputs[1] is not None else None
        return None if depth is None else int(depth.numpy().reshape(-1)[0])
    if user.op_type not in _INDEXING or index != 1:
        return None
    data = user.inputs[0]
    axis = user.attributes.get_int("axis", 0)
    if data is None or data.shape is None or not len(data.shape):
        return None
    dim = data.shape[axis]
    return dim if isinstance(dim, int) else None
