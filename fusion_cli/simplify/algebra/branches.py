"""Convolutions of one value whose results are added, as one: what models that are trained in branches are left with, as
RepVGG, MobileOne and TextNet.

Published: Ding et al., RepVGG: Making VGG-style ConvNets Great Again, 2021, section 3.3.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from fusion_cli.operators.versions import attribute
from fusion_cli.simplify.algebra.affine import Channels, step_at
from fusion_cli.simplify.algebra.edits import (
    Applied,
    Array,
    add_constant,
    graph_of,
    hand_on,
    in_float64,
    is_one_of,
    only_reader,
    rounded,
)
from fusion_cli.simplify.algebra.layers import layer_of


@dataclass(frozen=True, eq=False)
class _Branch:
    """A Conv, or a node that is affine in each channel, which is a Conv of one tap.

    Along each axis taps lie `dilations` apart, the first one `first` from the place of the result; padding is `rest`
    more than what taps reach beyond the first."""

    node: ir.Node
    source: ir.Value
    groups: int
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    first: tuple[int, ...]
    rest: tuple[int, ...]
    kernel: Array
    """[made, read / groups, taps of each axis], in float64."""
    bias: Array

    @property
    def taps(self) -> tuple[int, ...]:
        return tuple(self.kernel.shape[2:])

    @property
    def is_convolution(self) -> bool:
        return is_one_of(self.node, "Conv")

    @property
    def meets(self) -> tuple[object, ...]:
        """What is the same of those that can be one."""
        return self.source, self.groups, self.strides, self.rest, self.kernel.shape[:2]


def merge_branches(graph: ir.Graph) -> Iterator[Applied]:
    """Write sums of Convs of one value as one Conv, which has no more taps than they had, in place."""
    for node in list(graph):
        if not is_one_of(node, "Add") or _is_term(node.outputs[0]):
            continue
        branches = [b for value in _terms(node) if (b := _branch(value)) is not None]
        branches.sort(key=lambda b: -math.prod(b.taps))  # others have no taps that the first has not
        while (kept := next((b for b in branches if b.is_convolution), None)) is not None:
            merged = _merge(kept, branches)
            if len(merged) > 1:
                yield "ConvBranches", [b.node for b in merged]
            branches = [b for b in branches if b not in merged]


def _merge(kept: _Branch, branches: Sequence[_Branch]) -> list[_Branch]:
    """Let a Conv do the work of other branches; it and those that it takes."""
    whole, taken = kept, [kept]
    for branch in branches:
        together = None if branch is kept else _together(whole, branch)
        if together is not None and _numbers(together) is not None and _drop(branch.node.outputs[0]):
            whole = together
            taken.append(branch)
    if len(taken) > 1:
        _write(whole)
    return taken


def _drop(value: ir.Value) -> bool:
    """Let a sum be without one of its terms; False, and nothing is changed, where the rest would have another shape."""
    reader = only_reader(value)
    assert reader is not None
    node, index = reader
    if is_one_of(node, "Identity"):  # what it was added to has gone before
        return _drop(node.outputs[0])
    other = node.inputs[1 - index]
    if other is None or other.shape is None or other.shape != node.outputs[0].shape:
        return False
    hand_on(node, other)
    return True


def _is_term(value: ir.Value) -> bool:
    """Whether what is added is added on."""
    reader = only_reader(value)
    return reader is not None and is_one_of(reader[0], "Add")


def _terms(add: ir.Node) -> Iterator[ir.Value]:
    """What a sum of sums is of, as far as nothing else reads it."""
    for value in add.inputs:
        if value is not None and only_reader(value) is not None:
            producer = value.producer()
            assert producer is not None
            yield from _terms(producer) if is_one_of(producer, "Add") else (value,)


def _branch(value: ir.Value) -> _Branch | None:
    node = value.producer()
    assert node is not None
    return _convolution(node) if is_one_of(node, "Conv") else _one_tap(node)


def _convolution(node: ir.Node) -> _Branch | None:
    layer = layer_of(node)
    bias = None if layer is None else layer.bias()
    source = node.inputs[0]
    if layer is None or bias is None or source is None or attribute(node, "auto_pad") != "NOTSET":
        return None
    taps, none = layer.shape[2:], [0] * 2 * (len(layer.shape) - 2)
    strides, dilations = (tuple(node.attributes.get_ints(n) or [1] * len(taps)) for n in ("strides", "dilations"))
    pads = node.attributes.get_ints("pads") or none
    begin, end = pads[: len(taps)], pads[len(taps) :]
    rest = tuple(b + e - (k - 1) * d for b, e, k, d in zip(begin, end, taps, dilations, strict=True))
    first, kernel = tuple(-b for b in begin), in_float64(layer.weight.const_value)
    return _Branch(node, source, layer.groups, strides, dilations, first, rest, kernel, bias)


def _one_tap(node: ir.Node) -> _Branch | None:
    shape = node.outputs[0].shape
    if shape is None or len(shape) < 3 or not isinstance(shape[1], int):
        return None
    count, axes, channels = shape[1], len(shape) - 2, Channels(shape[1], 1, len(shape))
    step = next((s for i in range(len(node.inputs)) if (s := step_at(node, i, channels)) is not None), None)
    if step is None or step.data.shape != shape:
        return None
    kernel = (step.affine.scale * np.ones(count)).reshape(-1, *[1] * (axes + 1))
    ones, none = (1,) * axes, (0,) * axes
    return _Branch(node, step.data, count, ones, ones, none, none, kernel, step.affine.shift * np.ones(count))


def _together(a: _Branch, b: _Branch) -> _Branch | None:
    """Both as one Conv; None where they are none, or one with more taps than both."""
    if not b.is_convolution:
        b = _spread(b, a)
    if a.meets != b.meets:
        return None
    first = tuple(map(min, a.first, b.first))
    # One tap is any distance from the next.
    dilations = tuple(e if k == 1 else d for d, e, k in zip(a.dilations, b.dilations, a.taps, strict=True))
    fit = all(k == 1 or d == e for d, e, k in zip(dilations, b.dilations, b.taps, strict=True))
    before, other = (_taps_before(x, first, dilations) for x in (a, b))
    if not fit or before is None or other is None:
        return None
    ends = zip(before, other, a.taps, b.taps, strict=True)
    taps = tuple(max(m + j, n + k) for m, n, j, k in ends)
    if math.prod(taps) > math.prod(a.taps) + math.prod(b.taps):
        return None
    kernel = _placed(a.kernel, before, taps) + _placed(b.kernel, other, taps)
    return replace(a, first=first, dilations=dilations, kernel=kernel, bias=a.bias + b.bias)


def _spread(one: _Branch, other: _Branch) -> _Branch:
    """A branch of one tap in the groups of another one, each of which reads all of its channels."""
    made, read = other.kernel.shape[:2]
    if one.kernel.shape[0] != made or read * other.groups != made:
        return one
    kernel = np.zeros((made, read, *one.taps))
    kernel[range(made), [i % read for i in range(made)]] = one.kernel[:, 0]
    return replace(one, groups=other.groups, kernel=kernel)


def _taps_before(x: _Branch, first: Sequence[int], dilations: Sequence[int]) -> list[int] | None:
    """Of taps that begin at `first`, those before a branch's own along each axis; None if its own lie between them."""
    away = [f - g for f, g in zip(x.first, first, strict=True)]
    between = any(n % d for n, d in zip(away, dilations, strict=True))
    return None if between else [n // d for n, d in zip(away, dilations, strict=True)]


def _placed(kernel: Array, before: Sequence[int], taps: Sequence[int]) -> Array:
    """A kernel among so many taps, those that it has not zero."""
    sides = [(n, most - n - k) for n, most, k in zip(before, taps, kernel.shape[2:], strict=True)]
    return np.pad(kernel, [(0, 0), (0, 0), *sides])


def _numbers(whole: _Branch) -> tuple[Array, Array] | None:
    """Its weight and bias in the type that they have; None where they would not fit it."""
    weight = whole.node.inputs[1]
    assert weight is not None
    kernel = rounded(whole.kernel.reshape(len(whole.kernel), -1), weight.dtype)
    bias = rounded(whole.bias[None], weight.dtype)
    return None if kernel is None or bias is None else (kernel.reshape(whole.kernel.shape), bias[0])


def _write(whole: _Branch) -> None:
    """Let its node be this Conv."""
    node, numbers, begin = whole.node, _numbers(whole), [-f for f in whole.first]
    weight = node.inputs[1]
    assert weight is not None
    assert numbers is not None
    end = [r - b + (k - 1) * d for r, b, k, d in zip(whole.rest, begin, whole.taps, whole.dilations, strict=True)]
    node.resize_inputs(3)
    for index, (name, array) in enumerate(zip((weight.name, f"{weight.name}_bias"), numbers, strict=True), start=1):
        node.replace_input_with(index, add_constant(graph_of(node), str(name), array))
    for name, sizes in {"kernel_shape": whole.taps, "pads": begin + end, "dilations": whole.dilations}.items():
        node.attributes[name] = ir.AttrInt64s(name, sizes)
