"""Convolutions along one axis, as those of images of height one.

ONNX Runtime has its blocked layout for images alone. A Conv of rank 3 is a matrix product for each element of the
batch, next to a copy of all that it reads, which takes several times as long where lines are short.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from fusion_cli.operators.versions import opset_version
from fusion_cli.simplify.algebra.blocked import BLOCK, LINKS, PADDED_THERE
from fusion_cli.simplify.algebra.edits import Applied, add_constant, array_of, graph_of, is_one_of
from fusion_cli.simplify.algebra.layers import Layer, layer_of

_RANK = 3
"""Of a line: batch, channels and length."""
_HEIGHT = 2
"""The axis that an image has besides."""
_ENOUGH = 64
"""Products for an element that are worth a way into the layout and back."""
_AXES_INPUT = 13
"""The first opset in which Squeeze and Unsqueeze have their axes as an input."""
_SPATIAL = ("dilations", "kernel_shape", "strides")
"""Attributes with a number for each axis behind the first two."""
_Lifted = dict[ir.Node, Layer | None]
"""Nodes to lift, convolutions with their layer."""


def lift_lines(graph: ir.Graph) -> Iterator[Applied]:
    """Write each Conv of rank 3 that is worth it as one of rank 4, with what lies between two of them, in place."""
    lifted = _lifted(graph)
    images: dict[ir.Value, ir.Value] = {}
    for node, layer in lifted.items():
        _lift_operands(node, images)
        _lift_attributes(node)
        if layer is not None:
            layer.insert_axis(_HEIGHT)
        images[node.outputs[0]] = node.outputs[0]
    for node in lifted:
        _lower(node, lifted)
    if lifted:
        yield "Conv1D", list(lifted)


def _lifted(graph: ir.Graph) -> _Lifted:
    """The nodes to lift, in order: convolutions with their layer, and what lies between them or behind."""
    found: _Lifted = {}
    for node in graph:
        layer = _suitable(node)
        if layer is not None or (_is_link(node) and not found.keys().isdisjoint(_sources(node))):
            found[node] = layer
    leading = _leading(found)
    kept: _Lifted = {}
    for node, layer in found.items():
        is_there = [source in kept for source in _sources(node)]
        if node in leading:
            is_worth_it = layer is not None or any(is_there)
        else:
            is_worth_it = all(is_there) or (layer is not None and _is_enough(layer))
        if is_worth_it:
            kept[node] = layer
    return kept


def _leading(found: _Lifted) -> set[ir.Node]:
    """Those that lead to a convolution which reads its channels more than once."""
    leading: set[ir.Node] = set()
    for node in reversed(found):
        readers = [reader for reader, _ in node.outputs[0].uses() if reader in found]
        if any(reader in leading or _is_wide(found[reader]) for reader in readers):
            leading.add(node)
    return leading


def _sources(node: ir.Node) -> list[ir.Node | None]:
    """What makes the lines that a node reads."""
    operands = node.inputs[:1] if is_one_of(node, "Conv") else node.inputs
    return [v.producer() for v in operands if v is not None and array_of(v) is None]


def _suitable(node: ir.Node) -> Layer | None:
    """A Conv along one axis whose channels the blocked layout takes."""
    layer = layer_of(node) if is_one_of(node, "Conv") and _is_line(node.outputs[0]) else None
    if layer is None or len(layer.shape) != _RANK or layer.result.count < BLOCK:
        return None
    made, read = layer.result.count, layer.source.count
    if layer.groups == 1:
        # Others are padded, which pays for wide ones.
        return layer if read < BLOCK or read % PADDED_THERE == 0 or _is_wide(layer) else None
    if layer.is_depthwise:
        return layer if made % PADDED_THERE == 0 else None
    return layer if (made // layer.groups) % BLOCK == layer.shape[1] % BLOCK == 0 else None


def _is_enough(layer: Layer) -> bool:
    """Whether a convolution by itself gains more than moving its channels costs."""
    return _is_wide(layer) and (layer.is_depthwise or layer.shape[1] * layer.shape[2] >= _ENOUGH)


def _is_wide(layer: Layer | None) -> bool:
    """Whether a convolution reads each channel more than once. Others are matrix products as they are, with no copy."""
    return layer is not None and layer.shape[2] > 1


def _is_link(node: ir.Node) -> bool:
    """Whether a node of lines is one in the layout too."""
    if not is_one_of(node, *LINKS) or len(node.outputs) != 1 or not _is_line(node.outputs[0]):
        return False
    arrays = {v: array_of(v) for v in node.inputs if v is not None}
    return all(_is_line(v) if a is None else a.ndim <= _RANK for v, a in arrays.items())


def _is_line(value: ir.Value) -> bool:
    return value.dtype == ir.DataType.FLOAT and value.shape is not None and len(value.shape) == _RANK


def _lift_operands(node: ir.Node, images: dict[ir.Value, ir.Value]) -> None:
    """Let a node read images in place of lines; `images` has those that there are."""
    operands = node.inputs[:1] if is_one_of(node, "Conv") else node.inputs
    for i, value in enumerate(operands):
        if value is None:
            continue
        array = array_of(value)
        if array is None:
            if value not in images:
                unsqueeze = _move("Unsqueeze", value, node)
                graph_of(node).insert_before(node, unsqueeze)
                images[value] = unsqueeze.outputs[0]
            node.replace_input_with(i, images[value])
        elif array.ndim > 1:
            constant = add_constant(graph_of(node), f"{value.name}_image", np.expand_dims(array, -2))
            node.replace_input_with(i, constant)


def _lift_attributes(node: ir.Node) -> None:
    for name in _SPATIAL:
        if (numbers := node.attributes.get_ints(name)) is not None:
            node.attributes[name] = ir.AttrInt64s(name, [1, *numbers])
    if (pads := node.attributes.get_ints("pads")) is not None:
        node.attributes["pads"] = ir.AttrInt64s("pads", [0, pads[0], 0, pads[1]])


def _lower(node: ir.Node, lifted: _Lifted) -> None:
    """Give the node's result as a line to all that are not lifted."""
    image, graph = node.outputs[0], graph_of(node)
    shape = image.shape
    assert shape is not None
    image.shape = ir.Shape([*shape[:_HEIGHT], 1, *shape[_HEIGHT:]])
    others = [(reader, i) for reader, i in image.uses() if reader not in lifted]
    if not others and not image.is_graph_output():
        return
    squeeze = _move("Squeeze", image, node)
    graph.insert_after(node, squeeze)
    line = squeeze.outputs[0]
    line.shape = shape
    for reader, i in others:
        reader.replace_input_with(i, line)
    if image.is_graph_output():
        line.name, image.name = image.name, line.name
        graph.outputs[:] = [line if v is image else v for v in graph.outputs]


def _move(operator: str, value: ir.Value, beside: ir.Node) -> ir.Node:
    """A node, in no graph yet, that gives a value with the axis of the height or without it, where `beside` is."""
    name, inputs, attributes = f"{value.name}_{operator.lower()}d", [value], []
    if opset_version(beside) < _AXES_INPUT:
        attributes = [ir.AttrInt64s("axes", [_HEIGHT])]
    else:
        inputs.append(add_constant(graph_of(beside), "height", np.array([_HEIGHT])))
    node = ir.Node("", operator, inputs, attributes, name=name)
    node.outputs[0].name, node.outputs[0].type = name, value.type
    return node
