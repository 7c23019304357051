"""From the tensor program to groups of values that one kernel computes."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from fusion_cli.plan.aliases import AliasAnalysis
from fusion_cli.plan.graph import ANCHORS, CHEAP, RECOMPUTED, REDUCTIONS, VIEWS, Uses, Val
from fusion_cli.plan.kernel_group import ANCHORED, Group
from fusion_cli.plan.lowering import Builder
from fusion_cli.planir.stages import MOST_OPERANDS
from fusion_cli.sizes.algebra import ONE, Shape

_KINDS = {"matmul": "linear", "conv": "conv", "pool": "pool", "attention": "attention", "moments": "moments"}
_OPERANDS = 12
"""How many tensors a kernel may read that is put together for the sake of fewer kernels."""
_BEHIND = 16
"""How many tensors a product's kernel or the like may read for one thing more to be made of its result by it."""


class Partition:
    """Assigns every value that has to be computed to a group, growing groups and merging them."""

    def __init__(self, builder: Builder, outputs: Sequence[Val]) -> None:
        self.sizes = builder.sizes
        self.uses = Uses(outputs)
        self.outputs = set(outputs)
        self.aliases = AliasAnalysis(builder, self.uses)
        self.group: dict[Val, Group] = {}
        self._position = {v: i for i, v in enumerate(self.uses.order)}
        self._output_sources = {self.aliases.storage_root(o) for o in outputs}
        self._keys: dict[Shape, Shape] = {}
        for val in self.uses.order:
            if self.aliases.is_computed(val):
                self._place(val)
        self._merge()

    def ordered(self) -> list[Group]:
        """The groups in an order to run them in, products of one left operand side by side."""
        pending = sorted(dict.fromkeys(self.group.values()), key=lambda g: g.last)
        done: dict[Group, None] = {}
        while pending:
            first = next(g for g in pending if g.needs <= done.keys())
            beside = [g for g in pending if g is not first and self._read_one(first, g) and g.needs <= done.keys()]
            for group in (first, *beside):
                pending.remove(group)
                done[group] = None
                group.vals.sort(key=self._position.__getitem__)
        return list(done)

    def _read_one(self, first: Group, second: Group) -> bool:
        """Whether both are products, of the same left operand."""
        if first.kind != "linear" or second.kind != "linear":
            return False
        return self.aliases.storage_root(first.anchor.args[0]) is self.aliases.storage_root(second.anchor.args[0])

    def makers(self, val: Val) -> list[Group]:
        """The groups that write the memory that reading `val` reads."""
        source = self.aliases.storage_root(val)
        written = source.args if source.op == "concat" else (source,)
        return [self.group[v] for v in written if v in self.group]

    def stored(self, group: Group) -> list[Val]:
        """The group's values that others read, or that are outputs."""
        return [v for v in group.vals if self._is_stored(v, group)]

    def move(self, source: Group, to: Mapping[Val, Group]) -> None:
        """Have values of a group, in their order, computed by those that alone read them."""
        source.vals = [v for v in source.vals if v not in to]
        source.last = max(self._position[v] for v in source.vals)
        source.needs = {maker for v in source.vals for maker in self._makers_of(v, source)}
        for val, group in to.items():
            group.vals.append(val)
            group.first = min(group.first, self._position[val])
            self.group[val] = group
            group.needs |= self._makers_of(val, group)

    def _makers_of(self, val: Val, group: Group) -> set[Group]:
        """The other groups that write what a value of this group is computed from."""
        return {maker for a in val.args for maker in self.makers(a)} - {group}

    # Which values

    def is_output(self, val: Val) -> bool:
        return val in self._output_sources

    def _is_stored(self, val: Val, group: Group) -> bool:
        return (
            val.op == "part"
            or self.is_output(val)
            or any(self.group[r] is not group or not direct for r, direct in self.aliases.readers(val))
        )

    # Growing

    def _place(self, val: Val) -> None:
        group = None if val.op in ANCHORS | {"gather"} else self._home(val)
        if group is None:
            kind = _KINDS.get(val.op, "pointwise")
            like = val.args[0] if val.op in REDUCTIONS else val
            group = Group(kind, like, first=self._position[val])
        group.vals.append(val)
        group.has_parts |= val.op == "part"
        group.last = self._position[val]
        if val.op in REDUCTIONS:
            group.kind = "rowwise"
        elif self.same(val.shape, group.shape):
            group.widen(val)
        self.group[val] = group
        group.needs |= self._makers_of(val, group)

    def _home(self, val: Val) -> Group | None:
        """The group among the producers that can compute `val` too: a product or the like before others, since
        those take epilogues only here, and the latest of them."""
        if val in self.aliases.copied:
            return None
        groups = dict.fromkeys(self.group[a] for a in val.args if a in self.group)
        ordered = sorted(groups, key=lambda g: (g.kind in ANCHORED, g.last), reverse=True)
        return next(
            (g for g in ordered if self._fits(g, val) and self._can_join(g, val) and not self._is_full(g, val)), None
        )

    def _is_full(self, group: Group, val: Val) -> bool:
        """Whether a kernel makes enough of its own result: DenseNet's convolutions are read by all that follow."""
        if group.kind not in ANCHORED or group.anchor not in val.args:
            return False
        return len(self._read_by(group)) >= _BEHIND

    def _read_by(self, *groups: Group) -> set[Val]:
        """What kernels read from memory, of any size; parts of one tensor each."""
        args = {a for g in groups for v in g.vals for a in v.args if self.group.get(a) not in groups}
        return {a for a in args if self.aliases.storage_root(a).op not in ("const", "index")}

    def _reads_few(self, first: Group, second: Group) -> bool:
        """Whether a kernel in the place of two has room for all that they read."""
        return len(self._read_by(first, second)) <= MOST_OPERANDS

    def _fits(self, group: Group, val: Val) -> bool:
        if val.op in REDUCTIONS:
            rows = group.kind == "rowwise" or (group.kind == "pointwise" and not group.has_parts)
            return rows and self.same(val.args[0].shape, group.shape)
        if val.op == "part" and group.kind != "pointwise":
            return False
        if group.kind in ("attention", "moments"):
            return False
        if group.kind in ANCHORED and len(val.shape) > len(group.shape):
            return False
        return self.same(val.shape, group.shape) or (group.kind == "rowwise" and self._per_row(val.shape, group))

    def _can_join(self, group: Group, val: Val) -> bool:
        """Whether everything else that `val` reads can be computed before the group runs."""
        for arg in val.args:
            for other in self.makers(arg):
                if self._reaches(group, other) if other is not group else arg not in self.group:
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

    def same(self, a: Shape, b: Shape) -> bool:
        return self._key(a) == self._key(b)

    def _key(self, shape: Shape) -> Shape:
        """Equal keys are provably equal shapes, leading ones aside."""
        if shape not in self._keys:
            self._keys[shape] = self.sizes.strip(shape)
        return self._keys[shape]

    def _per_row(self, shape: Shape, group: Group) -> bool:
        return bool(shape) and self.same(shape, (*group.shape[:-1], ONE)) and self.sizes.equal(shape[-1], ONE)

    # Merging

    def _merge(self) -> None:
        """Merge producers into consumers, then kernels that read the same, as long as there are any to merge."""
        readers: dict[Val | Shape, list[Group]] = {}
        changed = True
        while changed:
            changed = False
            for group in dict.fromkeys(self.group.values()):
                for first in sorted(group.needs, key=lambda g: g.last):
                    alive = self._is_alive(group) and self._is_alive(first)
                    if alive and self._absorbs(first, group) and self._reads_few(first, group):
                        self._unite(first, group)
                        changed = True
            readers.clear()
            for group in dict.fromkeys(self.group.values()):
                # Parts of joined values are many small kernels: those over one space need nothing else in common.
                for source in (*self._loads(group), *([self._key(group.shape)] if group.has_parts else ())):
                    readers.setdefault(source, []).append(group)
            for sharing in readers.values():
                for first, second in itertools.pairwise(sharing):
                    alive = self._is_alive(first) and self._is_alive(second)
                    if alive and self._siblings(first, second) and self._reads_few(first, second):
                        self._unite(first, second)
                        changed = True

    def _is_alive(self, group: Group) -> bool:
        return self.group[group.vals[0]] is group

    def _unite(self, first: Group, second: Group) -> None:
        second.vals = first.vals + second.vals
        second.has_parts |= first.has_parts
        if first.kind == "rowwise":
            second.kind = "rowwise"
        if self.same(first.shape, second.shape):
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
        if not self._can_hold_parts(first, second):
            return False
        if any(self._blocks(v, second) for v in first.vals):
            return False
        if second.kind in ANCHORED and len(first.shape) > len(second.shape):
            return False
        if second.kind != "attention" and self.same(first.shape, second.shape):
            return not self._reaches(first, second, skip_direct=True)
        private = not any(self.is_output(v) or self._escapes(v, (first, second)) for v in first.vals)
        return private and first.kind == "pointwise" and self._is_cheap(first)

    @staticmethod
    def _can_hold_parts(first: Group, second: Group) -> bool:
        """Whether the two as one are pointwise, if either writes parts of joined values: other kernels cannot."""
        return (first.kind, second.kind) == ("pointwise", "pointwise") or not (first.has_parts or second.has_parts)

    def _blocks(self, val: Val, second: Group) -> bool:
        return any(self.group[r] is second and not direct for r, direct in self.aliases.readers(val))

    def _escapes(self, val: Val, inside: tuple[Group, Group]) -> bool:
        return any(self.group[r] not in inside for r, _ in self.aliases.readers(val))

    @staticmethod
    def _is_cheap(group: Group) -> bool:
        return len(group.vals) <= RECOMPUTED and all(v.op in CHEAP | VIEWS | {"gather"} for v in group.vals)

    def _siblings(self, first: Group, second: Group) -> bool:
        """Whether two kernels that read the same are independent and over one iteration space."""
        rows = ("pointwise", "rowwise")
        if first.kind not in rows or second.kind not in rows or not self.same(first.shape, second.shape):
            return False
        if not self._can_hold_parts(first, second):
            return False
        if first.has_parts and len({*self._loads(first), *self._loads(second)}) > _OPERANDS:
            return False
        return first is not second and not self._reaches(first, second) and not self._reaches(second, first)

    def _loads(self, group: Group) -> list[Val]:
        """What a group reads from memory at full size."""
        args = (a for v in group.vals for a in v.args if self.same(a.shape, group.shape))
        sources = dict.fromkeys(self.aliases.storage_root(a) for a in args)
        return [s for s in sources if s.op in ("input", "concat") or self.group.get(s, group) is not group]
