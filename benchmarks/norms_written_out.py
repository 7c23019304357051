"""A network whose norms were folded into its convolutions, as it was before: tf2onnx leaves those that TensorFlow's
graph normalises step by step as Transpose, Sub, Mul, Add, Transpose behind each convolution."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
from onnx import helper, numpy_helper

_FIRST, _LAST = (0, 3, 1, 2), (0, 2, 3, 1)
"""Permutations that put the channels of images first and last."""


def with_norms(data: bytes) -> bytes:
    """The model of a file that computes the same, each of its convolutions that has a bias followed by a norm of its
    own; the same in every run."""
    model = onnx.ModelProto.FromString(data)
    weights = {t.name: t for t in model.graph.initializer}
    rng = np.random.default_rng(0)
    nodes = [made for node in model.graph.node for made in _with_norm(node, weights, model.graph, rng)]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    read = {name for node in nodes for name in node.input}
    kept = [t for t in model.graph.initializer if t.name in read]
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)
    result: bytes = model.SerializeToString()
    return result


def _with_norm(
    node: onnx.NodeProto,
    weights: dict[str, onnx.TensorProto],
    graph: onnx.GraphProto,
    rng: np.random.Generator,
) -> Iterator[onnx.NodeProto]:
    if node.op_type != "Conv" or len(node.input) != 3:
        yield node
        return
    name, kernel, bias = node.output[0], *(numpy_helper.to_array(weights[i]) for i in node.input[1:])
    mean, scale = rng.normal(size=bias.shape), rng.uniform(0.5, 2.0, bias.shape)
    constants = {
        "kernel": kernel / scale.reshape(-1, 1, 1, 1),
        "mean": mean,
        "scale": scale,
        "shift": bias + mean * scale,
    }
    for part, array in constants.items():
        graph.initializer.append(numpy_helper.from_array(array.astype(np.float32), f"{name}/{part}"))
    conv = helper.make_node("Conv", [node.input[0], f"{name}/kernel"], [f"{name}/conv"])
    conv.attribute.extend(node.attribute)
    yield conv
    yield helper.make_node("Transpose", [f"{name}/conv"], [f"{name}/last"], perm=_LAST)
    yield helper.make_node("Sub", [f"{name}/last", f"{name}/mean"], [f"{name}/centred"])
    yield helper.make_node("Mul", [f"{name}/centred", f"{name}/scale"], [f"{name}/scaled"])
    yield helper.make_node("Add", [f"{name}/scaled", f"{name}/shift"], [f"{name}/shifted"])
    yield helper.make_node("Transpose", [f"{name}/shifted"], [name], perm=_FIRST)
