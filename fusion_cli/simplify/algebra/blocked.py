"""What is left of affine nodes between convolutions, as batch norms.

ONNX Runtime keeps what lies between convolutions on the CPU in a blocked layout, in which it has batch norms, and no
arithmetic with constants: that takes the image out of the layout and back.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from fusion_cli.operators.versions import opset_version
from fusion_cli.simplify.algebra.affine import Channels, Step, step_at, steps_after, total
from fusion_cli.simplify.algebra.edits import Applied, add_constant, become, graph_of, hand_on, is_hard_swish, is_one_of

_OPSET = 9
"""The first whose batch norms are all by channel."""
_BEFORE = ("AveragePool", "Clip", "Concat", "Conv", "ConvTranspose", "HardSwish", "MaxPool", "Relu")
_BEHIND = ("AveragePool", "Conv", "GlobalAveragePool", "MaxPool")
IMAGE_RANK = 4
"""Of an image: batch, channels, height and width."""
BLOCK = 16
"""Channels that lie together in that layout on CPUs with AVX-512."""
PADDED_THERE = 4
"""Multiples of this, from a block on, are padded by ONNX Runtime's convolutions."""
POOLS = ("AveragePool", "GlobalAveragePool", "MaxPool")
LINKS = ("Add", "Clip", "HardSigmoid", "HardSwish", "LeakyRelu", "Mul", "Relu", "Sigmoid", "Tanh", *POOLS)
"""Operators in that layout that make a channel of that channel alone."""
_NAMES = ("scale", "bias", "mean", "variance")
_EPSILON = 1e-5
"""As ONNX Runtime's kernels on GPUs have it at least; with the variance below it makes one, in float32 too."""


def write_batch_norms(graph: ir.Graph) -> Iterator[Applied]:
    """Write affine nodes between convolutions as a BatchNormalization, in place."""
    for node in list(graph):
        steps = _steps_from(node) if opset_version(node) >= _OPSET else []
        if not steps or not _is_between(steps) or [s.node.op_type for s in steps] == ["BatchNormalization"]:
            continue
        found, channels, last = total(steps), steps[0].channels, steps[-1].node
        numbers = (found.scale, found.shift, np.zeros(1), np.full(1, 1 - _EPSILON))
        parameters = [np.broadcast_to(n, channels.count).astype(np.float32) for n in numbers]
        if not all(np.isfinite(p).all() for p in parameters):
            continue
        name = f"{last.outputs[0].name}_"
        constants = [add_constant(graph_of(node), name + n, p) for n, p in zip(_NAMES, parameters, strict=True)]
        for step in steps[:-1]:
            hand_on(step.node, step.data)
        become(last, "BatchNormalization", [steps[0].data, *constants], ir.AttrFloat32("epsilon", _EPSILON))
        yield "BatchNorm", [s.node for s in steps]


def _steps_from(node: ir.Node) -> list[Step]:
    """The affine nodes from this one on that work on an image in float32 of as many channels as are known."""
    for i, value in enumerate(node.inputs):
        shape = None if value is None else value.shape
        if value is None or value.dtype != ir.DataType.FLOAT or shape is None or len(shape) != IMAGE_RANK:
            continue
        count = shape[1]
        first = step_at(node, i, Channels(count, 1, IMAGE_RANK)) if isinstance(count, int) else None
        if first is None:
            continue
        steps = [first]
        for step in steps_after(node.outputs[0], first.channels):
            if step.data is not steps[-1].node.outputs[0]:
                break  # behind a Transpose
            steps.append(step)
        return steps
    return []


def _is_between(steps: list[Step]) -> bool:
    """Whether what they start from is in the blocked layout, and an operator reads the result that wants it so. Others
    may too, such as the gate of a squeeze and excitation: they take it out of the layout themselves."""
    start, result = steps[0].data.producer(), steps[-1].node.outputs[0]
    wanted = any(is_one_of(n, *_BEHIND) for n, _ in result.uses()) and not result.is_graph_output()
    return bool(start is not None and (is_one_of(start, *_BEFORE) or is_hard_swish(start)) and wanted)
