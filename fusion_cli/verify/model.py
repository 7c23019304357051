"""The fused model against the original, in ONNX Runtime on the same inputs, output by output."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import onnx_ir as ir

from fusion_cli.types import Options, OutputCheck, Verification
from fusion_cli.verify.feeds import Feeds, load_feeds, make_feeds
from fusion_cli.verify.numbers import largest_error, tolerance
from fusion_cli.verify.sessions import CPU, Array, CannotRun, Providers, Runner, open_model
from fusion_cli.verify.timing import Timing, alternate

_ROUNDS = 200


def feeds_for(original: Path, options: Options, providers: Providers = CPU) -> Feeds:
    """Inputs for a model: those of `options.inputs`, or random ones of sizes with which ONNX Runtime runs it.

    Raises ModelError if the arrays given do not fit the model, and CannotRun if ONNX Runtime cannot run it at all.
    """
    model = ir.load(original)
    if options.inputs is not None:
        return load_feeds(options.inputs, model)
    runner = open_model(original, providers=providers)

    def complaint(feeds: Feeds) -> str:
        try:
            runner.run(feeds)
        except CannotRun as error:
            return str(error)
        return ""

    return make_feeds(model, options, complaint)


def verify_model(
    original: Path,
    feeds: Feeds,
    variants: Sequence[Callable[[], Runner]],
    *,
    providers: Providers = CPU,
    seconds: float = 0.0,
) -> Verification:
    """Compare all outputs of the fused model, opened in each of these ways, with the original's; the largest error
    counts.

    With `seconds` the original is also timed against the last variant, alternating, for about that long. No more
    than two models are open at a time. A model that ONNX Runtime cannot run is skipped, with its reason; a fused
    model that fails where the original ran has an infinite error, and `skipped` is the reason.
    """
    try:
        before = open_model(original, providers=providers)
        reference = before.run(feeds)
    except CannotRun as error:
        return Verification(skipped=f"ONNX Runtime cannot run the original: {error}")
    allowed = tolerance(float_types(ir.load(original)))
    errors = dict.fromkeys(reference, 0.0)
    after: Runner | None = None
    for variant in variants:
        after = None  # a large model's weights are freed before they are read again
        try:
            after = variant()
            found = after.run(feeds)
        except CannotRun as error:
            failed = tuple(OutputCheck(name, float("inf"), allowed) for name in reference)
            return Verification(failed, skipped=f"the fused model does not run: {error}")
        errors = {name: max(errors[name], compare_output(reference, found, name)) for name in reference}
    outputs = tuple(OutputCheck(name, error, allowed) for name, error in errors.items())
    if seconds <= 0 or after is None:
        return Verification(outputs)
    timing = _time(before, after, feeds, seconds)
    return Verification(outputs, before_us=timing.a_us, after_us=timing.b_us)


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
    a, b = before.bind(feeds), after.bind(feeds)

    def measure(factor: int) -> Timing:
        most = factor * _ROUNDS
        return alternate(lambda: before.run_bound(a), lambda: after.run_bound(b), seconds=factor * seconds, most=most)

    timing = measure(1)
    return timing if timing.ratio >= 1 else measure(3)
