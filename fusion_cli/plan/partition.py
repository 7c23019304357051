"""From the tensor program to groups of values that one kernel computes."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from fusion_cli.plan.attention import Uses
from fusion_cli.plan.graph import ANCHORS, LEAVES, REDUCTIONS, Val
from fusion_cli.plan.sizes import ONE, Shape, Sizes

_CHEAP = frozenset({
    "Add", "And", "Cast", "Div", "Equal", "Expand", "Greater", "GreaterOrEqual", "Identity", "Less", "LessOrEqual",
    "Max", "Min", "Mul", "Neg", "Not", "Or", "Sub", "Where",
})  # fmt: skip
_RECOMPUTED = 8
"""Operations worth repeating per element rather than writing their result to memory."""


@dataclass(eq=False)
class Group:
    """The values of one kernel. `like` is a value of the iteration space's shape; `kind` names the stage."""

    kind: str
    like: Val
    vals: list[Val] = field(default_factory=list)
    needs: set[Group] = field(default_factory=set)
    """The groups whose values it reads."""
    first: int = 0
    last: int = 0
    """Where its values lie in the topological order."""

    @property
    def shape(self) -> Shape:
        return self.like.shape

    @property
    def anchor(self) -> Val:
        return next(v for v in self.vals if v.op in ANCHORS)

    def widen(self, other: Val) -> None:
        """Take the rank of a value of the same shape that has more leading ones."""
        if len(other.shape) > len(self.like.shape):
            self.like = other


class Partition:
    """Assigns every value that has to be computed to a group, growing groups and merging them."""

    def __init__(self, sizes: Sizes, outputs: Sequence[Val]) -> None:
        self.sizes = sizes
        self.uses = Uses(outputs)
        self.outputs = set(outputs)
        self.copied = {v for v in self.uses.order if v.op == "transpose" and self._needs_copy(v)}
        self.group: dict[Val, Group] = {}
        self._position = {v: i for i, v in enumerate(self.uses.order)}
        self._output_sources = {self.source(o) for o in outputs}
        self._keys: dict[Shape, Shape] = {}
        for val in self.uses.order:
            if self._is_computed(val):
                self._place(val)
        self._merge()

    def ordered(self) -> list[Group]:
        """The groups in an order to run them in."""
        pending = sorted(dict.fromkeys(self.group.values()), key=lambda g: g.last)
        done: dict[Group, None] = {}
        while pending:
            ready = next(g for g in pending if g.needs <= done.keys())
            pending.remove(ready)
            done[ready] = None
            ready.vals.sort(key=self._position.__getitem__)
        return list(done)

    def source(self, val: Val) -> Val:
        """The value in memory that reading `val` reads: behind reshapes, and transposes that are not copied."""
        while val.op == "reshape" or (val.op == "transpose" and val not in self.copied):
            val = val.args[0]
        return val

    def stored(self, group: Group) -> list[Val]:
        """The group's values that others read, or that are outputs."""
        return [v for v in group.vals if self._is_stored(v, group)]

    # Which values

    def _is_computed(self, val: Val) -> bool:
        return val in self.copied or not (val.op in LEAVES or val.op in ("reshape", "transpose"))

    def _needs_copy(self, val: Val) -> bool:
        return val in self.outputs or any(not self._reads_permuted(r, val) for r in self.uses.readers(val))

    def _reads_permuted(self, reader: Val, val: Val) -> bool:
        if reader.is_elementwise or reader.op in REDUCTIONS or reader.op == "attention":
            return True
        return reader.op == "matmul" and swaps_last_two(val.perm)

    def _readers(self, val: Val) -> Iterable[tuple[Val, bool]]:
        """Values that read `val`, through views too; whether directly."""
        for reader in self.uses.readers(val):
            if self._is_computed(reader):
                yield reader, reader not in self.copied
            else:
                yield from ((r, False) for r, _ in self._readers(reader))

    def _is_output(self, val: Val) -> bool:
        return val in self._output_sources

    def _is_stored(self, val: Val, group: Group) -> bool:
        return self._is_output(val) or any(
            self.group[r] is not group or not direct or self._materialises(r, val) for r, direct in self._readers(val)
        )

    @staticmethod
    def _materialises(reader: Val, val: Val) -> bool:
        """Whether `reader` needs `val` in memory even within one kernel."""
        return reader.op in ("matmul", "conv") or (reader.op == "attention" and val in reader.args[:3])

    # Growing

    def _place(self, val: Val) -> None:
        group = None if val.op in ANCHORS else self._home(val)
        if group is None:
            kind = {"matmul": "linear", "conv": "conv", "attention": "attention"}.get(val.op, "pointwise")
            like = val.args[0] if val.op in REDUCTIONS else val
            group = Group(kind, like, first=self._position[val])
        group.vals.append(val)
        group.last = self._position[val]
        if val.op in REDUCTIONS:
            group.kind = "rowwise"
        elif self._same(val.shape, group.shape):
            group.widen(val)
        self.group[val] = group
        sources = (self.source(a) for a in val.args)
        group.needs |= {self.group[s] for s in sources if s in self.group} - {group}

    def _home(self, val: Val) -> Group | None:
        """The group among the producers that can compute `val` too: a product or convolution before others, since
        those take epilogues only here, and the latest of them."""
        if val in self.copied:
            return None
        groups = dict.fromkeys(self.group[a] for a in val.args if a in self.group)
        ordered = sorted(groups, key=lambda g: (g.kind in ("linear", "conv"), g.last), reverse=True)
        return next((g for g in ordered if self._fits(g, val) and self._can_join(g, val)), None)

    def _fits(self, group: Group, val: Val) -> bool:
        if val.op in REDUCTIONS:
            return group.kind in ("pointwise", "rowwise") and self._same(val.args[0].shape, group.shape)
        if group.kind == "attention":
            return False
        if group.kind in ("linear", "conv") and len(val.shape) > len(group.shape):
            return False
        return self._same(val.shape, group.shape) or (group.kind == "rowwise" and self._per_row(val.shape, group))

    def _can_join(self, group: Group, val: Val) -> bool:
        """Whether everything else that `val` reads can be computed before the group runs."""
        for arg in val.args:
            source = self.source(arg)
            other = self.group.get(source)
            if other is group and source is not arg:
                return False
            if other is not None and other is not group and self._reaches(group, other):
                return False
        return True

    def _reaches(self, start: Group, goal: Group, skip_direct: bool = False) -> bool:
        """Whether `goal` depends on `start` (with `skip_direct`: by way of a third group)."""
        seen: set[Group] = set()
        stack = [p for p in goal.needs if not (skip_direct and p is start)]
        while stack:
            group = stack.pop()
            if group is start:
                return True
            # What depends on `start` computes something after the first value of `start`.
            if group not in seen and group.last > start.first:
                seen.add(group)
                stack.extend(group.needs)
        return False

    def _same(self, a: Shape, b: Shape) -> bool:
        return self._key(a) == self._key(b)

    def _key(self, shape: Shape) -> Shape:
        """Equal keys are provably equal shapes, leading ones aside."""
        if shape not in self._keys:
            self._keys[shape] = tuple(self.sizes.norm(s) for s in self.sizes.strip(shape))
        return self._keys[shape]

    def _per_row(self, shape: Shape, group: Group) -> bool:
        return bool(shape) and self._same(shape, (*group.shape[:-1], ONE)) and self.sizes.equal(shape[-1], ONE)

    # Merging

    def _merge(self) -> None:
        """Merge producers into consumers, then kernels that read the same, as long as there are any to merge."""
        readers: dict[Val, list[Group]] = {}
        changed = True
        while changed:
            changed = False
            for group in dict.fromkeys(self.group.values()):
                for first in sorted(group.needs, key=lambda g: g.last):
                    if self._is_alive(group) and self._is_alive(first) and self._absorbs(first, group):
                        self._unite(first, group)
                        changed = True
            readers.clear()
            for group in dict.fromkeys(self.group.values()):
                for source in self._loads(group):
                    readers.setdefault(source, []).append(group)
            for sharing in readers.values():
                for first, second in itertools.pairwise(sharing):
                    if self._is_alive(first) and self._is_alive(second) and self._siblings(first, second):
                        self._unite(first, second)
                        changed = True

    def _is_alive(self, group: Group) -> bool:
        return self.group[group.vals[0]] is group

    def _unite(self, first: Group, second: Group) -> None:
        second.vals = first.vals + second.vals
        if first.kind == "rowwise":
            second.kind = "rowwise"
        if self._same(first.shape, second.shape):
            second.widen(first.like)
        second.first, second.last = min(first.first, second.first), max(first.last, second.last)
        second.needs = (second.needs | first.needs) - {first, second}
        for val in first.vals:
            self.group[val] = second
        for group in dict.fromkeys(self.group.values()):
            if first in group.needs:
                group.needs.remove(first)
                group.needs.add(second)

    def _absorbs(self, first: Group, second: Group) -> bool:
        """Whether the kernel of `second` can compute `first`, whose values it reads, on the way."""
        if first not in second.needs or first.kind not in ("pointwise", "rowwise"):
            return False
        if first.kind == "rowwise" and second.kind not in ("pointwise", "rowwise"):
            return False
        if any(self._blocks(v, second) for v in first.vals):
            return False
        if second.kind in ("linear", "conv") and len(first.shape) > len(second.shape):
            return False
        if second.kind != "attention" and self._same(first.shape, second.shape):
            return not self._reaches(first, second, skip_direct=True)
        private = not any(self._is_output(v) or self._escapes(v, (first, second)) for v in first.vals)
        return private and first.kind == "pointwise" and self._is_cheap(first)

    def _blocks(self, val: Val, second: Group) -> bool:
        return any(
            self.group[r] is second and (not direct or self._materialises(r, val)) for r, direct in self._readers(val)
        )

    def _escapes(self, val: Val, inside: tuple[Group, Group]) -> bool:
        return any(self.group[r] not in inside for r, _ in self._readers(val))

    @staticmethod
    def _is_cheap(group: Group) -> bool:
        return len(group.vals) <= _RECOMPUTED and all(v.op in _CHEAP or v.op == "transpose" for v in group.vals)

    def _siblings(self, first: Group, second: Group) -> bool:
        """Whether two kernels that read the same are independent and over one iteration space."""
        rows = ("pointwise", "rowwise")
        if first.kind not in rows or second.kind not in rows or not self._same(first.shape, second.shape):
            return False
        return first is not second and not self._reaches(first, second) and not self._reaches(second, first)

    def _loads(self, group: Group) -> list[Val]:
        """What a group reads from memory at full size."""
        args = (a for v in group.vals for a in v.args if self._same(a.shape, group.shape))
        sources = dict.fromkeys(self.source(a) for a in args)
        return [s for s in sources if s.op == "input" or self.group.get(s, group) is not group]


def swaps_last_two(perm: tuple[int, ...]) -> bool:
    rank = len(perm)
    return perm == (*range(rank - 2), rank - 1, rank - 2)
