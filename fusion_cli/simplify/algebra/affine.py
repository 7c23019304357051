"""Nodes that compute x * scale + shift, with constants by channel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from fusion_cli.operators.versions import attribute
from fusion_cli.simplify.algebra.edits import Array, array_of, is_one_of, only_reader, permutation


@dataclass(frozen=True, eq=False)
class Affine:
    """x * scale + shift, in float64: a number of each for every channel, or one for all of them."""

    scale: Array
    shift: Array

    def then(self, later: Affine) -> Affine:
        return Affine(self.scale * later.scale, self.shift * later.scale + later.shift)

    @property
    def is_finite(self) -> bool:
        return bool(np.isfinite(self.scale).all() and np.isfinite(self.shift).all())

    @property
    def is_scaling(self) -> bool:
        return bool((self.scale != 1).any())

    @property
    def is_shifting(self) -> bool:
        return bool(self.shift.any())

    def scaling(self) -> Affine:
        """The same without its shift."""
        return Affine(self.scale, ZERO)


ONE, ZERO = np.ones(1), np.zeros(1)
UNCHANGED = Affine(ONE, ZERO)

_FORMS: Mapping[tuple[str, int], Callable[[Array], Affine]] = {
    **{("Mul", i): lambda c: Affine(c, ZERO) for i in (0, 1)},
    **{("Add", i): lambda c: Affine(ONE, c) for i in (0, 1)},
    ("Sub", 0): lambda c: Affine(ONE, -c),
    ("Sub", 1): lambda c: Affine(-ONE, c),
    ("Div", 0): lambda c: Affine(1 / c, ZERO),
}
"""By operator and by which operand is x: what it does with the constant."""


@dataclass(frozen=True)
class Channels:
    """Where channels lie in a value: how many, on which axis, of how many."""

    count: int
    axis: int
    rank: int

    def numbers(self, constant: Array) -> Array | None:
        """A constant operand as a number for every channel, or as one for all; None if it is neither, or makes more of
        the value that it meets."""
        shape = (1,) * (self.rank - constant.ndim) + constant.shape
        if constant.ndim > self.rank or not (constant.size == 1 or constant.size == self.count == shape[self.axis]):
            return None
        return constant.astype(np.float64).reshape(-1)

    def spread(self, numbers: Array) -> Array:
        """Numbers of channels in the shape in which they meet the value."""
        return numbers.reshape(-1, *[1] * (self.rank - self.axis - 1))

    def moved(self, axis: int) -> Channels:
        return Channels(self.count, axis, self.rank)


@dataclass(frozen=True, eq=False)
class Step:
    """A node that is affine in one of its operands, `data`, whose channels lie at `channels`."""

    node: ir.Node
    data: ir.Value
    affine: Affine
    channels: Channels


def total(steps: list[Step]) -> Affine:
    """What nodes do that stand one behind the other."""
    found = UNCHANGED
    for step in steps:
        found = found.then(step.affine)
    return found


def steps_after(value: ir.Value, channels: Channels) -> list[Step]:
    """The affine nodes that follow on a value, each the only reader of the one before, also behind a Transpose, or a
    Reshape of what comes before channels."""
    steps: list[Step] = []
    while (reader := only_reader(value)) is not None:
        node, index = reader
        perm, regrouped, step = permutation(node), _regrouped(node, channels), step_at(node, index, channels)
        if perm is not None:
            channels = channels.moved(perm.index(channels.axis))
        elif regrouped is not None:
            channels = regrouped
        elif step is not None:
            steps.append(step)
        else:
            break
        value = node.outputs[0]
    return steps


def steps_before(value: ir.Value, channels: Channels) -> tuple[list[Step], ir.Value]:
    """The affine nodes that a value comes through, in order, and what they start from."""
    steps: list[Step] = []
    while (node := value.producer()) is not None and only_reader(value) is not None:
        perm = permutation(node)
        step = step_of(node, channels)
        source = node.inputs[0] if perm is not None else None if step is None else step.data
        if source is None or (step is not None and not _has(source, channels)):
            break
        if perm is not None:
            channels = channels.moved(perm[channels.axis])
        elif step is not None:
            steps.insert(0, step)
        value = source
    return steps, value


def step_of(node: ir.Node, channels: Channels) -> Step | None:
    """The node as an affine one in any of its operands; None if it is not."""
    return next((step for i in range(len(node.inputs)) if (step := step_at(node, i, channels)) is not None), None)


def step_at(node: ir.Node, index: int, channels: Channels) -> Step | None:
    """The node as an affine one in its operand `index`; None if it is not."""
    data = node.inputs[index]
    affine = None
    if data is None or node.domain:
        return None
    if is_one_of(node, "BatchNormalization"):
        affine = _batch_norm(node, channels) if index == 0 else None
    elif (node.op_type, index) in _FORMS:
        constant = array_of(node.inputs[1 - index])
        numbers = None if constant is None else channels.numbers(constant)
        with np.errstate(divide="ignore"):
            affine = None if numbers is None else _FORMS[node.op_type, index](numbers)
    if affine is None or not affine.is_finite or _rounds(affine, data):
        return None
    return Step(node, data, affine, channels)


def _rounds(affine: Affine, value: ir.Value) -> bool:
    """Whether a shift is so large that a value has no fractions behind it: what is taken away later is no inverse."""
    return value.dtype is None or float(np.abs(affine.shift).max()) * float(value.dtype.eps) >= 1


def _has(value: ir.Value, channels: Channels) -> bool:
    """Whether a value is known to have these channels: a constant with more would repeat it."""
    return (
        value.shape is not None and len(value.shape) == channels.rank and value.shape[channels.axis] == channels.count
    )


def _regrouped(node: ir.Node, channels: Channels) -> Channels | None:
    """Where channels lie in the result of a Reshape that leaves the last axis, which is theirs, as it is."""
    shape = node.outputs[0].shape if is_one_of(node, "Reshape") else None
    if shape is None or channels.axis != channels.rank - 1 or not len(shape) or shape[-1] != channels.count:
        return None
    return Channels(channels.count, len(shape) - 1, len(shape))


def _batch_norm(node: ir.Node, channels: Channels) -> Affine | None:
    trains = node.attributes.get_int("training_mode", 0) or not node.attributes.get_int("spatial", 1)
    if trains or len(node.outputs) > 1 or channels.axis != 1:
        return None
    found = [array_of(v) for v in node.inputs[1:]]
    scale, bias, mean, variance = (None if a is None else a.astype(np.float64) for a in found)
    if scale is None or bias is None or mean is None or variance is None or scale.shape != (channels.count,):
        return None
    with np.errstate(divide="ignore", invalid="ignore"):
        factor = scale / np.sqrt(variance + attribute(node, "epsilon"))
        return Affine(factor, bias - mean * factor)
