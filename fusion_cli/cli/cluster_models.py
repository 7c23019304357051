"""Several models, on several machines: python -m fusion_cli.cli.cluster_models MODEL|DIR ... -o OUTDIR --executor E"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.markup import escape
from rich.table import Table

from fusion_cli.cli.common import INTERNAL_ERROR, budget_options, debug_option, echo_json, failure, json_option, stdout
from fusion_cli.cli.optimize import analysis_options
from fusion_cli.cli.several import models_of
from fusion_cli.cluster import LOCAL, run_all
from fusion_cli.cluster.outcomes import Outcome, Task, add_result, optimize_one, read_results
from fusion_cli.errors import FusionError, first_line
from fusion_cli.report.readable import printable
from fusion_cli.types import Options


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("models", nargs=-1, required=True, metavar="MODEL|DIR ...")
@click.option("-o", "--output", "folder", required=True, metavar="OUTDIR", type=click.Path(path_type=Path))
@click.option("--executor", default=LOCAL, show_default=True, metavar="local|dask://HOST:PORT|ray://HOST:PORT")
@analysis_options
@click.option("--force", is_flag=True, help="Take candidates whatever their score and measured time.")
@click.option("--overwrite", is_flag=True, help="Replace an earlier output that was changed since, too.")
@click.option("--jobs", type=click.IntRange(min=0), default=0, help="Compilers at once (0: one per core).")
@budget_options
@json_option
@debug_option
def main(models: Sequence[str], folder: Path, executor: str, as_json: bool, debug: bool, **asked: Any) -> None:
    """Fuse every MODEL, and those below each DIR, into OUTDIR, each on one worker of a cluster.

    Workers see the same files by the same paths, have this version of fusion-cli, and take one task at a time: times
    decide. What an earlier run did is not done again.
    """
    ctx = click.get_current_context()
    try:
        outcomes = optimize_models(models, folder, Options(debug=debug, **asked), executor)
    except FusionError as error:
        message, code = failure(error)
        click.echo(f"error: {message}", err=True)
        ctx.exit(code)
    if as_json:
        echo_json([asdict(outcome) for outcome in outcomes])
    else:
        stdout().print(_table(outcomes))
    ctx.exit(max((outcome.exit_code for outcome in outcomes), default=0))


def optimize_models(models: Sequence[str], folder: Path, options: Options, executor: str) -> list[Outcome]:
    """What became of each model, in their order; those that an earlier run into the folder has done are left as they
    are. Raises FusionError."""
    places = models_of(models, folder).items()
    tasks = [Task(path.resolve(), folder.resolve() / place, options) for place, path in places]
    folder.mkdir(parents=True, exist_ok=True)
    earlier = read_results(folder)
    found = [earlier.get(str(task.model)) for task in tasks]
    outcomes = [o if o is not None and o.is_of(t) else None for o, t in zip(found, tasks, strict=True)]
    todo = [i for i, outcome in enumerate(outcomes) if outcome is None]
    for number, result in run_all(optimize_one, [tasks[i] for i in todo], executor):
        task = tasks[todo[number]]
        if isinstance(result, Exception):
            text = f"{type(result).__name__}: {first_line(result)}"
            result = Outcome(str(task.model), str(task.output), error=text, exit_code=INTERNAL_ERROR)
        add_result(folder, result)
        outcomes[todo[number]] = result
    return [o for o in outcomes if o is not None]


def _table(outcomes: Sequence[Outcome]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("model", overflow="fold")
    for name in ("speed", "written", "fused", "nodes", "s"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("worker, or what is wrong", overflow="fold")
    for o in outcomes:
        speed = "-" if o.speed is None else f"{o.speed:.2f}x"
        nodes = f"{o.nodes[0]} -> {o.nodes[1]}"
        made = (speed, o.chosen, str(o.fusions), nodes, f"{o.seconds:.1f}", o.worker)
        cells = ("-", "FAILED", "", "", "", o.error) if o.error else made
        table.add_row(*(escape(printable(cell)) for cell in (Path(o.model).name, *cells)))
    return table


if __name__ == "__main__":
    main()
