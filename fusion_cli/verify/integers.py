"""What an integer input of a model is for, told by the operators that use it."""

from __future__ import annotations

import onnx_ir as ir

from fusion_cli.operators.registry import MOVES

_INDEXING = {"Gather", "GatherElements"}
"""Operators whose second input holds positions along an axis of their first."""
_FORWARD = MOVES | {"Cast", "Concat", "Slice", "Tile"}
"""Operators that hand the elements of their first input on."""
_MAX_STEPS = 256


def index_bound(value: ir.Value) -> int | None:
    """What the integers in `value` must be less than: the smallest dimension that they index.

    None if, as far as can be followed, they index nothing; such an input is most often a mask of zeros and ones.
    """
    bounds: list[int] = []
    pending, seen = [value], {value}
    while pending and len(seen) < _MAX_STEPS:
        for user, index in pending.pop().uses():
            bound = _bound(user, index)
            if bound is not None:
                bounds.append(bound)
            elif user.op_type in _FORWARD and (index == 0 or user.op_type == "Concat"):
                fresh = [o for o in user.outputs if o not in seen]
                seen.update(fresh)
                pending.extend(fresh)
    return min(bounds, default=None)


def _bound(user: ir.Node, index: int) -> int | None:
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
