"""A double-precision interpreter for the operators of the example graphs, on PyTorch (needs torch).

It says what a model computes, apart from rounding, and shares no code with the kernels under test.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch import Tensor
from torch.nn import functional

Attributes = Mapping[str, Any]


def run(model: onnx.ModelProto, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The outputs of `model` in float64, on the device of the inputs. KeyError for an operator that is not known."""
    device = next(iter(inputs.values())).device
    values = {name: _wide(tensor) for name, tensor in inputs.items()}
    for tensor in model.graph.initializer:
        array = torch.from_numpy(numpy_helper.to_array(tensor).copy())
        # Integers are shapes and axes, which stay where the shape arithmetic is done.
        values[tensor.name] = array.to(device, torch.float64) if array.is_floating_point() else array
    last_use = {name: i for i, node in enumerate(model.graph.node) for name in node.input}
    outputs = {value.name for value in model.graph.output}
    for i, node in enumerate(model.graph.node):
        attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        values[node.output[0]] = OPS[node.op_type](attributes, *[values[name] for name in node.input])
        for name in set(node.input) - outputs:
            if last_use[name] == i:
                del values[name]
    return {name: values[name] for name in outputs}


def _wide(tensor: Tensor) -> Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor


def _ints(tensor: Tensor) -> list[int]:
    return [int(n) for n in tensor.reshape(-1).tolist()]


def _constant(attributes: Attributes) -> Tensor:
    return _wide(torch.from_numpy(np.array(numpy_helper.to_array(attributes["value"]))))


def _shape(attributes: Attributes, x: Tensor) -> Tensor:
    return torch.tensor(x.shape[attributes.get("start", 0) : attributes.get("end")])


def _gather(attributes: Attributes, x: Tensor, index: Tensor) -> Tensor:
    axis = attributes.get("axis", 0)
    picked = x.index_select(axis, index.reshape(-1).to(x.device))
    return picked.reshape([*x.shape[:axis], *index.shape, *x.shape[axis + 1 :]])


def _reshape(attributes: Attributes, x: Tensor, shape: Tensor) -> Tensor:
    sizes = _ints(shape)
    if not attributes.get("allowzero", 0):
        sizes = [n or x.shape[i] for i, n in enumerate(sizes)]
    return x.reshape(sizes)


def _unsqueeze(attributes: Attributes, x: Tensor, axes: Tensor) -> Tensor:
    for axis in sorted(_ints(axes)):
        x = x.unsqueeze(axis)
    return x


def _layer_norm(attributes: Attributes, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    assert attributes.get("axis", -1) == -1
    return functional.layer_norm(x, x.shape[-1:], weight, bias, attributes.get("epsilon", 1e-5))


def _attention(attributes: Attributes, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    assert not attributes.get("is_causal", 0)
    assert q.dim() == 4
    scale = attributes.get("scale", q.shape[-1] ** -0.5)
    return torch.softmax(scale * (q @ k.transpose(-2, -1)), dim=-1) @ v


def _conv(attributes: Attributes, x: Tensor, w: Tensor, bias: Tensor | None = None) -> Tensor:
    pads = attributes["pads"]
    half = len(pads) // 2
    assert pads[:half] == pads[half:]
    return functional.conv2d(
        x, w, bias, attributes["strides"], pads[:half], attributes["dilations"], attributes["group"]
    )


def _batch_norm(attributes: Attributes, x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, var: Tensor) -> Tensor:
    return functional.batch_norm(x, mean, var, scale, bias, eps=attributes["epsilon"])


OPS: Mapping[str, Callable[..., Tensor]] = {
    "Add": lambda a, x, y: x + y,
    "Attention": _attention,
    "BatchNormalization": _batch_norm,
    "Concat": lambda a, *xs: torch.cat(xs, a["axis"]),
    "Constant": _constant,
    "Conv": _conv,
    "Div": lambda a, x, y: x / y,
    "Gather": _gather,
    "LayerNormalization": _layer_norm,
    "MatMul": lambda a, x, y: x @ y,
    "Mul": lambda a, x, y: x * y,
    "Pow": lambda a, x, y: x**y,
    "ReduceMean": lambda a, x: x.mean(a["axes"], keepdim=bool(a["keepdims"])),
    "Relu": lambda a, x: x.relu(),
    "Reshape": _reshape,
    "Shape": _shape,
    "Sigmoid": lambda a, x: x.sigmoid(),
    "Softmax": lambda a, x: x.softmax(a["axis"]),
    "Sqrt": lambda a, x: x.sqrt(),
    "Sub": lambda a, x, y: x - y,
    "Transpose": lambda a, x: x.permute(a["perm"]),
    "Unsqueeze": _unsqueeze,
}
