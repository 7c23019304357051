"""The first half of the pipeline: from a file to the candidates worth taking. Nothing is changed or written."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import onnx_ir as ir

from fusion_cli.build import advice
from fusion_cli.clock import Clock
from fusion_cli.costs import Forecast
from fusion_cli.errors import FusionError, did_you_mean
from fusion_cli.explain.break_even import BreakEven, with_break_even
from fusion_cli.explain.fates import after, fates
from fusion_cli.explain.near_misses import near_misses
from fusion_cli.explain.potential import Potential
from fusion_cli.explain.rank import rank
from fusion_cli.explain.why import Answer, answer, unconcerned
from fusion_cli.files import file_sha256
from fusion_cli.handed_over import hand_over
from fusion_cli.load import fix_sizes, is_fused, load_model
from fusion_cli.match import find_regions, load_rules
from fusion_cli.measured import Choice
from fusion_cli.outline import inline_back
from fusion_cli.outline.both_ways import LEAST_OPSET, dispatched
from fusion_cli.plan import Planner
from fusion_cli.report import Fusion, Report, summarise
from fusion_cli.report.asked import asked
from fusion_cli.report.readable import counted
from fusion_cli.score import Baseline, default_sizes, forecasts, load_profile, profile_id
from fusion_cli.score.guards import Guards
from fusion_cli.scored import score_regions
from fusion_cli.select import select
from fusion_cli.simplify import simplify
from fusion_cli.simplify.trace import Traced, names, trace
from fusion_cli.sizes.parsing import written
from fusion_cli.targets import CPU, DEFINITE, resolve_targets, runs_here, takes_blocks
from fusion_cli.types import Candidate, GraphNode, Options, Rejection, Rewrite, Target, label
from fusion_cli.verify.feeds import load_feeds, open_sizes
from fusion_cli.verify.signature import Signature, check_names, signature_of

_MOST_INFERRED = 5_000
"""Nodes of a model whose shapes are inferred again to say at which sizes what does not pay would."""


@dataclass(frozen=True, eq=False)
class Analysis:
    """A model, what was found in it, and what of it is to be fused."""

    model: ir.Model
    signature: Signature
    targets: tuple[Target, ...]
    candidates: tuple[Candidate, ...]
    chosen: tuple[Candidate, ...]
    idioms: Mapping[str, int]
    rejections: tuple[Rejection, ...]
    answer: Answer | None = None
    """On the node that was asked about."""
    algebra: tuple[Rewrite, ...] = ()
    assumed: Mapping[str, int] = field(default_factory=dict)
    """Sizes of the inputs that are made up, by name."""
    notes: tuple[str, ...] = ()
    """What keeps the whole model from being fused better."""
    forecasts: tuple[Forecast, ...] = ()
    """The time of the whole model, by target and by how it runs."""
    graph: tuple[GraphNode, ...] = ()
    """The model's nodes, before any is fused."""
    options: Options = field(default_factory=Options)
    """What was asked for."""
    regions: int = 0
    """At how many places rules matched, overlapping ones included."""
    was_fused: bool = False
    """Whether the model came with functions of ours, which were put back into nodes."""
    tried: tuple[str, ...] = ()
    """The targets for which fusions are taken that are not predicted to pay, but may."""


def analyse(
    path: Path,
    options: Options,
    clock: Clock,
    node: str | None = None,
    rule: str | None = None,
    blocks: bool | None = None,
    tried: Collection[str] = (),
) -> Analysis:
    """Run the stages load, simplify, match, plan, score and select.

    With `node`, the name of a node of the model (or of a value it makes), every rejection that concerns it is kept,
    and with `rule` fainter misses of that rule. `blocks` says whether convolutions take channels in blocks where the
    model will run; None is as on this machine. What may pay as far as predictions go, and is not predicted to, is taken
    for the targets `tried`, or with `--tune` those that this machine can measure. Raises FusionError for what the user
    can mend.
    """
    targets = resolve_targets(options.targets)
    blocks = takes_blocks(targets) if blocks is None else blocks
    rules = load_rules(options.rules, options.rule_paths, options.opt_level, [t.name for t in targets], DEFINITE)
    with clock.stage("load"):
        model, was_fused = _load(path, options)
        clock.scale(model)
        check_names(signature_of(model), options, str(path))
        fix_sizes(model, options.fixed_dims)
        signature = signature_of(model)
        shapes = dict(options.shapes)
        if options.inputs is not None:  # what is wrong with them is said before the work begins
            shapes |= {name: array.shape for name, array in load_feeds(options.inputs, signature).items()}
    with clock.stage("simplify"):
        simple = simplify(model, partial(_read, path, options), options.algebra, blocks)
        model = simple.model
    traced = None if node is None else _trace(node, path, model)
    watch = [] if traced is None or traced.node is None else [traced.node]
    with clock.stage("match"):
        found = find_regions(model, rules, watch, rule)
        missed = near_misses(found)
        nothing_near = unconcerned(found, missed.concerned)
        regions, idioms, meanings = found.regions, found.idioms, [m for n in watch for m in found.meanings(n)]
        del found  # what searches remember takes much memory, and is of no more use
    with clock.stage("score"):
        sizes = default_sizes(model, replace(options, shapes=shapes))
        baselines = {t: Baseline(model.graph, load_profile(t)) for t in targets}
    planner = Planner()
    uncertain = [t for t in targets if t.name in tried or (options.tune and (t == CPU or runs_here(t.name)))]
    rule_targets = {r.name: r.targets for r in rules.fusions}
    scored = score_regions(regions, planner, baselines, sizes, options, clock, uncertain, rule_targets)
    with clock.stage("select"):
        names_of_targets = [t.name for t in targets]
        chosen, lost = select(scored.candidates, model.graph, names_of_targets)
        chosen, rejections = scored.with_uncertain(chosen, model.graph, names_of_targets)
        if _may_branch(model, targets, options) and len(sizes) == 1:
            guards = Guards(model.graph, sizes[0], open_sizes(signature, options), baselines[targets[0]])
            chosen = tuple(map(guards.guarded, chosen))
        for told in (*(f"{c.region.rule} at {c.region.node_names[-1]}: taken" for c in chosen), *lost):
            clock.listener.decided(f"{told}")
        potential = Potential(baselines[targets[0]], chosen, sizes[0])
        watched = [label(n) for n in watch]
        ranked = rank((*missed.rejections, *rejections, *lost), model.graph, chosen, potential, watched)
        if len(sizes) == 1:  # of a range it is said whether it pays at some
            infer = partial(_sizes_at, model, options) if signature.nodes <= _MOST_INFERRED else None
            even = BreakEven(model.graph, sizes[0], infer)
            ranked = with_break_even(ranked, regions, planner, baselines.values(), even)
    asked = None
    if node is not None and traced is not None:
        concerning = [r for r in ranked if not set(watched).isdisjoint(r.nodes)]
        asked = answer(node, traced, model.graph, rules, chosen, concerning, meanings)
    with clock.stage("select"):
        chosen = hand_over(chosen, planner, baselines, sizes)
    return Analysis(
        model,
        signature,
        targets,
        scored.candidates,
        chosen,
        idioms,
        ranked + nothing_near,
        asked,
        simple.algebra,
        {written(name): sizes[0].get(name, size) for name, size in open_sizes(signature, options).items()},
        _notes(model, targets, options, was_fused),
        tuple(f for b in baselines.values() for f in forecasts(model.graph, chosen, b.profile, sizes[0])),
        fates(model.graph, regions, chosen, missed.concerned),
        options,
        len(regions),
        was_fused,
        tuple(t.name for t in uncertain),
    )


def _may_branch(model: ir.Model, targets: Sequence[Target], options: Options) -> bool:
    """Whether a fusion may be written beside its nodes. A CUDA graph has no control flow, kernels for several targets
    pay at sizes of their own, and what is forced runs at all."""
    is_for_cpu = len(targets) == 1 and targets[0].kind == "cpu"
    return is_for_cpu and not options.force and model.opset_imports.get("", 0) >= LEAST_OPSET


def _sizes_at(model: ir.Model, options: Options, sizes: Mapping[str, int]) -> Mapping[str, int]:
    """Those of all dimensions, at others of the inputs."""
    dims = {written(name): (size, size) for name, size in sizes.items()}
    return default_sizes(model, replace(options, shapes={}, dims=dims))[0]


def _load(path: Path, options: Options) -> tuple[ir.Model, bool]:
    """The model, and whether it was optimized already: then its functions are put back into nodes."""
    model = load_model(path, options.assume_constant)
    was_fused = is_fused(model)
    if was_fused:
        inline_back(model, lambda _: True)
    return model, was_fused


def _read(path: Path, options: Options) -> ir.Model:
    model, _ = _load(path, options)
    fix_sizes(model, options.fixed_dims)
    return model


def _notes(model: ir.Model, targets: Sequence[Target], options: Options, was_fused: bool) -> tuple[str, ...]:
    notes = []
    if was_fused:
        notes.append("optimized by fusion-cli already: its functions were put back into nodes, and optimized anew")
    if "auto" in options.targets and any(t.kind == "portable" for t in targets):
        notes.append(f"NO KERNELS: there is no compiler on this machine. {advice(CPU)}")
    overridable = [v.name for v in model.graph.inputs if v.name in model.graph.initializers]
    if overridable:
        listed = counted(len(overridable), "graph input")
        notes.append(
            f"{listed} with an initializer, such as '{overridable[0]}', may be overridden by callers, so no rule takes "
            f"them for constants; --assume-constant NAME (or all) says that nobody does"
        )
    return tuple(notes)


def _trace(name: str, path: Path, model: ir.Model) -> Traced:
    original = load_model(path)
    traced = trace(name, original, model)
    if traced is None and (name in original.graph.initializers or name in {v.name for v in original.graph.inputs}):
        raise FusionError(
            f"'{name}' is an input or a constant, not a node", where=str(path), hint="ask for one that reads it"
        )
    if traced is None:
        alike = [label(n) for n in model.graph.all_nodes() if n.op_type == name]
        hint = did_you_mean(name, names(original, model)) or "nodes go by their name, or by that of a value they make"
        if alike:
            hint = f"{name} is the operator of {', '.join(alike[:3])}{' and others' if len(alike) > 3 else ''}"
        raise FusionError(f"no node '{name}'", where=str(path), hint=hint)
    return traced


def report_of(
    path: Path, found: Analysis, clock: Clock, fusions: tuple[Fusion, ...], choice: Choice | None = None
) -> Report:
    """What the analysis found, the fusions there are, and which whole model is written."""
    targets, nodes_before = tuple(t.name for t in found.targets), found.signature.nodes
    # With those of bodies: what a session with all kernels dispatches.
    is_original = choice is not None and choice.chosen == "original"
    nodes_after = nodes_before if is_original else dispatched(found.model)
    return Report(
        model=found.options.called or str(path),
        model_sha256=file_sha256(path),
        options=asked(found.options),
        targets=targets,
        summary=summarise(fusions, targets, nodes_before, nodes_after, found.regions),
        idioms=found.idioms,
        algebra=found.algebra,
        assumed=found.assumed,
        fusions=fusions,
        predicted=found.forecasts,
        rejected=found.rejections,
        choice=choice,
        timings=dict(clock.seconds),
        notes=found.notes,
        profiles={t.name: profile_id(t) for t in found.targets},
        tried=found.tried,
        operators=dict(sorted(found.signature.operators.items())),
        graph=after(found.graph, (n for f in fusions for n in f.nodes)),
    )
