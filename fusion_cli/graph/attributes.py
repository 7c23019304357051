"""The attributes of a node in one form, however its opset and its exporter write them.

Axes as an attribute or as an input, negative or not, defaults left out, Einsum equations in any letters: patterns are
written against one canonical form, so that no rule needs an overload for it.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from fusion_cli.operators.versions import INPUT_ATTRIBUTES, defaults, is_over_later_axes

Constant = Callable[[ir.Value | None], np.ndarray[Any, Any] | None]
"""The array of a value, if it is a small constant."""
_END = 2**63 - 1
_MANY = 2**31 - 1
"""From here on an end is "the last one": exporters write the largest number of 32 or of 64 bits."""


def canonical_attributes(node: ir.Node, opset: int, constant: Constant) -> Mapping[str, Any]:
    """The node's attributes by name: defaults filled in, those that are inputs taken from constants, axes counted from
    the end, equations in the letters a, b, c..."""
    found: dict[str, Any] = {**defaults(node.domain, node.op_type, opset), **_written(node)}
    if not node.domain:
        found.update(_from_inputs(node, constant))
        if node.op_type == "Slice":
            found = _canonical_slice(node, found)
    rank = _rank(node)
    for name in ("axis", "axes"):
        if name in found and rank:
            found[name] = _from_end(found[name], rank)
    if is_over_later_axes(node) and found["axis"] != -1:
        found["axis"] = list(range(found["axis"], 0))
    if "equation" in found:
        found["equation"] = canonical_equation(found["equation"])
    return found


def _written(node: ir.Node) -> dict[str, Any]:
    graphs = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)
    return {
        name: list(a.value) if a.type == ir.AttributeType.INTS else a.value
        for name, a in node.attributes.items()
        if not a.is_ref() and a.type not in graphs
    }


def _from_inputs(node: ir.Node, constant: Constant) -> dict[str, list[int]]:
    found = {}
    for i, value in enumerate(node.inputs):
        name = INPUT_ATTRIBUTES.get((node.op_type, i))
        array = constant(value) if name is not None else None
        if name is not None and array is not None:
            found[name] = [int(x) for x in array.ravel()]
    return found


def _rank(node: ir.Node) -> int:
    """The rank that the node's axes count in; 0 if unknown."""
    source = node.outputs[0] if node.op_type == "Unsqueeze" else (node.inputs[0] if node.inputs else None)
    return len(source.shape) if source is not None and source.shape is not None else 0


def _from_end(axes: Any, rank: int) -> Any:
    if isinstance(axes, int):
        return axes - rank if axes >= 0 else axes
    return sorted(a - rank if a >= 0 else a for a in axes)


def canonical_equation(equation: str) -> str:
    """An Einsum equation with its output written out and its labels renamed in order of appearance."""
    terms, arrow, result = equation.replace(" ", "").partition("->")
    if not arrow:
        once = sorted(c for c in set(terms) if c.isalpha() and terms.count(c) == 1)
        result = ("..." if "..." in terms else "") + "".join(once)
    labels = "".join(dict.fromkeys(c for c in terms if c.isalpha()))
    return f"{terms}->{result}".translate(str.maketrans(labels, string.ascii_letters[: len(labels)]))


def _canonical_slice(node: ir.Node, found: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes of a Slice, given those that are written or constant: axes from the end and in order, bounds
    counted from the start where the size is known, steps written out. A bound that is computed at run time is the value
    that it is read from, so that two slices can be seen to read the same, or to meet at one place."""
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
