"""`fusion-cli optimize` of several models: one after the other into a folder, and a table at the end."""

from __future__ import annotations

import glob
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
from rich.markup import escape
from rich.table import Table

from fusion_cli import pipeline
from fusion_cli.cli.common import echo_json, failure, is_quiet, stdout
from fusion_cli.cli.follow import progress
from fusion_cli.errors import FusionError
from fusion_cli.files import file_sha256
from fusion_cli.report import Report, machine
from fusion_cli.report.asked import asked
from fusion_cli.report.located import find_report
from fusion_cli.report.read import read_report
from fusion_cli.report.readable import counted, printable
from fusion_cli.report.verdict import verdict
from fusion_cli.types import Options
from fusion_cli.version import __version__


@dataclass(frozen=True)
class Outcome:
    """What became of one model: a report, or what is wrong; `is_old` where an earlier run did just that already."""

    model: Path
    output: Path | None
    report: Report | None
    error: str = ""
    exit_code: int = 0
    is_old: bool = False
    seconds: float = 0.0


def are_several(names: Sequence[str]) -> bool:
    """Whether these stand for more than one file: several, a folder, a pattern."""
    return len(names) > 1 or any(Path(n).is_dir() or _is_pattern(n) for n in names)


def models_of(names: Sequence[str], folder: Path | None) -> dict[Path, Path]:
    """The models, by where below the output folder what is made of each goes: those of a folder or a pattern as they
    lie there, without hidden ones and what is in the output folder. Raises FusionError where there is none, or two
    would go to one place."""
    found: dict[Path, Path] = {}
    for path, place in (pair for name in names for pair in _models(name)):
        if folder is not None and folder.resolve() in path.resolve().parents:
            continue
        if place in found:
            raise FusionError(f"'{found[place]}' goes to the same place: {place}", where=str(path), hint="rename one")
        found[place] = path
    if not found:
        hint = "of a folder those are taken whose names end in .onnx"
        raise FusionError("there are no models", where=", ".join(names), hint=hint)
    return found


def _models(name: str) -> Iterator[tuple[Path, Path]]:
    base = Path(name)
    if base.is_dir():
        for path in sorted(base.rglob("*.onnx")):
            place = path.relative_to(base)
            if not any(part.startswith(".") or part.endswith(".fusion") for part in place.parts):
                yield path, place
    elif _is_pattern(name):
        parts = base.parts
        plain = next(i for i, part in enumerate(parts) if glob.has_magic(part))
        for path in sorted(map(Path, glob.glob(name, recursive=True))):
            if path.is_file():
                yield path, path.relative_to(Path(*parts[:plain]))
    else:
        yield base, Path(base.name)


def _is_pattern(name: str) -> bool:
    return glob.has_magic(name) and not Path(name).exists()


def optimize_several(names: Sequence[str], folder: Path | None, options: Options, verbose: bool, as_json: bool) -> None:
    """Optimize each into the folder. One that fails does not stop the others: the command then exits with its code, or
    with 1 where they differ. One that an earlier run has done, with the same options and on this machine, is left."""
    if folder is not None and folder.exists() and not folder.is_dir():
        raise FusionError("is no folder, and there are several models", where=str(folder))
    models = models_of(names, folder)
    quiet = as_json or is_quiet(click.get_current_context())
    outcomes = []
    for number, (place, path) in enumerate(models.items(), 1):
        output = None if folder is None or options.dry_run else folder / place
        outcome = _optimize(path, output, options, f"{number} of {len(models)}, {path.name}", verbose)
        outcomes.append(outcome)
        if outcome.error:
            click.echo(f"error: {outcome.error}", err=True)
        elif outcome.report is not None and not quiet:
            click.echo(printable(f"{path}: {verdict(outcome.report)}{' (as before)' if outcome.is_old else ''}"))
    if as_json:
        echo_json([_plain(outcome) for outcome in outcomes])
    else:
        stdout().print(_table(outcomes))
        click.echo(_totals(outcomes))
    codes = {outcome.exit_code for outcome in outcomes if outcome.error}
    click.get_current_context().exit(codes.pop() if len(codes) == 1 else int(bool(codes)))


def _optimize(path: Path, output: Path | None, options: Options, title: str, verbose: bool) -> Outcome:
    start = time.monotonic()
    try:
        if output is not None:
            if (earlier := _done(path, output, options)) is not None:
                return Outcome(path, output, earlier, is_old=True)
            output.parent.mkdir(parents=True, exist_ok=True)
        with progress(title, verbose) as listener:
            report = pipeline.optimize(path, output, options, listener)
    except Exception as error:
        message, code = failure(error)
        return Outcome(path, output, None, message, code, seconds=time.monotonic() - start)
    return Outcome(path, output, report, seconds=time.monotonic() - start)


def _done(path: Path, output: Path, options: Options) -> Report | None:
    """The report of an earlier run that did the same."""
    located = find_report(output)
    if located is None or not path.is_file():
        return None
    try:
        report = read_report(located)
    except FusionError:
        return None
    then = report.model_sha256, report.versions["fusion-cli"], report.machine, report.options
    return report if then == (file_sha256(path), __version__, machine(), asked(options)) else None


def _table(outcomes: Iterable[Outcome]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("model", overflow="fold")
    table.add_column("speed", justify="right")
    table.add_column("written", overflow="fold")
    for name in ("fused", "nodes", "s"):
        table.add_column(name, justify="right", no_wrap=True)
    for outcome in outcomes:
        table.add_row(*map(escape, map(printable, _cells(outcome))))
    return table


def _cells(outcome: Outcome) -> tuple[str, ...]:
    name, seconds, report = str(outcome.model), f"{outcome.seconds:.1f}", outcome.report
    if report is None:
        return name, "", "FAILED", "", "", seconds
    speed = report.choice and report.choice.speed_of(report.choice.chosen)
    written = "nothing: dry run" if report.output is None else report.choice.chosen if report.choice else "untried"
    summary = report.summary
    return (
        name,
        f"{speed.ratio:.2f}x" if speed else "-",
        f"{written}, as before" if outcome.is_old else written,
        str(summary.fusions),
        f"{summary.nodes_before} -> {summary.nodes_after}",
        seconds,
    )


def _totals(outcomes: Sequence[Outcome]) -> str:
    failed = sum(bool(o.error) for o in outcomes)
    old = sum(o.is_old for o in outcomes)
    before = f", {old} of them by an earlier run" if old else ""
    return f"{counted(len(outcomes), 'model')}: {len(outcomes) - failed} done{before}, {failed} failed"


def _plain(outcome: Outcome) -> dict[str, object]:
    return {
        "model": str(outcome.model),
        "output": None if outcome.output is None else str(outcome.output),
        "error": outcome.error or None,
        "exit_code": outcome.exit_code,
        "is_old": outcome.is_old,
        "report": None if outcome.report is None else outcome.report.to_dict(),
    }
