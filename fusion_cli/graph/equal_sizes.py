"""Which sizes are equal, though they go by several names: those that meet where a model that runs needs equal ones.

Shape inference gives a new name to what it cannot follow. Where two named sizes are broadcast, neither is taken to be
1.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from fusion_cli.graph.index import GraphIndex
from fusion_cli.operators.registry import is_elementwise
from fusion_cli.sizes.dims import Dims, dims_of


class EqualSizes:
    """One name for each size of a graph."""

    def __init__(self, index: GraphIndex) -> None:
        self._names: dict[int | str, int | str] = {}
        for node in index.nodes:
            for sizes in _meeting(node):
                self._join(sizes)

    def of(self, value: ir.Value) -> Dims | None:
        """A value's shape in those names, or None if it is unknown."""
        dims = dims_of(value)
        return None if dims is None else tuple(map(self._name, dims))

    def _name(self, size: int | str) -> int | str:
        while size in self._names:
            size = self._names[size]
        return size

    def _join(self, sizes: set[int | str]) -> None:
        names = {self._name(size) for size in sizes} - {1}
        # A number is the best name.
        first, *others = sorted(names, key=lambda n: (isinstance(n, str), str(n))) or [1]
        self._names.update((n, first) for n in others if isinstance(n, str))


def _meeting(node: ir.Node) -> Iterator[set[int | str]]:
    shapes = [dims_of(v) for v in node.inputs if v is not None]
    known = [s for s in shapes if s is not None]
    if is_elementwise(node):
        yield from _columns([*known, dims_of(node.outputs[0]) or ()])
    elif node.op_type == "MatMul" and not node.domain and len(known) == 2 and min(map(len, known)) > 1:
        left, right = known
        yield {left[-1], right[-2]}
        yield from _columns([left[:-2], right[:-2]])


def _columns(shapes: list[Dims]) -> Iterator[set[int | str]]:
    """The sizes of each axis of values that are broadcast."""
    for i in range(1, max(map(len, shapes)) + 1):
        yield {s[-i] for s in shapes if len(s) >= i}
