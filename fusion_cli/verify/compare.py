"""What was found against what the original gives: as it is written and, where need be, as ONNX Runtime optimizes it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from fusion_cli.sessions import Array, Runner
from fusion_cli.verify.numbers import largest_error

Outputs = Mapping[str, Array]


def output_errors(
    reference: Outputs,
    found: Sequence[Outputs],
    allowed: float,
    optimized: Callable[[], Runner],
    feeds: Mapping[str, Array],
) -> dict[str, float]:
    """The largest error of every output, by name, in any of the results found; raises CannotRun.

    ONNX Runtime's optimizations may round otherwise than the operators do one by one, quantized ones above all, and
    make some norms into others. So where a result is further from `reference` than allowed, the original is run again
    as `optimized` opens it, and each result may agree with either. Outputs that a second such run gives other numbers
    for are left out: the original draws them at random.
    """
    errors = [_errors(reference, each) for each in found]
    if all(error <= allowed for each in errors for error in each.values()):
        return _largest(reference, errors)
    outputs, repeatable = _run_twice(optimized(), feeds, allowed)
    again = [_errors(outputs, each) for each in found]
    either = [{name: min(a[name], b[name]) for name in a} for a, b in zip(errors, again, strict=True)]
    return _largest(repeatable, either)


def _errors(expected: Outputs, found: Outputs) -> dict[str, float]:
    """The error of every output; infinite if `found` lacks it."""
    return {
        name: largest_error(array, found[name]) if name in found else float("inf") for name, array in expected.items()
    }


def _largest(names: Iterable[str], errors: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: max((each[name] for each in errors), default=0.0) for name in names}


def _run_twice(runner: Runner, feeds: Mapping[str, Array], allowed: float) -> tuple[Outputs, list[str]]:
    """What a model gives, and the outputs that it gives again: a session's first draw is the same as another's, its
    second is not."""
    outputs = runner.run(feeds)
    again = _errors(outputs, runner.run(feeds))
    return outputs, [name for name, error in again.items() if error <= allowed]
