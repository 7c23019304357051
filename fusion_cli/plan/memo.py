"""Plans, each made once: the layers of a model are mostly equal, and so are their regions."""

from __future__ import annotations

from collections.abc import Hashable
from sys import intern

import numpy as np
import onnx_ir as ir

from fusion_cli.operators.versions import opset_version
from fusion_cli.plan.compile import plan_region
from fusion_cli.planir.stages import Plan
from fusion_cli.sizes.algebra import Size, names_in
from fusion_cli.sizes.operations import substitute
from fusion_cli.sizes.parsing import parse
from fusion_cli.types import Region


class Planner:
    """Plans regions of one model; those that differ in nothing but names get the same plan.

    Its tensors and stages are named after the first of them.
    """

    def __init__(self) -> None:
        self._plans: dict[Hashable, Plan] = {}
        self._nodes: dict[ir.Node, Hashable] = {}
        self._types: dict[ir.Value, tuple[ir.DataType | None, tuple[int | str | None, ...] | None]] = {}

    def plan(self, region: Region) -> Plan | None:
        """As `plan_region`, but None where the rule brings its own kernel: that needs no plan. What cannot be planned
        is looked at each time: the reason names the region's values."""
        if region.kernel != "auto":
            return None
        key = self._key(region)
        if key not in self._plans:
            self._plans[key] = plan_region(region)
        return self._plans[key]

    def _key(self, region: Region) -> Hashable:
        """What a plan depends on, with values and symbols by number."""
        number: dict[ir.Value | None, int] = {None: -1}
        for node in (*region.shape_nodes, *region.nodes):
            for value in (*node.inputs, *node.outputs):
                number.setdefault(value, len(number))
        symbols: dict[str, str] = {}
        return (
            tuple((number[v], tensor_text(v.const_value)) for v in region.constants if v.const_value is not None),
            tuple(
                (self._node(n), *(number[v] for v in (*n.inputs, *n.outputs)))
                for n in (*region.shape_nodes, *region.nodes)
            ),
            len(region.shape_nodes),
            len(region.remade),
            region.channels_last,
            tuple(self._type(v, symbols) for v in number if v is not None),
            tuple(number[v] for v in region.inputs),
            tuple(number[v] for v in region.outputs),
            tuple((number[v], *counted) for v, *counted in region.positions),
            tuple(tuple(number[v] for v in (a.scores, a.weights, a.result)) for a in region.attentions),
        )

    def _node(self, node: ir.Node) -> Hashable:
        if node not in self._nodes:
            self._nodes[node] = (
                node.domain,
                node.op_type,
                opset_version(node),
                tuple((name, attribute_text(a)) for name, a in sorted(node.attributes.items())),
                len(node.inputs),
                tuple(bool(v.uses()) or v.is_graph_output() for v in node.outputs),
            )
        return self._nodes[node]

    def _type(self, value: ir.Value, symbols: dict[str, str]) -> Hashable:
        if value not in self._types:
            dims = None if value.shape is None else tuple(d if isinstance(d, int) else d.value for d in value.shape)
            self._types[value] = value.dtype, dims
        dtype, dims = self._types[value]
        return dtype, dims and tuple(_renamed(d, symbols) if isinstance(d, str) else d for d in dims)


def _renamed(dimension: str, symbols: dict[str, str]) -> str:
    """A dimension with its names by order of appearance; `symbols` remembers them, and whole dimensions."""
    if dimension not in symbols:
        size = parse(dimension)
        numbered = {n: Size(1, (symbols.setdefault(n, f"?{len(symbols)}"),)) for n in names_in(size)}
        symbols.setdefault(dimension, intern(str(substitute(size, numbered))))  # one text in thousands of keys
    return symbols[dimension]


def attribute_text(attribute: ir.Attr) -> str:
    """An attribute's value, equal for equal ones."""
    return tensor_text(attribute.as_tensor()) if attribute.type == ir.AttributeType.TENSOR else str(attribute.value)


def tensor_text(tensor: ir.TensorProtocol) -> str:
    """A small tensor's elements, with their type and shape."""
    array = tensor.numpy()
    return f"{array.dtype}{array.shape}{np.ascontiguousarray(array).tobytes().hex()}"
