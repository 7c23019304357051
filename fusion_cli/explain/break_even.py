"""From which size of an open dimension on a fusion pays, by the same score at other sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import onnx_ir as ir

from fusion_cli.codes.score import DOES_NOT_PAY, ONLY_FORCE, SIZES_NAMED
from fusion_cli.errors import Unsupported
from fusion_cli.plan import Plan, Planner
from fusion_cli.score.baseline import Baseline
from fusion_cli.score.crossing import doubled, edge, halved
from fusion_cli.score.prediction import pays_at
from fusion_cli.sizes.algebra import names_in
from fusion_cli.sizes.dims import number
from fusion_cli.sizes.parsing import parse, written
from fusion_cli.types import Region, Rejection

LARGEST = 1 << 16
"""Sizes beyond this are not tried."""
_NEVER = "pays at no size of"
Infer = Callable[[Mapping[str, int]], Mapping[str, int]]


def with_break_even(
    ranked: Iterable[Rejection],
    regions: Iterable[Region],
    planner: Planner,
    baselines: Iterable[Baseline],
    sizes: BreakEven,
) -> tuple[Rejection, ...]:
    """The rejections; those of what would not pay say at which sizes it would."""
    targets = {b.profile.target: b for b in baselines}
    by_nodes = {(r.rule, r.node_names): r for r in regions}
    found = []
    for rejection in ranked:
        region = by_nodes.get((rejection.rule, rejection.nodes))
        if rejection.code == DOES_NOT_PAY and not rejection.covered_by and region is not None:
            words = sizes.words(region, planner.plan(region), targets[rejection.target])
            hint = ONLY_FORCE if words.startswith(_NEVER) else SIZES_NAMED if words else rejection.hint
            rejection = replace(rejection, found="; ".join(filter(None, (rejection.found, words))), hint=hint)
        found.append(rejection)
    return tuple(found)


class BreakEven:
    """For the regions of one graph, at sizes at which they do not pay. `infer` gives the sizes of all dimensions for
    others of the inputs; None where that takes long."""

    def __init__(self, graph: ir.Graph, sizes: Mapping[str, int], infer: Infer | None = None) -> None:
        shapes = (v.shape for v in graph.inputs if v.name not in graph.initializers)
        dims = [d.value for shape in shapes for d in shape or () if not isinstance(d, int) and d.value]
        names = dict.fromkeys(name for dim in dims for name in names_in(parse(dim)))
        self._open = {name: sizes[name] for name in names if sizes.get(name)}
        self._inner = {dim: size for dim, size in sizes.items() if number(dim, self._open) is None}
        """Sizes inside that shape inference with numbers tells, and nothing else does."""
        self._infer = infer
        self._slopes: dict[str, Mapping[str, float]] = {}
        self._at: dict[tuple[str, int, bool], Mapping[str, int]] = {}

    def words(self, region: Region, plan: Plan | None, baseline: Baseline) -> str:
        """Where a region that does not pay would, as far as sizes have a say: "pays from seq=37"; that it does at no
        size; "" where its sizes are fixed, or do not follow from those of the inputs."""
        values = [*region.inputs, *(v for n in region.nodes for v in n.outputs)]
        dims = {d.value: d for v in values for d in v.shape or () if not isinstance(d, int)}
        inner = [name for name, dim in dims.items() if name is None or number(dim, self._open) is None]
        if any(name not in self._inner for name in inner) or (inner and self._infer is None):
            return ""
        used = {name for dim in dims if dim not in inner for name in names_in(parse(str(dim)))}
        names = [n for n in self._open if n in used or any(self._slope(n).get(str(dim)) for dim in inner)]
        found = [text for name in names if (text := self._pays(name, region, plan, baseline, bool(inner)))]
        if not names:
            return ""
        listed = " or ".join(map(written, names))
        return f"pays {' or '.join(found)}" if found else f"{_NEVER} {listed} up to {LARGEST}"

    def _slope(self, name: str) -> Mapping[str, float]:
        """By how much inner sizes grow with an open one, told by the sizes at twice that."""
        if name not in self._slopes:
            assert self._infer is not None
            size = self._open[name]
            doubled = self._infer({**self._open, name: 2 * size})
            known = {dim: doubled[dim] for dim in self._inner if dim in doubled}
            self._slopes[name] = {dim: (after - self._inner[dim]) / size for dim, after in known.items()}
        return self._slopes[name]

    def _pays(self, name: str, region: Region, plan: Plan | None, baseline: Baseline, is_inner: bool) -> str:
        def pays(size: int) -> bool:
            try:
                return pays_at(region, plan, baseline, self._with(name, size, is_inner))
            except Unsupported:
                return False

        now = self._open[name]
        for relation, tried in (("from", doubled(now, LARGEST)), ("up to", halved(now))):
            last = now
            for size in tried:
                if pays(size):
                    return f"{relation} {written(name)}={edge(last, size, pays)}"
                last = size
        return ""

    def _with(self, name: str, size: int, is_inner: bool) -> Mapping[str, int]:
        """The same object for the same sizes: work that was counted for them is known by it."""
        key = name, size, is_inner
        if key not in self._at:
            more = size - self._open[name]
            slopes = self._slope(name) if is_inner else {}
            inner = {dim: max(round(self._inner[dim] + slope * more), 1) for dim, slope in slopes.items()}
            self._at[key] = {**inner, **self._open, name: size}
        return self._at[key]
