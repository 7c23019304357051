"""`fusion-cli optimize`: the pipeline from an ONNX file to a fused ONNX file."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from fusion_cli import pipeline
from fusion_cli.cli.common import (
    budget_options,
    debug_option,
    echo_json,
    is_quiet,
    json_option,
    model_options,
    named,
    option_group,
    parse_size,
    quiet_option,
    stdout,
)
from fusion_cli.cli.follow import progress
from fusion_cli.cli.several import are_several, optimize_several
from fusion_cli.cli.streams import STREAM, read_from, written_to
from fusion_cli.cluster import LOCAL
from fusion_cli.lock import lock_of
from fusion_cli.lock.lockfile import write_lock
from fusion_cli.report.readable import printable
from fusion_cli.report.render import render_summary
from fusion_cli.report.verdict import verdict
from fusion_cli.targets import NAMES
from fusion_cli.types import Options


def _parse_names(_: click.Context, __: click.Parameter, value: str) -> tuple[str, ...]:
    names = tuple(n.strip() for n in value.split(",") if n.strip())
    return () if names == ("all",) else names


analysis_options = option_group(
    click.option(
        "--target",
        "targets",
        multiple=True,
        default=("auto",),
        show_default=True,
        metavar="|".join(NAMES),
        shell_complete=lambda _, __, begun: [CompletionItem(name) for name in NAMES if name.startswith(begun)],
        help="What to build kernels for (repeatable).",
    ),
    click.option(
        "--rules",
        "--fusion-rules",
        "rules",
        default="all",
        show_default=True,
        metavar="all|NAMES",
        callback=_parse_names,
        help="Fusion rules to use, separated by commas.",
    ),
    click.option(
        "--rule-path",
        "rule_paths",
        multiple=True,
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="Another folder of rules (repeatable).",
    ),
    click.option(
        "--opt-level",
        type=click.IntRange(0, 3),
        default=2,
        show_default=True,
        help="Rules up to this level; 0 none, 3 those that seldom pay too.",
    ),
    model_options,
    click.option(
        "--fix-dim",
        "fixed_dims",
        multiple=True,
        callback=named("NAME=8", parse_size),
        metavar="NAME=N",
        help="Size of a symbolic dimension in the model that is written (repeatable).",
    ),
    click.option(
        "--assume-constant",
        "assume_constant",
        multiple=True,
        metavar="NAME|all",
        help="A graph input with an initializer that nobody overrides (repeatable).",
    ),
    click.option(
        "--no-algebra",
        "algebra",
        is_flag=True,
        callback=lambda _, __, left_out: not left_out,
        help="Do not write the model with fewer stock operators first.",
    ),
)
"""What decides which fusions are found: the targets, the rules and what is known of the model."""


@click.command()
@click.argument("models", nargs=-1, metavar="MODEL|DIR|PATTERN ...")
@click.option("--input", "model_option", metavar="MODEL", help="The same as MODEL.")
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="OUT", help="Where to write the fused model.")
@analysis_options
@click.option(
    "--decisions",
    type=click.Path(path_type=Path),
    metavar="REPORT",
    help="Do as the report.json of an earlier run says; time nothing.",
)
@click.option(
    "--tuning",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Do as FILE says, where it has what was measured for MODEL.",
)
@click.option("--tune", is_flag=True, help="Measure, and keep what is decided in the file of --tuning.")
@click.option("--require-tuned", is_flag=True, help="Exit with 6 where the file of --tuning has nothing for MODEL.")
@click.option("--remeasure", is_flag=True, help="Time again what was timed on this machine before.")
@click.option("--lock", type=click.Path(path_type=Path), metavar="FILE", help="Write what was fused, for check.")
@click.option("--force", is_flag=True, help="Take candidates whatever their score and measured time.")
@click.option("--in-place", is_flag=True, help="Let OUT take the place of MODEL.")
@click.option("--overwrite", is_flag=True, help="Replace an earlier output that was changed since, too.")
@click.option("--dry-run", is_flag=True, help="Say what would be done; write nothing.")
@click.option("--jobs", type=click.IntRange(min=0), default=0, help="Compilers at once (0: one per core).")
@click.option(
    "--executor",
    default=LOCAL,
    show_default=True,
    metavar=f"{LOCAL}|dask://HOST:PORT|ray://HOST:PORT",
    help="Where several models are optimized.",
)
@budget_options
@click.option("--no-verify", is_flag=True, help="Neither compare nor time the models; write the fused one.")
@click.option("--require-verified", is_flag=True, help="Exit with 4, and write nothing, where they cannot be compared.")
@quiet_option("Print the verdict alone, and no progress.")
@click.option("-v", "--verbose", is_flag=True, help="Say of every candidate what was decided and why, as it goes.")
@json_option
@debug_option
def optimize(
    models: tuple[str, ...],
    model_option: str | None,
    output: Path | None,
    lock: Path | None,
    executor: str,
    no_verify: bool,
    verbose: bool,
    as_json: bool,
    **asked: Any,
) -> None:
    """Fuse MODEL and write the result to OUT, with its kernels in a folder beside it.

    Of several models, a folder or a pattern in quotes, OUT is a folder. "-" is stdin and stdout.
    """
    if bool(models) == (model_option is not None):
        raise click.UsageError("give models: MODEL ... or --input MODEL")
    if verbose and is_quiet(click.get_current_context()):
        raise click.UsageError("--verbose and --quiet contradict each other")
    if no_verify and asked["require_verified"]:
        raise click.UsageError("--no-verify and --require-verified contradict each other")
    _check_tuning(asked, no_verify)
    if lock is not None and asked["dry_run"]:
        raise click.UsageError("--lock is of what was written and measured; leave --dry-run out")
    names = models or (str(model_option),)
    options = Options(verify=not no_verify, **asked)
    if are_several(names):
        _refuse({"--lock": lock, "--decisions": options.decisions, "--in-place": options.in_place}, "for one model")
        _refuse({"--verbose": verbose and executor != LOCAL}, "for what is done here; the reports of workers say it")
    else:
        _refuse({"--executor": executor != LOCAL}, "for several models, a folder or a pattern")
    if options.in_place and output is None and names[0] != STREAM:
        output = Path(names[0])
    if output is None and not options.dry_run:
        raise click.UsageError("give the output with -o OUT (or --dry-run)")
    if are_several(names):
        optimize_several(names, output, options, executor, verbose, as_json)
    else:
        _optimize_one(names[0], output, lock, options, verbose, as_json)


def _check_tuning(asked: Mapping[str, Any], no_verify: bool) -> None:
    given = {"--tune": asked["tune"], "--require-tuned": asked["require_tuned"]}
    if asked["tuning"] is None:
        _refuse(given, "with --tuning FILE")
    if all(given.values()):
        raise click.UsageError("--tune and --require-tuned contradict each other")
    if asked["tuning"] is not None:
        _refuse({"--decisions": asked["decisions"]}, "an alternative to --tuning")
    if asked["tune"]:
        _refuse({"--no-verify": no_verify, "--dry-run": asked["dry_run"]}, "without --tune, which measures")


def _refuse(given: Mapping[str, object], why: str) -> None:
    for option, value in given.items():
        if value:
            raise click.UsageError(f"{option} is {why}")


def _optimize_one(
    name: str, output: Path | None, lock: Path | None, options: Options, verbose: bool, as_json: bool
) -> None:
    is_streamed = output == Path(STREAM) and not options.dry_run
    if is_streamed:
        _refuse({"--json": as_json}, "for stdout, where the model goes")
    if name == STREAM:
        _refuse({"--in-place": options.in_place}, "for a file")
        options = replace(options, called=STREAM)
    with (
        read_from(name) as model,
        written_to(None if options.dry_run else output) as out,
        progress(f"optimizing {model.name}", verbose) as listener,
    ):
        report = pipeline.optimize(model, out, options, listener)
    if lock is not None:
        write_lock(lock_of(report), lock)
    if as_json:
        echo_json(report.to_dict())
    elif is_quiet(click.get_current_context()) or is_streamed:
        for line in (verdict(report), *(f"note: {note}" for note in report.notes if is_streamed)):
            click.echo(printable(line), err=is_streamed)
    else:
        render_summary(report, stdout())
        if lock is not None and name != STREAM:
            click.echo(f"next: {shlex.join(['fusion-cli', 'check', name, '--lock', str(lock)])}")
