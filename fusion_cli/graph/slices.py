"""What a Slice takes, in one form: axes from the end and in order, bounds counted from the start where the size is
known, steps written out. Patterns can then say that two slices meet at one place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import onnx_ir as ir

_END = 2**63 - 1
_MANY = 2**31 - 1
"""From here on an end is "the last one": exporters write the largest number of 32 or of 64 bits."""


def canonical_slice(node: ir.Node, found: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes of a Slice, given those that are written or constant. A bound that is computed at run time is
    the value that it is read from, so that two slices can be seen to read the same."""
    bounds = dict(found)
    for i, name in ((1, "starts"), (2, "ends")):
        if name not in bounds and len(node.inputs) > i and node.inputs[i] is not None:
            bounds[name] = [node.inputs[i]]
    if len(node.inputs) < 4 and "starts" in found:
        bounds.setdefault("axes", list(range(len(found["starts"]))))
    if len(node.inputs) < 5 and "axes" in bounds:
        bounds["steps"] = [1] * len(bounds["axes"])
    names = ("axes", "starts", "ends", "steps")
    if any(name not in bounds or len(bounds[name]) != len(bounds["axes"]) for name in names):
        return bounds
    shape = node.inputs[0].shape if node.inputs[0] is not None else None
    rows = sorted(
        (_counted(shape, *row) for row in zip(*(bounds[n] for n in names), strict=True)), key=lambda row: int(row[0])
    )
    return {**bounds, **{name: [row[i] for row in rows] for i, name in enumerate(names)}}


def _counted(shape: ir.Shape | None, axis: int, start: Any, end: Any, step: int) -> tuple[int, Any, Any, int]:
    """One axis of a slice; its bounds counted from the start, and no further than to the end."""
    size = shape[axis] if shape is not None else None
    if shape is not None and axis >= 0:
        axis -= len(shape)
    if step < 1:
        return axis, start, end, step
    if isinstance(end, int) and end >= _MANY:
        end = _END
    if isinstance(size, int):
        start, end = (min(max(b + size if b < 0 else b, 0), size) if isinstance(b, int) else b for b in (start, end))
    return axis, start, end, step
