"""Images that one fusion makes and others read, handed over with the channels last, as the kernels of both keep them.

By itself each fusion gives and takes images as the model has them, with the channels first: the one before turns its
result over, and the one behind turns it back. What all readers of an image keep so is given to them as it is: the graph
has a Transpose at the end of the one fusion and its reverse at the beginning of the others, which their plans cancel.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import onnx_ir as ir

from fusion_cli.costs import Score, Terms
from fusion_cli.devices.work import Work, launches, total_bytes
from fusion_cli.errors import Unsupported
from fusion_cli.operators.image_axes import IMAGE, to_first, to_last
from fusion_cli.plan import Planner
from fusion_cli.score import Baseline
from fusion_cli.score.prediction import own_work
from fusion_cli.score.spans import operator_terms
from fusion_cli.scored import Sizes
from fusion_cli.simplify.algebra.edits import graph_of
from fusion_cli.types import Candidate, Region, Target

_ROUNDING_US = 1e-6
"""By which sums of equal times may differ."""


@dataclass(frozen=True, eq=False)
class _Handed:
    """An image, the fusion that makes it, and those that read it."""

    value: ir.Value
    maker: Candidate
    readers: tuple[Candidate, ...]


def hand_over(
    chosen: Sequence[Candidate], planner: Planner, baselines: Mapping[Target, Baseline], sizes: Sizes
) -> tuple[Candidate, ...]:
    """The candidates, of which those that hand images on take and give them with the channels last wherever kernels
    have no more to do for it. Transposes are put into the graph of the model for that, and are nodes of the regions."""
    current = list(chosen)
    for value in [v for c in chosen if c.region.channels_last for v in c.region.outputs]:
        handed = _handed(value, current)
        if handed is None:
            continue
        turned = _Turned(handed)
        old = (handed.maker, *handed.readers)
        new = [_again(c, r, planner, baselines, sizes) for c, r in zip(old, turned.regions, strict=True)]
        better = [c for c in new if c is not None]
        if len(better) < len(old) or _after_us(better) > _after_us(old) + _ROUNDING_US:
            turned.undo()
            continue
        made = dict(zip(old, better, strict=True))
        current = [made.get(c, c) for c in current]
    return tuple(current)


def _handed(value: ir.Value, chosen: Sequence[Candidate]) -> _Handed | None:
    """How a value is handed over, if it is an image that only fusions with the channels last make and read, all for the
    same targets and in any case, and none inside another."""
    if value.shape is None or len(value.shape) < IMAGE or value.is_graph_output():
        return None
    users = {user for user, _ in value.uses()}
    around = [c for c in chosen if value in c.region.outputs or not users.isdisjoint(c.region.nodes)]
    times_inside = Counter(n for c in around for n in c.region.nodes)
    once = times_inside.keys() >= users and max(times_inside.values(), default=0) == 1
    alike = all(c.region.channels_last and c.plan is not None and c.targets == around[0].targets for c in around)
    in_any_case = all(s.guard is None for c in around for s in c.scores.values())
    if not once or not alike or not in_any_case:
        return None
    maker = next(c for c in around if value in c.region.outputs)
    return _Handed(value, maker, tuple(c for c in around if c is not maker))


class _Turned:
    """A graph in which an image is handed over with the channels last, and the regions with the Transposes for that."""

    def __init__(self, handed: _Handed) -> None:
        value, maker = handed.value, handed.maker.region
        assert value.shape is not None
        rank = len(value.shape)
        self._value = value
        end = _transpose(value, to_last(rank), f"{value.name}_channels_last")
        self._nodes = [end]
        graph = graph_of(maker.nodes[-1])
        graph.insert_after(maker.nodes[-1], end)
        given = end.outputs[0]
        outputs = tuple(given if v is value else v for v in maker.outputs)
        self.regions = [replace(maker, nodes=(*maker.nodes, end), outputs=outputs)]
        for i, reader in enumerate(handed.readers):
            region = reader.region
            begin = _transpose(given, to_first(rank), f"{value.name}_channels_first_{i}")
            graph_of(region.nodes[0]).insert_before(region.nodes[0], begin)
            self._nodes.append(begin)
            for user, index in value.uses():
                if user in region.nodes:
                    user.replace_input_with(index, begin.outputs[0])
            inputs = tuple(given if v is value else v for v in region.inputs)
            self.regions.append(replace(region, nodes=(begin, *region.nodes), inputs=inputs))

    def undo(self) -> None:
        """Leave the graph as it was."""
        for node in reversed(self._nodes):
            for user, index in node.outputs[0].uses():
                user.replace_input_with(index, self._value)
            graph_of(node).remove(node, safe=True)


def _transpose(value: ir.Value, perm: tuple[int, ...], name: str) -> ir.Node:
    assert value.shape is not None
    node = ir.node("Transpose", [value], {"perm": perm}, name=name)
    made = node.outputs[0]
    made.name, made.type, made.shape = name, value.type, ir.Shape([value.shape[i] for i in perm])
    return node


def _again(
    candidate: Candidate, region: Region, planner: Planner, baselines: Mapping[Target, Baseline], sizes: Sizes
) -> Candidate | None:
    """A candidate with another region in its place, of nodes that cost ONNX Runtime as much; None if it has no plan."""
    try:
        plan = planner.plan(region)
        new = replace(candidate, region=region, plan=plan)
        scores = {
            b.profile.target: _changed(candidate.scores[b.profile.target], candidate, new, b, sizes)
            for b in baselines.values()
            if b.profile.target in candidate.targets
        }
    except Unsupported:
        return None
    return replace(new, scores={**candidate.scores, **scores})


def _changed(score: Score, old: Candidate, new: Candidate, baseline: Baseline, sizes: Sizes) -> Score:
    """The score of a candidate, by how much more or less its kernels have to do."""
    before, after = ([own_work(c.region, c.plan, baseline.profile, s) for s in sizes] for c in (old, new))
    n = len(sizes)
    return replace(
        score,
        after=score.after + _terms(after, baseline) + _terms(before, baseline) * -1,
        bytes_after=score.bytes_after + (sum(map(total_bytes, after)) - sum(map(total_bytes, before))) // n,
        launches_after=score.launches_after + max(map(launches, after)) - max(map(launches, before)),
    )


def _terms(works: Sequence[Sequence[Work]], baseline: Baseline) -> Terms:
    return sum((operator_terms(w, baseline.profile) for w in works), Terms()) * (1 / len(works))


def _after_us(candidates: Sequence[Candidate]) -> float:
    """What the candidates take on all their targets."""
    return sum(c.scores[t].after_us for c in candidates for t in c.targets)
