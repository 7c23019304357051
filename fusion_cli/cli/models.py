"""`fusion-cli verify` and `bench`: two models side by side in ONNX Runtime. `trust`: whose libraries run there."""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from fusion_cli import runtime
from fusion_cli.cli.common import (
    budget_options,
    debug_option,
    echo_json,
    json_option,
    model_options,
    quiet_option,
    stdout,
)
from fusion_cli.cli.follow import progress
from fusion_cli.errors import ModelError, NumbersDiffer
from fusion_cli.limits import Budget
from fusion_cli.load import is_fused, load_model
from fusion_cli.report import plain
from fusion_cli.report.lines import print_wrapped
from fusion_cli.report.readable import printable, show_us
from fusion_cli.sessions import CPU, CUDA, CannotRun, Providers, Use
from fusion_cli.sessions.process import Opener, Process, RemoteRunner
from fusion_cli.sessions.timing import Timing
from fusion_cli.types import Options
from fusion_cli.verify.whole_model import Reference, reference_for, verify_model

_PROVIDERS: dict[str, Providers] = {"cpu": CPU, "cuda": CUDA}
_trust = click.option("--trust", is_flag=True, help="Run libraries too that were not built by this user here.")
_provider = click.option(
    "--provider", type=click.Choice(list(_PROVIDERS)), default="cpu", show_default=True, help="Where to run."
)


@click.command()
@click.argument("original", metavar="A", type=click.Path(path_type=Path))
@click.argument("fused", metavar="B", type=click.Path(path_type=Path))
@model_options
@budget_options
@_provider
@_trust
@quiet_option()
@json_option
@debug_option
def verify(original: Path, fused: Path, provider: str, trust: bool, as_json: bool, debug: bool, **asked: Any) -> None:
    """Run A and B on the same inputs and compare every output; exit code 3 if they differ.

    B runs both in stock ONNX Runtime and with the libraries of its bundle that fit the machine.
    """
    providers = _PROVIDERS[provider]
    options = Options(debug=debug, **asked)
    with progress("verifying"), _process(options) as process:
        opener = partial(process.open, providers=providers)
        reference = _reference(original, fused, options, opener)
        variants = (partial(opener, fused), partial(_with_kernels, fused, providers, process, trust))
        result = verify_model(reference, variants, opener=opener)
    if result.skipped:
        raise NumbersDiffer(result.skipped, where=str(fused))
    if as_json:
        echo_json({"ok": result.ok, "outputs": plain([{**asdict(o), "ok": o.ok} for o in result.outputs])})
    else:
        for o in result.outputs:
            verdict = "ok" if o.ok else "DIFFERS"
            click.echo(f"{verdict:<8} {printable(o.output)}: largest error {o.error:.1e} (tolerance {o.tolerance:g})")
    if not result.ok:
        worst = max(result.outputs, key=lambda o: o.error)
        raise NumbersDiffer(f"output '{worst.output}' differs by {worst.error:.1e}", where=str(fused))


@click.command()
@click.argument("first", metavar="A", type=click.Path(path_type=Path))
@click.argument("second", metavar="[B]", required=False, type=click.Path(path_type=Path))
@model_options
@budget_options
@_provider
@_trust
@click.option("--seconds", type=click.FloatRange(min=0), default=5.0, show_default=True, help="How long to measure.")
@quiet_option()
@json_option
@debug_option
def bench(
    first: Path,
    second: Path | None,
    provider: str,
    trust: bool,
    seconds: float,
    as_json: bool,
    debug: bool,
    **asked: Any,
) -> None:
    """Time A and B in one process, alternating: the median of A, and B relative to it, round by round.

    Each runs with the libraries of its bundle. With A alone, a fused model is timed without its libraries and with
    them; any other model against itself, which shows how much the machine's times can be trusted.
    """
    providers = _PROVIDERS[provider]
    options = Options(debug=debug, **asked)
    with progress("timing"), _process(options, seconds) as process:
        opener = partial(process.open, providers=providers)
        feeds = _reference(first, second or first, options, opener).feeds
        try:
            kernels = partial(_with_kernels, providers=providers, process=process, trust=trust, use="timing")
            a = opener(first, use="timing") if second is None else kernels(first)
            b = kernels(second or first)
            timing = a.time_against([b], feeds, seconds=seconds, most=10**6)
        except CannotRun as error:
            raise ModelError(f"ONNX Runtime cannot run it: {error}", where=f"{first}, {second or first}") from error
    if as_json:
        echo_json(
            {
                "a": str(first),
                "b": str(second or first),
                "provider": provider,
                "a_us": timing.us(0),
                "b_us": timing.us(1),
                "a_percentiles": _percentiles(timing, 0),
                "b_percentiles": _percentiles(timing, 1),
                "rounds": timing.rounds,
                "ratio": timing.speed(1).ratio,
                "shapes": {name: list(array.shape) for name, array in feeds.items()},
            }
        )
        return
    shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in feeds.items())
    console = stdout()
    console.print(printable(f"inputs: {shapes}"), markup=False, highlight=False)
    names = (str(first), str(second))
    if second is None:
        names = (f"{first} (stock)", f"{first} ({'its libraries' if is_fused(load_model(first)) else 'again'})")
    width = max(map(len, names))
    for model, name in enumerate(names):
        us, ends = timing.us(model), _percentiles(timing, model)
        tail = f"90% within {show_us(ends['p90'])}, 99% within {show_us(ends['p99'])}, {1e6 / us:.1f} runs/s"
        print_wrapped(console, f"{name:<{width}}  {show_us(us)} ({tail})", width + 2)
    console.print(f"ratio {timing.speed(1).ratio:.3f} (over {timing.rounds} alternating rounds)", highlight=False)


@click.command()
@click.argument("model", type=click.Path(path_type=Path))
@debug_option
def trust(model: Path, debug: bool) -> None:
    """Have the libraries of MODEL run for this user as if they were built here.

    They are programs, and can do all that you can: trust those whose origin you know.
    """
    listed = ", ".join(library.target for library in runtime.trust_model(model))
    click.echo(printable(f"trusted from now on: the libraries of {model} ({listed})"))


def _percentiles(timing: Timing, model: int) -> dict[str, float]:
    """Microseconds that so many of a hundred runs took at most."""
    return {f"p{share}": timing.percentile(model, share / 100) for share in (50, 90, 99)}


def _reference(first: Path, second: Path, options: Options, opener: Opener) -> Reference:
    """Inputs for both, and what the first gives for them. A user's mistake in either file is told as such before ONNX
    Runtime sees it."""
    for path in (first, second):
        load_model(path)
    try:
        return reference_for(first, options, opener)
    except CannotRun as error:
        raise ModelError(f"ONNX Runtime cannot run it: {error}", where=str(first)) from error


def _process(options: Options, measuring: float = 0.0) -> Process:
    """Where the models run, with the budget asked for; an answer may take so many seconds more, to measure."""
    budget = Budget.asked(options.timeout, options.max_memory)
    return Process(replace(budget, seconds=budget.seconds + measuring))


def _with_kernels(path: Path, providers: Providers, process: Process, trust: bool, use: Use = "check") -> RemoteRunner:
    library = runtime.find_library(path, providers, process.available_providers(), trust)
    libraries = [] if library is None else [library.path]
    return process.open(path, libraries=libraries, providers=providers, use=use)
