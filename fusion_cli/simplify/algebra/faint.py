"""Weights that training has given up.

Decay leaves the weights of a dead channel with numbers near the smallest that there are. Processors take a hundred
cycles and more for a product with a subnormal number, so that two such layers can take most of a model's time.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from fusion_cli.load.overridable import is_constant
from fusion_cli.simplify.algebra.edits import Applied, Array, is_one_of
from fusion_cli.simplify.algebra.layers import LAYERS, MOST_BYTES

_LEAST = np.float32(2.0**-100)
"""Below it a weight is none: products with activations of any use stay below the last bit of whatever they are added
to, or are subnormal themselves, which is as slow."""
_PARAMETERS = {**dict.fromkeys(LAYERS, (1, 2)), "BatchNormalization": (1, 2, 3)}
"""Operands that are multiplied by or added to data; not a variance, which is divided by."""


def drop_faint(graph: ir.Graph) -> Iterator[Applied]:
    """Write zeros for weights and biases in float32 that are smaller than any that matter, in place."""
    seen: set[ir.Value] = set()
    for node in graph:
        given = (v for i, v in enumerate(node.inputs) if v is not None and _is_parameter(node, i))
        values = [v for v in given if v not in seen]
        seen.update(values)
        faint = [(value, array) for value in values if (array := _without_faint(value)) is not None]
        for value, array in faint:
            value.const_value = ir.Tensor(array, name=value.name)
        if faint:
            yield "FaintWeight", [node]


def _is_parameter(node: ir.Node, index: int) -> bool:
    return is_one_of(node, *_PARAMETERS) and index in _PARAMETERS[node.op_type]


def _without_faint(value: ir.Value) -> Array | None:
    """A constant with zeros for what is faint; None where nothing is, or something else reads it."""
    tensor = value.const_value
    if tensor is None or tensor.dtype != ir.DataType.FLOAT or not 0 < tensor.nbytes <= MOST_BYTES:
        return None
    if not is_constant(value) or value.is_graph_output() or not all(_is_parameter(*use) for use in value.uses()):
        return None
    array = tensor.numpy()
    faint = np.abs(array) < _LEAST
    return np.where(faint, np.float32(0), array) if array[faint].any() else None
