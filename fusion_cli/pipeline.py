"""All stages, in order: load, simplify, match, plan, score, select, outline, emit, build, save, verify, choose and
report."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from fusion_cli import collector
from fusion_cli.analyse import analyse, report_of
from fusion_cli.clock import Clock
from fusion_cli.errors import ModelError, NumbersDiffer
from fusion_cli.explain.why import Answer
from fusion_cli.files import file_sha256
from fusion_cli.listener import NOBODY, Listener
from fusion_cli.match import load_rules
from fusion_cli.outline import outline
from fusion_cli.outline.apart import keep_apart
from fusion_cli.produce import Production
from fusion_cli.recall import is_recalled, recall, remember
from fusion_cli.report import Report, planned_fusions
from fusion_cli.report.asked import asked
from fusion_cli.report.decisions import Decisions, read_decisions
from fusion_cli.report.tuning import add_tuned, find_tuned
from fusion_cli.save import commit, staging
from fusion_cli.targets import CPU, device_of, runs_here
from fusion_cli.types import Options, Target
from fusion_cli.verify.blame import blaming

__all__ = ["explain", "load_rules", "optimize"]


@collector.seldom()
def explain(
    model: Path,
    options: Options,
    node: str | None = None,
    rule: str | None = None,
    listener: Listener = NOBODY,
) -> tuple[Report, Answer | None]:
    """What `optimize` would do; with `node`, the name of a node or of a value, the answer to why it is not fused, and
    with `rule` also where that one rule came less near.

    Raises FusionError with what went wrong, where and how to mend it.
    """
    clock = Clock(options, listener)
    with blaming(model):
        found = analyse(model, options, clock, node, rule)
    return report_of(model, found, clock, planned_fusions(found.chosen)), found.answer


@collector.seldom()
def optimize(
    model: Path,
    output: Path | None,
    options: Options,
    listener: Listener = NOBODY,
    decisions: Decisions | None = None,
) -> Report:
    """Fuse the model at `model` and write it, with its bundle, to `output`; None writes nothing. `decisions` are taken
    in place of those that `options` name a file of.

    Raises FusionError with what went wrong, where and how to mend it; what was at `output` before is then unchanged.
    """
    if decisions is None and options.decisions is not None:
        decisions = read_decisions(options.decisions, file_sha256(model))
    if decisions is None and options.tuning is not None and not options.tune:
        decisions = find_tuned(options.tuning, file_sha256(model), asked(options), required=options.require_tuned)
    if decisions is not None:
        replayed = replace(options, targets=decisions.targets, decisions=decisions.path)
        return _made(model, output, replayed, listener, decisions)
    if output is None or not is_recalled(options):
        return _made(model, output, options, listener)
    if (earlier := recall(model, options)) is not None:
        with suppress(ModelError, NumbersDiffer):  # where it does not hold any more, it is measured anew
            return _made(model, output, replace(options, decisions=earlier.path), listener, earlier)
    report = _made(model, output, options, listener)
    remember(model, options, report)
    return report


def _made(
    model: Path, output: Path | None, options: Options, listener: Listener, decisions: Decisions | None = None
) -> Report:
    """All stages; raises as `optimize` does."""
    clock = Clock(options, listener)
    blocks, tried = (None, ()) if decisions is None else (decisions.blocks, decisions.tried)
    if output is None or options.dry_run:
        with blaming(model):
            found = analyse(model, options, clock, blocks=blocks, tried=tried)
        return report_of(model, found, clock, planned_fusions(found.chosen))
    with staging(output, model, options.overwrite, options.in_place) as stage, blaming(model):
        found = analyse(model, options, clock, blocks=blocks, tried=tried)
        with clock.stage("outline"):
            if options.algebra and all(t.kind != "cuda" for t in found.targets):
                found = replace(found, algebra=(*found.algebra, *keep_apart(found.model)))
            ops = outline(found.model, found.chosen)
        report = Production(model, found, options, decisions, clock, stage).write(ops)
        commit(stage)
        if options.tuning is not None and options.tune:
            report = _kept(report, options.tuning, found.targets)
        moved = (replace(lib, path=output.parent / lib.path.relative_to(stage.folder)) for lib in report.libraries)
        return replace(report, libraries=tuple(moved))


def _kept(report: Report, tuning: Path, targets: Sequence[Target]) -> Report:
    """Keep what was measured in a tuning file; the report says so if nothing was."""
    measured = next((t for t in targets if t.kind != "portable" and runs_here(t.name)), CPU)
    if add_tuned(tuning, report, *device_of(measured)):
        return report
    return replace(report, notes=(*report.notes, f"nothing was measured, so that nothing was added to {tuning}"))
