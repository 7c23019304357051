"""Convolutions whose channels are split, as one for each part.

ONNX Runtime has no Split in the blocked layout that it keeps images between convolutions in on CPUs: the image is taken
out of it, and the parts are put back. What a convolution for each part makes stays there, and nothing is copied.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

import onnx_ir as ir
from onnx_ir.convenience import replace_all_uses_with

from fusion_cli.operators.registry import is_elementwise
from fusion_cli.simplify.algebra.blocked import BLOCK, IMAGE_RANK
from fusion_cli.simplify.algebra.edits import Applied, array_of, graph_of, is_one_of, only_reader
from fusion_cli.simplify.algebra.layers import Layer, layer_of


def split_convolutions(graph: ir.Graph) -> Iterator[Applied]:
    """Write a Conv whose channels are split as one for each part, with the activations between, in place."""
    for node in list(graph):
        layer = layer_of(node) if is_one_of(node, "Conv") and node.outputs[0].dtype == ir.DataType.FLOAT else None
        if layer is None or layer.groups > 1 or len(layer.shape) != IMAGE_RANK or layer.bias() is None:
            continue
        between = list(_activations(node.outputs[0]))
        split = only_reader((between or [node])[-1].outputs[0])
        if split is not None and (sizes := _sizes(split[0], layer)) is not None:
            _write_parts(layer, between, split[0], sizes)
            yield "ConvSplit", [node, *between, split[0]]


def _activations(value: ir.Value) -> Iterator[ir.Node]:
    """The elementwise nodes that follow on a value, and that nothing else reads any of."""
    while (step := _activation(value)) is not None:
        yield from step
        value = step[-1].outputs[0]


def _activation(value: ir.Value) -> Sequence[ir.Node] | None:
    """The node that alone reads a value, or the two that do where one is a gate, and the other its product."""
    if (reader := only_reader(value)) is not None:
        return [reader[0]] if _is_unary(reader[0], value) else None
    readers = set(value.consumers())
    for gate in readers if len(readers) == 2 and not value.is_graph_output() else ():
        product = only_reader(gate.outputs[0]) if _is_unary(gate, value) else None
        if product is not None and is_one_of(product[0], "Mul") and {gate, product[0]} == readers:
            return [gate, product[0]]
    return None


def _is_unary(node: ir.Node, value: ir.Value) -> bool:
    """Whether a node makes each element of one of the value and of single numbers."""
    others = [array_of(v) for v in node.inputs if v is not None and v is not value]
    is_alone = all(a is not None and a.size == 1 and a.ndim <= IMAGE_RANK for a in others)
    return is_elementwise(node) and len(node.outputs) == 1 and is_alone


def _sizes(split: ir.Node, layer: Layer) -> list[int] | None:
    """How many of the layer's channels each part of a Split has, if all are whole blocks, and nodes alone read them."""
    if not is_one_of(split, "Split"):
        return None
    found = [v.shape[1] for v in split.outputs if v.shape is not None and not v.is_graph_output()]
    sizes = [n for n in found if isinstance(n, int) and n % BLOCK == 0]
    # The parts of another axis would have all channels each.
    return sizes if len(sizes) == len(split.outputs) and sum(sizes) == layer.result.count else None


def _write_parts(layer: Layer, between: Sequence[ir.Node], split: ir.Node, sizes: Sequence[int]) -> None:
    for part, size, end in zip(split.outputs, sizes, accumulate(sizes), strict=True):
        value = _copy(layer.node, [layer.node.inputs[0], *layer.part(slice(end - size, end))], part)
        copies: dict[ir.Value | None, ir.Value] = {layer.node.outputs[0]: value}
        for node in between:
            value = copies[node.outputs[0]] = _copy(node, [copies.get(v, v) for v in node.inputs], part)
        replace_all_uses_with(part, value)
    graph_of(split).remove(split, safe=True)


def _copy(node: ir.Node, inputs: Sequence[ir.Value | None], part: ir.Value) -> ir.Value:
    """What a node makes of the inputs of one part of what is split."""
    split = part.producer()
    assert split is not None
    copy = ir.Node(node.domain, node.op_type, inputs, node.attributes.values(), name=f"{node.name}_{part.name}")
    graph_of(split).insert_before(split, copy)
    value = copy.outputs[0]
    value.name, value.type, value.shape = f"{node.outputs[0].name}_{part.name}", part.type, part.shape
    return value
