"""`fusion-cli optimize` of several models into a folder, here or on workers of a cluster, and a table at the end."""

from __future__ import annotations

import glob
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import click
from rich.markup import escape
from rich.table import Table

from fusion_cli.cli.common import echo_json, is_quiet, stdout
from fusion_cli.cli.follow import progress
from fusion_cli.cluster import LOCAL, run_all
from fusion_cli.cluster.outcomes import Outcome, Task, lost, optimize_one
from fusion_cli.errors import FusionError
from fusion_cli.report.readable import counted, printable
from fusion_cli.report.verdict import verdict
from fusion_cli.types import Options


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


def optimize_several(
    names: Sequence[str], folder: Path | None, options: Options, executor: str, verbose: bool, as_json: bool
) -> None:
    """Optimize each into the folder. One that fails does not stop the others: the command then exits with its code, or
    with 1 where they differ. One that an earlier run has done, with the same options and on such a machine, is left."""
    if folder is not None and folder.exists() and not folder.is_dir():
        raise FusionError("is no folder, and there are several models", where=str(folder))
    tasks = _tasks(models_of(names, folder), None if options.dry_run else folder, options)
    is_told = not (as_json or is_quiet(click.get_current_context()))
    found = {}
    for index, outcome in _outcomes(tasks, executor, verbose):
        found[index] = outcome
        if outcome.error:
            click.echo(f"{outcome.traceback}error: {outcome.error}", err=True)
        elif outcome.report is not None and is_told:
            before = " (as before)" if outcome.is_old else ""
            click.echo(printable(f"{_shown(outcome)}: {verdict(outcome.report)}{before}"))
    outcomes = [found[index] for index in range(len(tasks))]
    if as_json:
        echo_json([_plain(outcome) for outcome in outcomes])
    else:
        stdout().print(_table(outcomes, has_workers=executor != LOCAL))
        click.echo(_totals(outcomes))
    codes = {outcome.exit_code for outcome in outcomes if outcome.error}
    click.get_current_context().exit(codes.pop() if len(codes) == 1 else int(bool(codes)))


def _tasks(models: Mapping[Path, Path], folder: Path | None, options: Options) -> list[Task]:
    """One for each model, by paths that mean the same in any folder."""
    options = replace(
        options,
        rule_paths=tuple(path.absolute() for path in options.rule_paths),
        inputs=options.inputs and options.inputs.absolute(),
    )
    return [
        Task(path.absolute(), None if folder is None else folder.absolute() / place, options)
        for place, path in models.items()
    ]


def _outcomes(tasks: Sequence[Task], executor: str, verbose: bool) -> Iterator[tuple[int, Outcome]]:
    """The outcomes with their tasks' indices, as they arrive. Raises FusionError."""
    if executor == LOCAL:
        for index, task in enumerate(tasks):
            with progress(f"{index + 1} of {len(tasks)}, {task.model.name}", verbose) as listener:
                outcome = optimize_one(task, listener)
            yield index, outcome
        return
    results = run_all(optimize_one, tasks, executor)
    for done in range(len(tasks)):
        with progress(f"{executor}: {done} of {len(tasks)} done"):
            index, result = next(results)
        yield index, lost(tasks[index], result) if isinstance(result, Exception) else result


def _table(outcomes: Iterable[Outcome], has_workers: bool) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("model", overflow="fold")
    table.add_column("speed", justify="right")
    table.add_column("written", overflow="fold")
    for name in ("fused", "nodes", "s"):
        table.add_column(name, justify="right", no_wrap=True)
    if has_workers:
        table.add_column("worker", overflow="fold")
    for outcome in outcomes:
        cells = (*_cells(outcome), outcome.worker)
        table.add_row(*map(escape, map(printable, cells[: len(table.columns)])))
    return table


def _cells(outcome: Outcome) -> tuple[str, ...]:
    seconds, report = f"{outcome.seconds:.1f}", outcome.report
    if report is None:
        return _shown(outcome), "", "FAILED", "", "", seconds
    speed = report.choice and report.choice.speed_of(report.choice.chosen)
    written = "nothing: dry run" if report.output is None else report.choice.chosen if report.choice else "untried"
    summary = report.summary
    return (
        _shown(outcome),
        f"{speed.ratio:.2f}x" if speed else "-",
        f"{written}, as before" if outcome.is_old else written,
        str(summary.fusions),
        f"{summary.nodes_before} -> {summary.nodes_after}",
        seconds,
    )


def _shown(outcome: Outcome) -> str:
    """The model's path, from the working folder if it is below."""
    path, here = outcome.task.model, Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def _totals(outcomes: Sequence[Outcome]) -> str:
    failed = sum(bool(o.error) for o in outcomes)
    old = sum(o.is_old for o in outcomes)
    before = f", {old} of them by an earlier run" if old else ""
    return f"{counted(len(outcomes), 'model')}: {len(outcomes) - failed} done{before}, {failed} failed"


def _plain(outcome: Outcome) -> dict[str, object]:
    return {
        "model": str(outcome.task.model),
        "output": None if outcome.task.output is None else str(outcome.task.output),
        "error": outcome.error or None,
        "exit_code": outcome.exit_code,
        "is_old": outcome.is_old,
        "seconds": outcome.seconds,
        "worker": outcome.worker,
        "report": None if outcome.report is None else outcome.report.to_dict(),
    }
