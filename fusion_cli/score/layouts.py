"""Where ONNX Runtime reorders images on CPUs, without a fusion and with it.

What is in blocks between convolutions stays so as long as all that reads it takes blocks. An operator of ours does not:
what it reads is brought out of the blocks before it, and what it makes into them behind it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import chain

import onnx_ir as ir

from fusion_cli.score.block_layout import TO_FIRST, Access, access_of, transposes
from fusion_cli.score.vendor_fusions import Kernel

_MOST_KERNELS = 32
"""How many kernels behind a region are looked at, which work in blocks no more if its results are in none."""


@dataclass(frozen=True)
class Reorder:
    """A kernel that brings an image into blocks (ReorderInput) or out of them (ReorderOutput)."""

    op: str
    value: ir.Value


class Layouts:
    """How values lie in memory as given kernels make and read them, and others that are in the place of some."""

    def __init__(self, base: Layouts | None = None) -> None:
        self._base = base
        self._kernels: dict[ir.Node, Kernel] = {}
        self._accesses: dict[Kernel, Access] = {}
        self._blocked: dict[ir.Value, bool] = {}

    def add(self, kernel: Kernel, access: Access) -> None:
        """A kernel, after all that it reads from, in the place of those that its nodes were part of."""
        self._accesses[kernel] = access
        self._kernels |= dict.fromkeys(kernel.nodes, kernel)
        self._blocked |= {v: v in access.makes for n in kernel.nodes for v in n.outputs}

    def run(self, kernel: Kernel) -> bool:
        """Add one of ONNX Runtime's, in blocks if it can; whether any value lies otherwise now."""
        access = access_of(kernel, self.is_blocked)
        made = [v for n in kernel.nodes for v in n.outputs]
        before = [*map(self.is_blocked, made)]
        self.add(kernel, access)
        return before != [*map(self.is_blocked, made)]

    def is_blocked(self, value: ir.Value) -> bool:
        """Whether a value is made in blocks."""
        if value in self._blocked or self._base is None:
            return self._blocked.get(value, False)
        return self._base.is_blocked(value)

    def readers(self, value: ir.Value) -> Iterator[Kernel]:
        """The kernels that read a value; nodes of none, such as those of a body, are kernels by themselves."""
        return (self._kernel(user) for user, _ in value.uses())

    def reorder(self, value: ir.Value) -> Reorder | None:
        """What has to be done with a value, if anything."""
        in_blocks = [value in self._access(reader).reads for reader in self.readers(value)]
        if self.is_blocked(value):
            return None if all(in_blocks) and not value.is_graph_output() else Reorder("ReorderOutput", value)
        if not any(in_blocks) or (all(in_blocks) and transposes(value.producer(), TO_FIRST)):
            return None
        return Reorder("ReorderInput", value)

    def reorders(self, values: Iterable[ir.Value]) -> list[Reorder]:
        """What has to be done with these values."""
        return [r for v in dict.fromkeys(values) if (r := self.reorder(v)) is not None]

    def nodes(self) -> Collection[ir.Node]:
        """Those of the kernels that were added here."""
        return self._kernels.keys()

    def _kernel(self, node: ir.Node) -> Kernel:
        found = self._kernels.get(node)
        return found or (Kernel(node.op_type, [node]) if self._base is None else self._base._kernel(node))

    def _access(self, kernel: Kernel) -> Access:
        found = self._accesses.get(kernel)
        return found or (Access() if self._base is None else self._base._access(kernel))


class LayoutChanges:
    """Of a graph: what fusions change of the layouts that it has without any."""

    def __init__(self, nodes: Iterable[ir.Node], kernels: Iterable[Kernel]) -> None:
        """`nodes` are all there are, in order, and `kernels` what ONNX Runtime makes of them."""
        self._position = {node: i for i, node in enumerate(nodes)}
        self.original = Layouts()
        for kernel in sorted(kernels, key=self._end):
            self.original.run(kernel)

    def by(self, nodes: Sequence[ir.Node], rest: Sequence[Kernel]) -> tuple[list[Reorder], list[Reorder]]:
        """The reorders that go, and those that come, where these nodes are one operator of ours and `rest` is what
        remains of the kernels that they were part of."""
        around = values_of([*nodes, *(n for kernel in rest for n in kernel.nodes)])
        if not any(map(self.original.is_blocked, around)):
            return [], []
        fused = Kernel("", list(nodes))
        layouts = Layouts(self.original)
        layouts.add(fused, Access())
        behind = (k for n in nodes for v in n.outputs if self.original.is_blocked(v) for k in layouts.readers(v))
        pending = {self._end(k): k for k in (*rest, *behind) if k is not fused}
        order = [*pending]
        heapify(order)
        for _ in range(_MOST_KERNELS + len(rest)):
            if not order:
                break
            kernel = pending[heappop(order)]
            if layouts.run(kernel):
                for reader in chain.from_iterable(layouts.readers(v) for n in kernel.nodes for v in n.outputs):
                    end = self._end(reader)
                    if reader is not fused and end not in pending:
                        pending[end] = reader
                        heappush(order, end)
        values = values_of(layouts.nodes())
        before, after = self.original.reorders(values), layouts.reorders(values)
        return [r for r in before if r not in after], [r for r in after if r not in before]

    def _end(self, kernel: Kernel) -> int:
        return self._position.get(kernel.nodes[-1], -1)


def values_of(nodes: Iterable[ir.Node]) -> list[ir.Value]:
    """All that nodes read and make, each once."""
    found = (v for n in nodes for v in (*n.inputs, *n.outputs) if v is not None)
    return list(dict.fromkeys(found))
