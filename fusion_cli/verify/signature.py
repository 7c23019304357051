"""What must be known of a model to run it and to judge what it gives, without keeping the model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import onnx_ir as ir

from fusion_cli.errors import ModelError, did_you_mean
from fusion_cli.operators.registry import MOVES
from fusion_cli.sizes.algebra import names_in
from fusion_cli.sizes.dims import declared, symbol
from fusion_cli.sizes.likely import OpenInput, made_up
from fusion_cli.sizes.parsing import parse, written
from fusion_cli.types import Options

_INDEXING = {"Gather", "GatherElements"}
"""Operators whose second input holds positions along an axis of their first."""
_FORWARD = MOVES | {"Cast", "Concat", "Slice", "Tile"}
"""Operators that hand the elements of their first input on."""
_MAX_STEPS = 256
_SHOWN_NAMES = 8


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

    @property
    def opened(self) -> OpenInput:
        """The input with a name for each dimension that is no number."""
        return OpenInput.of(self.name, self.dtype, self.shape or ())


@dataclass(frozen=True)
class Signature:
    """What is to be known of a model's graph."""

    inputs: tuple[Input, ...]
    outputs: tuple[Dims | None, ...]
    """What the model says of the shapes of its outputs."""
    float_types: frozenset[str]
    """Element types of its floating-point values, as numpy names them."""
    operators: Mapping[str, int]
    """How often each is used, in bodies too; those of other domains as "domain.name"."""
    most_readers: int
    """How many nodes read that value, constants aside, which most read."""
    input_names: frozenset[str]
    """Of all graph inputs, those that need not be given included."""
    size_names: frozenset[str]
    """What sizes are called, in whatever shape."""

    @property
    def nodes(self) -> int:
        """How many there are, in bodies too."""
        return sum(self.operators.values())


def signature_of(model: ir.Model) -> Signature:
    """The signature of a model as it was loaded. Inputs that have an initializer need not be given."""
    wanted = (v for v in model.graph.inputs if v.name not in model.graph.initializers)
    made = (v for node in model.graph for v in node.outputs)
    most_readers = max((len(v.uses()) for v in (*model.graph.inputs, *made)), default=0)
    return Signature(
        tuple(map(_input, wanted)),
        tuple(map(declared, model.graph.outputs)),
        _float_types(model),
        Counter(f"{n.domain}.{n.op_type}" if n.domain else n.op_type for n in model.graph.all_nodes()),
        most_readers,
        frozenset(v.name or "" for v in model.graph.inputs),
        _size_names(model),
    )


def check_names(signature: Signature, options: Options, where: str) -> None:
    """Raises ModelError for a size or an input that `options` name and the model does not have."""
    wanted = [("size", "--dim", name, symbol(name), signature.size_names) for name in options.dims]
    wanted += [("size", "--fix-dim", name, symbol(name), signature.size_names) for name in options.fixed_dims]
    wanted += [("input", "--shape", name, name, signature.input_names) for name in options.shapes]
    for kind, option, name, key, known in wanted:
        if key not in known:
            raise ModelError(f"no {kind} '{name}', which {option} gives", where=where, hint=nearest(name, known))


def nearest(name: str, names: Iterable[str]) -> str:
    """A hint: the nearest of the names that there are, or some of them."""
    known = sorted(set(map(written, names)))
    return did_you_mean(name, known) or f"there are: {', '.join(known[:_SHOWN_NAMES]) or 'none'}"


def _input(value: ir.Value) -> Input:
    is_tensor = value.type is None or isinstance(value.type, ir.TensorType)
    return Input(value.name or "", value.dtype, is_tensor, declared(value), _index_bound(value))


def _float_types(model: ir.Model) -> frozenset[str]:
    types = {v.dtype for v in (*model.graph.inputs, *model.graph.outputs)}
    for node in model.graph.all_nodes():
        types.update(v.dtype for v in (*node.inputs, *node.outputs) if v is not None)
        if node.op_type == "Cast":
            types.add(ir.DataType(node.attributes.get_int("to", ir.DataType.FLOAT)))
    return frozenset(t.numpy().name for t in types if t is not None and t.is_floating_point())


def _size_names(model: ir.Model) -> frozenset[str]:
    """Names of dimensions, and the names these are made of."""
    values = (*model.graph.inputs, *(v for node in model.graph.all_nodes() for v in node.outputs))
    dims = {d.value for v in values for d in v.shape or () if isinstance(d, ir.SymbolicDim) and d.value}
    for value in model.graph.inputs:
        dims |= {made_up(value.name or "", i) for i, d in enumerate(value.shape or ()) if d == ir.SymbolicDim(None)}
    return frozenset(dims.union(*(names_in(parse(dim)) for dim in dims)))


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
