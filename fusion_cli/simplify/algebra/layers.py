"""Layers with constant weights, which take numbers by channel into them: Conv, ConvTranspose, Gemm and MatMul."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from fusion_cli.load.overridable import is_constant
from fusion_cli.operators.dtypes import ONNX_FLOATS
from fusion_cli.operators.versions import attribute
from fusion_cli.simplify.algebra.affine import Affine, Channels
from fusion_cli.simplify.algebra.edits import (
    Array,
    add_constant,
    array_of,
    count_uses,
    graph_of,
    in_float64,
    is_one_of,
    rounded,
)

LAYERS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
MOST_BYTES = 1 << 26
"""Larger weights stay in the file that they are in."""
_FLOAT32 = np.finfo(np.float32)


@dataclass(frozen=True, eq=False)
class Layer:
    """A node, its weight, and in which order that has the channels that are read and made.

    With groups, the second axis of a weight counts channels within a group.
    """

    node: ir.Node
    weight: ir.Value
    shape: tuple[int, ...]
    by_output: bool
    """Whether the first axis of the weight is that of the channels that are made."""
    groups: int
    source: Channels
    result: Channels

    @property
    def takes_bias(self) -> bool:
        return self.node.op_type != "MatMul"

    @property
    def takes_shift(self) -> bool:
        """Whether a shift of what it reads is one of its bias. What is padded with zeros is none at the border."""
        if self.node.op_type != "Conv":
            return self.node.op_type == "Gemm"
        pads = self.node.attributes.get_ints("pads") or ()
        return not any(pads) and attribute(self.node, "auto_pad") in ("NOTSET", "VALID")

    @property
    def is_depthwise(self) -> bool:
        """Whether each channel is made of the one in its place alone."""
        return self.by_output and self.groups == self.source.count == self.result.count

    def bias(self) -> Array | None:
        """A number for each channel, in float64; None if that is not constant."""
        value = self.node.inputs[2] if len(self.node.inputs) > 2 else None
        if value is None:
            return np.zeros(self.result.count)
        found = array_of(value)
        numbers = None if found is None else Channels(self.result.count, 1, 2).numbers(found)
        return None if numbers is None else numbers * self._factor("beta") * np.ones(self.result.count)

    def take(self, before: Affine, after: Affine) -> bool:
        """Let the layer do `before` to what it reads and `after` to what it makes; False, and nothing is changed, where
        its numbers would not fit their type."""
        exact, bias = in_float64(self.weight.const_value), self.bias()
        if bias is None:
            return False
        if before.is_shifting:
            bias = bias + self._factor("alpha") * self._rows(exact * self._read(before.shift)).sum(axis=1)
        bias = bias * after.scale + after.shift
        least = self._faint(exact, after.scale)
        exact = exact * self._read(before.scale) * self._made(after.scale)
        weight, vector = rounded(self._rows(exact), self.weight.dtype, least), rounded(bias[None], self.weight.dtype)
        if weight is None or vector is None:
            return False
        if before.is_scaling or after.is_scaling:
            self.weight.const_value = ir.Tensor(exact.astype(weight.dtype), name=self.weight.name)
        if self.takes_bias:
            self._set_bias(vector[0])
        return True

    def pad(self, made: int = 0, read: int = 0) -> None:
        """Let a Conv make, and read, so many channels of zeros more: a depthwise one as many of either."""
        assert self.weight.const_value is not None
        array = np.pad(self.weight.const_value.numpy(), [(0, made), (0, read), *[(0, 0)] * (len(self.shape) - 2)])
        self._set_weight(array)
        if made and (bias := self.bias()) is not None:
            self._set_bias(np.pad(bias, (0, made)).astype(array.dtype))
        if self.is_depthwise:
            self.node.attributes["group"] = ir.AttrInt64("group", self.groups + made)

    def become(self, kernel: Array, bias: Array) -> None:
        """Let a Conv have this weight and bias, of their type."""
        self._set_weight(kernel)
        self._set_bias(bias)

    def insert_axis(self, axis: int) -> None:
        """Let the weight of a Conv have one axis more, of one place. It and the bias are constants of the node's own
        graph then: ONNX Runtime takes convolutions of bodies into its blocked layout with such alone."""
        graph, bias = graph_of(self.node), self.node.inputs[2] if len(self.node.inputs) > 2 else None
        assert self.weight.const_value is not None
        weight = np.expand_dims(self.weight.const_value.numpy(), axis)
        self.node.replace_input_with(1, add_constant(graph, str(self.weight.name), weight))
        if (array := array_of(bias)) is not None:
            self.node.replace_input_with(2, add_constant(graph, f"{self.weight.name}_bias", array))

    def part(self, channels: slice) -> list[ir.Value]:
        """The weight and, where it has one, the bias that make some of a Conv's channels, as constants of its graph."""
        assert self.weight.const_value is not None
        arrays = {self.weight.name: self.weight.const_value.numpy()}
        if len(self.node.inputs) > 2 and (bias := self.bias()) is not None:
            arrays[f"{self.weight.name}_bias"] = bias.astype(arrays[self.weight.name].dtype)
        return [add_constant(graph_of(self.node), str(name), array[channels]) for name, array in arrays.items()]

    def _faint(self, weight: Array, factor: Array) -> Array:
        """What a row may lose at least: the last bit of float32 where its numbers, or what they are multiplied by, are
        subnormal, and so have no more of it themselves. Channels that training has given up are left with such."""
        largest = np.minimum(np.abs(self._rows(weight)).max(axis=1), np.abs(factor))
        return np.where(largest < _FLOAT32.tiny, float(_FLOAT32.smallest_subnormal), 0.0)

    def _set_weight(self, array: Array) -> None:
        self.weight.const_value, self.weight.shape = ir.Tensor(array, name=self.weight.name), ir.Shape(array.shape)

    def _set_bias(self, vector: Array) -> None:
        given = self.node.inputs[2] if len(self.node.inputs) > 2 else None
        if given is None and not vector.any():
            return
        name = f"{self.weight.name}_bias" if given is None else str(given.name)
        self.node.resize_inputs(3)
        self.node.replace_input_with(2, add_constant(graph_of(self.node), name, vector))
        self.node.attributes.pop("beta", None)

    def _factor(self, name: str) -> float:
        """What a Gemm multiplies by."""
        found = attribute(self.node, name)
        return 1.0 if found is None else float(found)

    def _read(self, numbers: Array) -> Array:
        """Numbers of the channels that are read, as they meet the weight."""
        return self._second(numbers) if self.by_output else self._first(numbers)

    def _made(self, numbers: Array) -> Array:
        return self._first(numbers) if self.by_output else self._second(numbers)

    def _first(self, numbers: Array) -> Array:
        return numbers.reshape(-1, *[1] * (len(self.shape) - 1))

    def _second(self, numbers: Array) -> Array:
        if numbers.size > 1:
            numbers = np.repeat(numbers.reshape(self.groups, -1), self.shape[0] // self.groups, axis=0)
        return numbers.reshape(*(numbers.shape if numbers.ndim == 2 else (1, 1)), *[1] * (len(self.shape) - 2))

    def _rows(self, weight: Array) -> Array:
        """The weight as a row for each channel that is made."""
        if self.by_output:
            return weight.reshape(self.shape[0], -1)
        grouped = weight.reshape(self.groups, self.shape[0] // self.groups, self.shape[1], -1)
        return grouped.swapaxes(1, 2).reshape(self.result.count, -1)


def layer_of(node: ir.Node) -> Layer | None:
    """The node as a layer; None if it is none, or has weights that are not its own."""
    if not is_one_of(node, *LAYERS) or node.inputs[0] is None:
        return None
    weight = node.inputs[1]
    if weight is None or not _is_own(weight):
        return None
    tensor = weight.const_value
    if tensor is None or tensor.dtype not in ONNX_FLOATS or not 0 < tensor.nbytes <= MOST_BYTES:
        return None
    shape = tuple(tensor.shape.numpy())
    return _product(node, weight, shape) if node.op_type in ("Gemm", "MatMul") else _convolution(node, weight, shape)


def _is_own(weight: ir.Value) -> bool:
    """Whether a weight is a constant that nothing else reads."""
    is_read_once = count_uses(weight) == 1 and not weight.is_graph_output()
    return is_read_once and weight.is_initializer() and is_constant(weight)


def _convolution(node: ir.Node, weight: ir.Value, shape: tuple[int, ...]) -> Layer | None:
    groups, by_output = node.attributes.get_int("group", 1) or 1, node.op_type == "Conv"
    if len(shape) < 3 or shape[0] % groups:
        return None
    read, made = shape[1] * groups, shape[0]
    source, result = (read, made) if by_output else (made, read)
    rank = len(shape)
    return Layer(node, weight, shape, by_output, groups, Channels(source, 1, rank), Channels(result, 1, rank))


def _product(node: ir.Node, weight: ir.Value, shape: tuple[int, ...]) -> Layer | None:
    data = node.inputs[0]
    if len(shape) != 2 or data is None or data.shape is None or len(data.shape) < 2:
        return None
    by_output = bool(node.attributes.get_int("transB", 0))
    read, made = shape[::-1] if by_output else shape
    rank = len(data.shape)
    axis = 0 if node.attributes.get_int("transA", 0) else rank - 1
    return Layer(node, weight, shape, by_output, 1, Channels(read, axis, rank), Channels(made, rank - 1, rank))
