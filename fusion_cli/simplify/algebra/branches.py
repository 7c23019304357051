"""Sums of convolutions of one value, as one: what models that are trained in branches are left with, as RepVGG,
MobileOne, FastViT and TextNet.

Published: Ding et al., RepVGG: Making VGG-style ConvNets Great Again, 2021, section 3.3.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
import onnx_ir as ir

from fusion_cli.operators.versions import attribute, windows
from fusion_cli.simplify.algebra.affine import ONE, ZERO, Affine, Channels, step_of
from fusion_cli.simplify.algebra.edits import (
    Applied,
    Array,
    hand_on,
    in_float64,
    is_one_of,
    only_reader,
    rounded,
)
from fusion_cli.simplify.algebra.layers import Layer, layer_of

_MINUS = Affine(-ONE, ZERO)


@dataclass(frozen=True, eq=False)
class _Term:
    """A Conv of what a sum is of, or that itself, and what its channels are multiplied by."""

    layer: Layer | None
    scale: Array

    @property
    def is_bare(self) -> bool:
        return self.layer is None and bool((self.scale == 1).all())


@dataclass(frozen=True, eq=False)
class _Sum:
    """Terms of one value, what is added to each channel, and the nodes that compute this, the last one last."""

    source: ir.Value
    terms: tuple[_Term, ...]
    shift: Array
    nodes: tuple[ir.Node, ...]

    def then(self, affine: Affine) -> _Sum:
        terms = tuple(replace(t, scale=t.scale * affine.scale) for t in self.terms)
        return replace(self, terms=terms, shift=self.shift * affine.scale + affine.shift)

    def plus(self, other: _Sum) -> _Sum:
        terms, nodes = (*self.terms, *other.terms), (*self.nodes, *other.nodes)
        return replace(self, terms=terms, shift=self.shift + other.shift, nodes=nodes)


@dataclass(frozen=True, eq=False)
class _Convolution:
    """A term as a convolution: along each axis taps lie `dilations` apart, the first one `first` from the place of the
    result, and padding is `rest` more than what taps reach beyond the first."""

    groups: int
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    first: tuple[int, ...]
    rest: tuple[int, ...]
    kernel: Array
    """[made, read / groups, taps of each axis], in float64."""

    @property
    def taps(self) -> tuple[int, ...]:
        return tuple(self.kernel.shape[2:])

    @property
    def meets(self) -> tuple[object, ...]:
        """What is the same of those that can be one."""
        return self.groups, self.strides, self.rest, self.kernel.shape[:2]


def merge_branches(graph: ir.Graph) -> Iterator[Applied]:
    """Write sums of Convs of one value as one Conv, which has no more taps than they had, in place."""
    found: dict[ir.Value, _Sum] = {}
    for node in graph:
        if (made := _sum_of(node, found)) is not None:
            found[node.outputs[0]] = replace(made, nodes=(*made.nodes, node))
    merged: set[ir.Node] = set()
    for whole in reversed(found.values()):
        if merged.isdisjoint(whole.nodes) and _write(whole):
            merged.update(whole.nodes)
            yield "ConvBranches", whole.nodes


def _sum_of(node: ir.Node, found: Mapping[ir.Value, _Sum]) -> _Sum | None:
    """What a node makes, as a sum, of what those before it make."""
    if is_one_of(node, "Conv"):
        return _bare_convolution(node)
    shape = node.outputs[0].shape
    if shape is None or len(shape) < 3 or not isinstance(shape[1], int):
        return None
    channels = Channels(shape[1], 1, len(shape))
    if (step := step_of(node, channels)) is not None:
        return _operand(step.data, found).then(step.affine) if step.data.shape == shape else None
    if not is_one_of(node, "Add", "Sub"):
        return None
    first, second = (_operand(v, found) for v in node.inputs if v is not None)
    if first.source is not second.source:
        return None
    return first.plus(second if node.op_type == "Add" else second.then(_MINUS))


def _operand(value: ir.Value, found: Mapping[ir.Value, _Sum]) -> _Sum:
    """An operand as a sum: of itself where others read it, too."""
    whole = found.get(value) if only_reader(value) is not None else None
    return _Sum(value, (_Term(None, ONE),), ZERO, ()) if whole is None else whole


def _bare_convolution(node: ir.Node) -> _Sum | None:
    layer, source = layer_of(node), node.inputs[0]
    bias = None if layer is None else layer.bias()
    if layer is None or bias is None or source is None or attribute(node, "auto_pad") != "NOTSET":
        return None
    return _Sum(source, (_Term(layer, ONE),), bias, ())


def _write(whole: _Sum) -> bool:
    """Let one of a sum's Convs compute it; False, and nothing is changed, where that is none, is no better or would not
    fit its type. A Conv and what it reads are a residual connection, which kernels add themselves."""
    layers = [t.layer for t in whole.terms if t.layer is not None]
    if not layers or sum(not t.is_bare for t in whole.terms) < 2:
        return False
    kept, dtype = layers[0], layers[0].weight.dtype
    one = _together(kept, whole.terms)
    if one is None or math.prod(one.taps) > sum(map(_taps, layers)):
        return False
    kernel = rounded(one.kernel.reshape(len(one.kernel), -1), dtype)
    bias = rounded((whole.shift * np.ones(kept.result.count))[None], dtype)
    if kernel is None or bias is None:
        return False
    node, begin = kept.node, [-f for f in one.first]
    end = [r - b + (k - 1) * d for r, b, k, d in zip(one.rest, begin, one.taps, one.dilations, strict=True)]
    kept.become(kernel.reshape(one.kernel.shape), bias[0])
    for name, numbers in {"kernel_shape": one.taps, "pads": begin + end, "dilations": one.dilations}.items():
        node.attributes[name] = ir.AttrInt64s(name, numbers)
    hand_on(whole.nodes[-1], node.outputs[0])
    return True


def _taps(layer: Layer) -> int:
    return math.prod(layer.shape[2:])


def _together(kept: Layer, terms: Sequence[_Term]) -> _Convolution | None:
    """Terms as one convolution; None where they are none."""
    each = [_one_tap(kept, t.scale) if t.layer is None else _convolution(t.layer, t.scale) for t in terms]
    return reduce(_both, each)


def _convolution(layer: Layer, scale: Array) -> _Convolution:
    taps = layer.shape[2:]
    strides, dilations, pads = windows(layer.node, len(taps))
    begin, end = pads[: len(taps)], pads[len(taps) :]
    rest = tuple(b + e - (k - 1) * d for b, e, k, d in zip(begin, end, taps, dilations, strict=True))
    kernel = in_float64(layer.weight.const_value) * scale.reshape(-1, *[1] * (len(taps) + 1))
    return _Convolution(layer.groups, strides, dilations, tuple(-b for b in begin), rest, kernel)


def _one_tap(like: Layer, scale: Array) -> _Convolution | None:
    """Numbers by channel as a convolution in the groups of another one, each of which reads all of its channels; None
    where that makes other channels than it reads."""
    made, read, *taps = like.shape
    if like.source.count != made:
        return None
    kernel = np.zeros((made, read, *[1] * len(taps)))
    kernel[range(made), [i % read for i in range(made)]] = (scale * np.ones(made)).reshape(-1, *[1] * len(taps))
    ones, none = (1,) * len(taps), (0,) * len(taps)
    return _Convolution(like.groups, ones, ones, none, none, kernel)


def _both(a: _Convolution | None, b: _Convolution | None) -> _Convolution | None:
    """Two as one; None where they are none."""
    if a is None or b is None or a.meets != b.meets:
        return None
    first = tuple(map(min, a.first, b.first))
    # One tap is any distance from the next.
    dilations = tuple(e if k == 1 else d for d, e, k in zip(a.dilations, b.dilations, a.taps, strict=True))
    fit = all(k == 1 or d == e for d, e, k in zip(dilations, b.dilations, b.taps, strict=True))
    before, other = (_taps_before(x, first, dilations) for x in (a, b))
    if not fit or before is None or other is None:
        return None
    taps = tuple(max(m + j, n + k) for m, n, j, k in zip(before, other, a.taps, b.taps, strict=True))
    kernel = _placed(a.kernel, before, taps) + _placed(b.kernel, other, taps)
    return replace(a, first=first, dilations=dilations, kernel=kernel)


def _taps_before(x: _Convolution, first: Sequence[int], dilations: Sequence[int]) -> list[int] | None:
    """Of taps that begin at `first`, those before its own along each axis; None if its own lie between them."""
    away = [f - g for f, g in zip(x.first, first, strict=True)]
    between = any(n % d for n, d in zip(away, dilations, strict=True))
    return None if between else [n // d for n, d in zip(away, dilations, strict=True)]


def _placed(kernel: Array, before: Sequence[int], taps: Sequence[int]) -> Array:
    """A kernel among so many taps, those that it has not zero."""
    sides = [(n, most - n - k) for n, most, k in zip(before, taps, kernel.shape[2:], strict=True)]
    return np.pad(kernel, [(0, 0), (0, 0), *sides])
