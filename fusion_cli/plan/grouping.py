"""Which stages of a plan one kernel could run together; where no family takes a group, they run one after the other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from fusion_cli.planir.stages import Attention, Conv, Group, Linear, Operand, Pointwise, Rowwise, Stage, Tensor, root_of


def find_groups(tensors: Sequence[Tensor], stages: Sequence[Stage], outputs: Sequence[int]) -> tuple[Group, ...]:
    """The groups, by kind; a stage may be in several."""
    flow = _Flow(tensors, stages, outputs)
    found = [*_products(flow), *_rows(flow), *_prologues(flow), *_convolutions(flow), *_elements(flow)]
    return tuple(g for g in found if flow.is_convex(g.stages))


class _Flow:
    """Which stage reads what which other stage wrote."""

    def __init__(self, tensors: Sequence[Tensor], stages: Sequence[Stage], outputs: Sequence[int]) -> None:
        self.stages = stages
        self._tensors = tensors
        self._outputs = {root_of(tensors, t) for t in outputs}
        self._written = [{root_of(tensors, s.tensor) for s in stage.stores} for stage in stages]
        self.after: list[set[int]] = []
        """By stage: the earlier stages whose results it reads."""
        last: dict[int, set[int]] = {}
        for i, stage in enumerate(stages):
            read = {root_of(tensors, o.tensor) for o in stage.operands}
            self.after.append(set().union(*(last.get(t, set()) for t in read)))
            for tensor in self._written[i]:
                # Views are parts of one tensor, which several stages may write.
                whole = all(tensors[s.tensor].is_own for s in stage.stores)
                last[tensor] = {i} if whole else last.get(tensor, set()) | {i}

    def maker(self, stage: int, operand: Operand) -> int | None:
        """The one stage before `stage` that wrote what it reads by `operand`."""
        root = root_of(self._tensors, operand.tensor)
        found = [i for i in self.after[stage] if root in self._written[i]]
        return found[0] if len(found) == 1 else None

    def reads_alone(self, reader: int, written: int) -> bool:
        """Whether nothing but `reader` needs what the stage `written` wrote."""
        others = any(written in before for i, before in enumerate(self.after) if i != reader)
        return not others and self._outputs.isdisjoint(self._written[written])

    def is_convex(self, group: Sequence[int]) -> bool:
        """Whether no path leaves the group and comes back, so that its stages can run at once."""
        outside: set[int] = set()
        for i in range(group[0], group[-1] + 1):
            if i in group:
                if not outside.isdisjoint(self.after[i]):
                    return False
            elif not self.after[i].isdisjoint({*group, *outside}):
                outside.add(i)
        return True


def _products(flow: _Flow) -> Iterator[Group]:
    """Products of one left operand: q, k and v, gate and up."""
    by_left: dict[tuple[Operand, bool, int | None], list[int]] = defaultdict(list)
    for i, stage in enumerate(flow.stages):
        if isinstance(stage, Linear):
            left = stage.operands[stage.a]
            by_left[left, stage.trans_a, flow.maker(i, left)].append(i)
    return (Group("products", tuple(stages)) for stages in by_left.values() if len(stages) > 1)


def _rows(flow: _Flow) -> Iterator[Group]:
    """A product, and the statistics or the norm taken of the rows of its result."""
    for i, stage in enumerate(flow.stages):
        if isinstance(stage, Rowwise):
            for before in sorted(flow.after[i]):
                if isinstance(flow.stages[before], Linear):
                    yield Group("rows", (before, i))


def _prologues(flow: _Flow) -> Iterator[Group]:
    """What an attention's q or k is computed from element by element, and the attention: a rotary embedding."""
    for i, stage in enumerate(flow.stages):
        if isinstance(stage, Attention):
            makers = {flow.maker(i, stage.operands[k]) for k in (stage.q, stage.k)} - {None}
            before = sorted(m for m in makers if m is not None and isinstance(flow.stages[m], Pointwise))
            own = [m for m in before if flow.reads_alone(i, m)]
            if own:
                yield Group("prologue", (*own, i))


def _convolutions(flow: _Flow) -> Iterator[Group]:
    """A chain of convolutions, each of what the one before it made."""
    chains: dict[int, tuple[int, ...]] = {}
    for i, stage in enumerate(flow.stages):
        if isinstance(stage, Conv):
            before = flow.maker(i, stage.operands[stage.x])
            chains[i] = (*chains.pop(before), i) if before in chains and before is not None else (i,)
    return (Group("convolutions", chain) for chain in chains.values() if len(chain) > 1)


def _elements(flow: _Flow) -> Iterator[Group]:
    """Neighbours that are computed element by element, none from what another makes: rotary embeddings, caches."""
    run: list[int] = []
    for i, stage in enumerate([*flow.stages, None]):
        if not isinstance(stage, Pointwise) or not flow.after[i].isdisjoint(run):
            if len(run) > 1:
                yield Group("elements", tuple(run))
            run = []
        if isinstance(stage, Pointwise):
            run.append(i)
