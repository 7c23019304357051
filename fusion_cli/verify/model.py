"""The fused model against the original, in ONNX Runtime on the same inputs, output by output."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import onnx_ir as ir

from fusion_cli.load import load_model
from fusion_cli.sessions import CPU, Array, CannotRun, Opener, Providers, Runner, Timing, open_model
from fusion_cli.types import Options, OutputCheck, Verification
from fusion_cli.verify.feeds import Feeds, load_feeds, make_feeds
from fusion_cli.verify.numbers import largest_error, tolerance

_ROUNDS = 200


@dataclass(frozen=True, eq=False)
class Reference:
    """What a model gives for some inputs, by name, and how far from it another may be."""

    model: Path
    feeds: Feeds
    outputs: Mapping[str, Array]
    tolerance: float


def reference_for(
    original: Path, options: Options, providers: Providers = CPU, opener: Opener = open_model
) -> Reference:
    """Run a model, operator by operator as it is written, with the inputs of `options.inputs`, or random ones of sizes
    with which ONNX Runtime runs it.

    Raises ModelError if the arrays given do not fit the model, and CannotRun if ONNX Runtime cannot run it.
    """
    model = load_model(original)
    given = None if options.inputs is None else load_feeds(options.inputs, model)
    runner = opener(original, providers=providers, use="reference")
    outputs: dict[str, Array] = {}

    def complaint(feeds: Feeds) -> str:
        try:
            outputs.update(runner.run(feeds))
        except CannotRun as error:
            return str(error)
        return ""

    if given is None:
        feeds = make_feeds(model, options, complaint)
    elif reason := complaint(given):
        raise CannotRun(f"ONNX Runtime cannot run the original: {reason}")
    else:
        feeds = given
    return Reference(original, feeds, outputs, tolerance(float_types(model)))


def verify_model(
    reference: Reference,
    variants: Sequence[Callable[[], Runner]],
    *,
    providers: Providers = CPU,
    seconds: float = 0.0,
    opener: Opener = open_model,
) -> Verification:
    """Compare all outputs of the fused model, opened in each of these ways, with the original's; the largest error
    counts.

    With `seconds` the original is also timed against the last variant, alternating, for about that long. Only then
    are two models open at a time. Outputs that the original itself gives other numbers for in a second run are
    skipped; a fused model that fails where the original ran has an infinite error, and `skipped` is the reason.
    """
    try:
        errors, after = _errors(reference, variants)
    except CannotRun as error:
        failed = tuple(OutputCheck(name, float("inf"), reference.tolerance) for name in reference.outputs)
        return Verification(failed, skipped=f"the fused model does not run: {error}")
    if max(errors.values(), default=0.0) > reference.tolerance:
        # ONNX Runtime's optimizations may round otherwise than the operators do one by one, quantized ones above all.
        optimized, repeatable = _optimized(reference, opener(reference.model, providers=providers))
        again, after = _errors(optimized, variants)
        errors = {name: min(error, again[name]) for name, error in errors.items() if name in repeatable}
        if not errors:
            return Verification(skipped="the original gives other numbers each time: it draws at random")
    outputs = tuple(OutputCheck(name, error, reference.tolerance) for name, error in errors.items())
    if seconds <= 0 or after is None:
        return Verification(outputs)
    before = opener(reference.model, providers=providers, use="timing")
    timing = _time(before, after, reference.feeds, seconds)
    return Verification(outputs, before_us=timing.a_us, after_us=timing.b_us)


def _errors(reference: Reference, variants: Sequence[Callable[[], Runner]]) -> tuple[dict[str, float], Runner | None]:
    """The largest error of every output in any variant, and the last of them, open. Raises CannotRun."""
    expected = reference.outputs
    errors = dict.fromkeys(expected, 0.0)
    runner: Runner | None = None
    for variant in variants:
        runner = None  # a large model's weights are freed before they are read again
        runner = variant()
        found = runner.run(reference.feeds)
        errors = {name: max(errors[name], compare_output(expected, found, name)) for name in expected}
    return errors, runner


def _optimized(reference: Reference, runner: Runner) -> tuple[Reference, set[str]]:
    """The same of the original as ONNX Runtime optimizes it, and the outputs that a second run of it gives again: a
    model may draw random numbers."""
    outputs = runner.run(reference.feeds)
    again = runner.run(reference.feeds)  # a session's first draw is the same as another's
    same = {name for name in outputs if compare_output(outputs, again, name) <= reference.tolerance}
    return replace(reference, outputs=outputs), same


def compare_output(reference: Mapping[str, Array], found: Mapping[str, Array], name: str) -> float:
    """The error of one output; infinite if `found` lacks it."""
    return largest_error(reference[name], found[name]) if name in found else float("inf")


def float_types(model: ir.Model) -> set[str]:
    """The element types of a model's floating-point values, as numpy names them."""
    types = {v.dtype for v in (*model.graph.inputs, *model.graph.outputs)}
    for node in model.graph.all_nodes():
        types.update(v.dtype for v in (*node.inputs, *node.outputs) if v is not None)
        if node.op_type == "Cast":
            types.add(ir.DataType(node.attributes.get_int("to", ir.DataType.FLOAT)))
    return {t.numpy().name for t in types if t is not None and t.is_floating_point()}


def _time(before: Runner, after: Runner, feeds: Feeds, seconds: float) -> Timing:
    """A loss is only believed if a longer measurement shows it again."""
    timing = before.time_against(after, feeds, seconds=seconds, most=_ROUNDS)
    return timing if timing.ratio >= 1 else before.time_against(after, feeds, seconds=3 * seconds, most=3 * _ROUNDS)
