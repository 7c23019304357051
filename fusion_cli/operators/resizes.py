"""Images that a Resize makes larger by repeating each pixel."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from fusion_cli.operators.operands import tensor_of
from fusion_cli.operators.versions import attribute

_FLOOR = frozenset({("asymmetric", "floor"), ("half_pixel", "round_prefer_floor"), (None, None)})
"""How places are chosen so that whole multiples repeat each pixel as often, from the first on; before opset 11 it was
not said."""
_FIRST_OF_TWO = ("asymmetric", "round_prefer_floor")
"""Does so for twice the size."""


def repeats_of(node: ir.Node) -> tuple[int, ...] | None:
    """How often a Resize or Upsample repeats the elements along each axis; None where it does something else."""
    mode = attribute(node, "mode") if node.op_type in ("Resize", "Upsample") and not node.domain else None
    found = _factors(node) if mode in ("nearest", "linear") else None
    if found is None or any(f < 1 or f % 1 for f in found):
        return None
    is_each = _is_of_single_pixels(node, found) if mode == "linear" else _is_of_whole_multiples(node, found)
    return tuple(int(f) for f in found) if is_each else None


def _is_of_whole_multiples(node: ir.Node, factors: Sequence[float]) -> bool:
    """Whether places are chosen so that factors like these repeat each pixel as often."""
    way = tuple(attribute(node, name) for name in ("coordinate_transformation_mode", "nearest_mode"))
    return way in _FLOOR or (way == _FIRST_OF_TWO and max(factors) <= 2)


def _is_of_single_pixels(node: ir.Node, factors: Sequence[float]) -> bool:
    """Whether the operand has one element along each axis that is made longer: what lies between is that one too, as
    where networks pool a whole image and make it as large again (DeepLab)."""
    shape = None if node.inputs[0] is None else node.inputs[0].shape
    within = attribute(node, "coordinate_transformation_mode") != "tf_crop_and_resize"
    return within and shape is not None and all(n == 1 for n, f in zip(shape, factors, strict=True) if f > 1)


def _factors(node: ir.Node) -> Sequence[float] | None:
    """The sizes of the result over those of the operand, where they are known."""
    if node.attributes.get("axes") is not None or node.attributes.get("scales") is not None:
        return None
    scales = tensor_of(node, 1 if len(node.inputs) == 2 else 2)
    if scales is not None and scales.size:
        return [float(s) for s in scales.numpy().tolist()]
    shapes = [None if v is None else v.shape for v in (node.inputs[0], node.outputs[0])]
    sizes = [s.numpy() for s in shapes if s is not None and s.is_static()]
    if len(sizes) < 2 or 0 in sizes[0] or tensor_of(node, 3) is None:
        return None
    return [after / before for before, after in zip(*sizes, strict=True)]
