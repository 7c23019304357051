"""`fusion-cli check`: a model held against what an earlier run locked."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from fusion_cli import pipeline
from fusion_cli.cli.common import budget_options, debug_option, echo_json, quiet_option
from fusion_cli.cli.follow import progress
from fusion_cli.errors import FusionError, GateError
from fusion_cli.lock import lock_of
from fusion_cli.lock.compare import Limits, compare, lost_places
from fusion_cli.lock.formats import FORMATS, Checked
from fusion_cli.lock.lockfile import apply_options, read_lock
from fusion_cli.report import Report
from fusion_cli.report.readable import counted
from fusion_cli.types import Options

_EXPLAINED = 3
"""Lost places that the model is analysed again for, to say what stopped their rule."""


@click.command()
@click.argument("model", type=click.Path(path_type=Path))
@click.option("--lock", "path", required=True, type=click.Path(path_type=Path), help="What optimize --lock wrote.")
@click.option(
    "--max-slowdown",
    "slowdown",
    type=click.FloatRange(min=1),
    default=Limits.slowdown,
    show_default=True,
    help="How many times slower than locked, against the original.",
)
@click.option("--min-fused", "fused", type=click.IntRange(min=0), help="How many places must be fused (all locked).")
@click.option("--max-error", "error", type=click.FloatRange(min=0), help="Of outputs and kernels (their tolerances).")
@click.option("--format", "form", type=click.Choice(list(FORMATS)), default="text", show_default=True)
@click.option("--jobs", type=click.IntRange(min=0), default=0, help="Compilers at once (0: one per core).")
@budget_options
@click.option("--no-verify", is_flag=True, help="Neither compare nor time the models.")
@quiet_option()
@debug_option
def check(
    model: Path,
    path: Path,
    slowdown: float,
    fused: int | None,
    error: float | None,
    form: str,
    no_verify: bool,
    **asked: Any,
) -> None:
    """Fail, with exit code 4, if MODEL is not fused any more as the lock says, or not as well."""
    locked = read_lock(path)
    options = apply_options(locked.options, Options(verify=not no_verify, **asked))
    with progress(f"checking {model.name}") as listener, TemporaryDirectory(prefix="fusion-cli-check-") as folder:
        output = Path(folder) / "checked.onnx"
        report = pipeline.optimize(model, output, options, listener, decisions=locked.decisions(path))
        found = lock_of(report)
        listener.stage("explain")
        lost = [(fusion.rule, nodes) for fusion, nodes in lost_places(locked, found)]
        reasons = {nodes: _why(model, options, report, *each) for each in lost[:_EXPLAINED] for nodes in each[1:]}
    findings, notes = compare(locked, found, Limits(slowdown, fused, error), reasons)
    checked = Checked(shlex.quote(str(model)), shlex.quote(str(path)), locked, found, tuple(findings), tuple(notes))
    told = FORMATS[form](checked)
    click.echo(told) if isinstance(told, str) else echo_json(told)
    if findings:
        raise GateError(f"{counted(len(findings), 'condition')} of the lock does not hold", where=str(model))


def _why(model: Path, options: Options, report: Report, rule: str, nodes: tuple[str, ...]) -> str:
    """What stopped the rule at these nodes."""
    told = next((r for r in report.rejected if r.nodes == nodes and r.rule == rule), None)
    if told is not None:
        return f"{told.code} ({told.stage}) expected {told.expected}, found {told.found}"
    operators: Mapping[str, str] = {n.name: n.operator for n in report.graph}
    left = [name for name in nodes if name in operators]
    gone = [name for name in nodes if name not in operators]
    missing = f"{', '.join(gone[:3])}{' and others' if len(gone) > 3 else ''} no longer there; " if gone else ""
    if not left:
        return "none of its nodes is in the model any more"
    try:
        return missing + _reason(model, options, rule, left)
    except FusionError as error:
        return f"{missing}{error}"


def _reason(model: Path, options: Options, rule: str, nodes: Sequence[str]) -> str:
    """What stops the rule at nodes that are there, or at the one that it leaves out now."""
    report, answer = pipeline.explain(model, options, nodes[-1], rule)
    taken = next((f.nodes for f in report.fusions if nodes[-1] in f.nodes), ())
    outside = [name for name in nodes if name not in taken]
    if taken and outside:
        only = f"a fusion takes {len(nodes) - len(outside)} of these nodes only; "
        return only + _reason(model, options, rule, outside)
    near = [r for r in report.rejected if nodes[-1] in r.nodes and rule in (r.rule, *r.part_of)]
    if not near:
        return "" if answer is None else f"{answer.code} {answer.text}".strip()
    first = near[0]
    advice = f"; {first.hint}" if first.hint else ""
    place = f"{first.source or first.stage} at {first.node}"
    return f"{first.code} {place}: expected {first.expected}, found {first.found}{advice}"
