"""Predicted time of a region, fused and not, and whether fusing it pays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import onnx_ir as ir

from fusion_cli.codes import score as codes
from fusion_cli.costs import Score, Terms
from fusion_cli.devices.profile import DeviceProfile
from fusion_cli.devices.work import EPILOGUE, Work, count, launches, total_bytes
from fusion_cli.errors import Unsupported
from fusion_cli.kernels import Kind, Sized, family_of
from fusion_cli.plan.shape_program import run_shape_program
from fusion_cli.planir.host_op import read_inputs
from fusion_cli.planir.stages import Plan, Pointwise
from fusion_cli.score.baseline import PRODUCTS, Baseline, bytes_of, one_kernel, private_shape_nodes, reorder_work
from fusion_cli.score.placement import require_gpu
from fusion_cli.score.spans import nodes_terms, operator_terms
from fusion_cli.score.uncertainty import uncertainty_us
from fusion_cli.sizes.dims import number, numbers
from fusion_cli.types import Region

MARGIN = 0.02
"""The share of the time before that a fusion has to save: less is within the error of the prediction."""
_NAMED = 2
"""How many reorders of images are named."""


@dataclass(frozen=True)
class _Cost:
    before_terms: Terms
    after_terms: Terms
    before: Sequence[Work]
    after: Sequence[Work]
    reorders: Sequence[str]
    """Those of `after` that bring images into blocks and out of them, in words."""

    @property
    def before_us(self) -> float:
        return self.before_terms.total

    @property
    def after_us(self) -> float:
        return self.after_terms.total

    @property
    def pays(self) -> bool:
        return self.after_us < self.before_us * (1 - MARGIN)


def score_region(
    region: Region,
    plan: Plan | None,
    baseline: Baseline,
    sizes: Sequence[Mapping[str, int]],
    *,
    force: bool = False,
) -> Score:
    """Predict a region's cost against the baseline's, as the mean over `sizes` (see `default_sizes`).

    Without a plan, where the rule brings its own kernel, that is taken to be one that stores nothing in between.

    Raises Unsupported with a code of `score.codes` where the fusion does not pay for every one of the sizes, or cannot
    run; with `force`, or for a device that nothing is built for, only where it cannot be predicted at all.
    """
    profile = baseline.profile
    lenient = force or profile.advisory
    if profile.kind == "cuda" and not profile.advisory:
        require_gpu(region, plan)
    try:
        costs = [_cost(region, plan, baseline, s) for s in sizes]
    except Unsupported:
        if not lenient:
            raise
        return Score(profile.target, Terms(), Terms(), 0, 0, len(region.nodes), 1 if plan is None else len(plan.stages))
    if not lenient and not all(c.pays for c in costs):
        _turn_down(costs)
    n = len(costs)
    return Score(
        target=profile.target,
        before=sum((c.before_terms for c in costs), Terms()) * (1 / n),
        after=sum((c.after_terms for c in costs), Terms()) * (1 / n),
        bytes_before=sum(total_bytes(c.before) for c in costs) // n,
        bytes_after=sum(total_bytes(c.after) for c in costs) // n,
        launches_before=max(sum(w.bytes > 0 for w in c.before) for c in costs),
        launches_after=max(launches(c.after) for c in costs),
        uncertainty_us=sum(uncertainty_us(c.before, c.after, profile) for c in costs) / n,
        operations=sum(w.flops + w.simple + w.special for c in costs for w in c.after) / n,
    )


def pays_at(region: Region, plan: Plan | None, baseline: Baseline, sizes: Mapping[str, int]) -> bool:
    """Whether fusing the region pays at these sizes. Raises Unsupported where it cannot run, or be predicted."""
    return _cost(region, plan, baseline, sizes).pays


def _cost(region: Region, plan: Plan | None, baseline: Baseline, sizes: Mapping[str, int]) -> _Cost:
    profile = baseline.profile
    before, left = baseline.work(region, sizes)
    saved, taken = baseline.reorders(region)
    before += [reorder_work(r, sizes) for r in saved]
    left += [reorder_work(r, sizes) for r in taken]
    own = own_work(region, plan, profile, sizes)
    return _Cost(
        nodes_terms(before, profile) + Terms(dispatch=private_shape_nodes(region) * profile.shape_node_us),
        operator_terms(own, profile) + nodes_terms(left, profile),
        before,
        [*own, *left],
        [f"{r.op} of {r.value.name} ({bytes_of([r.value], sizes) / 1e6:.2g} MB)" for r in taken],
    )


def own_work(region: Region, plan: Plan | None, profile: DeviceProfile, sizes: Mapping[str, int]) -> list[Work]:
    """What the kernels of a region's operator have to do. Raises Unsupported where one cannot run."""
    if plan is None:
        return [one_kernel(region.nodes, region.kernel, profile, sizes)]
    dims = _dimensions(region, plan, sizes)
    weights = frozenset(i for i, v in enumerate(region.inputs) if v.const_value is not None)
    kind: Kind = "cpu" if profile.kind == "cpu" else "cuda"
    found: list[Work] = []
    for stage in plan.stages:
        at = Sized(plan, stage, dims, profile, weights)
        works = family_of(plan, stage, kind).work(at)
        found += [replace(work, name=EPILOGUE) for work in works] if _follows_product(region, at) else works
    return found


def _follows_product(region: Region, at: Sized) -> bool:
    """Whether a stage is the pass over what a product before the region has made, no faster there than within it: the
    product's results are still on their way to memory."""
    roots = (at.plan.tensors[at.plan.root(t)] for t in at.stage.tensors)
    read = (region.inputs[r.slot].producer() for r in roots if r.role == "input" and count(at.dims[r.dims]) >= at.space)
    return isinstance(at.stage, Pointwise) and any(n is not None and n.op_type in PRODUCTS for n in read)


def _dimensions(region: Region, plan: Plan, sizes: Mapping[str, int]) -> list[tuple[int, ...]]:
    """The shape program's values in numbers. A size nobody knows is taken to be 1: as a mask's it broadcasts."""
    shapes = {
        slot: [n if (n := number(d, sizes)) is not None else 1 for d in value.shape or ()]
        for slot, value in enumerate(region.inputs)
    }
    reads = {slot: _elements(region, region.inputs[slot], sizes) for slot in read_inputs(plan.shape_program)}
    try:
        return run_shape_program(plan.shape_program, shapes, reads)
    except (ValueError, IndexError) as error:
        raise Unsupported(codes.SIZES, "sizes that fit the region", str(error)) from error


def _elements(region: Region, value: ir.Value, sizes: Mapping[str, int]) -> Sequence[int]:
    """A shape that the region reads: a constant, or the shape of what it is read to make."""
    if value.const_value is not None:
        return [int(i) for i in value.const_value.numpy().reshape(-1)]
    for user, index in value.uses():
        made = numbers(user.outputs[0], sizes)
        if user in region.nodes and user.op_type in ("Reshape", "Expand") and index == 1 and made is not None:
            return made
    raise Unsupported(codes.SIZES, "a shape that follows from the graph inputs", f"{value.name}, read at run time")


def _turn_down(costs: Sequence[_Cost]) -> None:
    worst = max(costs, key=lambda c: c.after_us - c.before_us)
    code = codes.LOSES_IN_RANGE if any(c.pays for c in costs) else codes.DOES_NOT_PAY
    slowest = max(worst.after, key=lambda w: w.slowdown * w.flops + w.bytes)
    kernels = f"{len(worst.after)} kernel{'s' * (len(worst.after) > 1)}"
    raise Unsupported(
        code,
        f"less than {worst.before_us:.1f} us, the time of the nodes",
        f"{worst.after_us:.1f} us in {kernels}, mostly {slowest.name}{_with(worst.reorders)}",
    )


def _with(reorders: Sequence[str]) -> str:
    rest = len(reorders) - _NAMED
    more = f" and {rest} more" if rest > 0 else ""
    return f"; ONNX Runtime then needs {', '.join(reorders[:_NAMED])}{more}" if reorders else ""
