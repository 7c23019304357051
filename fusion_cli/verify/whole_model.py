"""The fused model against the original, in ONNX Runtime on the same inputs, output by output."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from fusion_cli.load import load_model
from fusion_cli.sessions import Array, CannotRun, open_model
from fusion_cli.sessions.process import Opener, Runner
from fusion_cli.types import Options, OutputCheck, Verification
from fusion_cli.verify import Limit, Outputs, compare, limit
from fusion_cli.verify.feeds import Feeds, load_feeds, make_feeds
from fusion_cli.verify.signature import Signature, check_names, signature_of


@dataclass(frozen=True, eq=False)
class Reference:
    """What a model gives for some inputs, by name, and how far from it another may be."""

    model: Path
    feeds: Feeds
    outputs: Outputs
    limit: Limit


def reference_for(
    original: Path,
    options: Options,
    opener: Opener = open_model,
    signature: Signature | None = None,
) -> Reference:
    """Run a model, operator by operator as it is written, with the inputs of `options.inputs`, or random ones of sizes
    with which ONNX Runtime runs it. The model is read for its signature where that is not given.

    Raises ModelError if the arrays given do not fit the model, and CannotRun if ONNX Runtime cannot run it.
    """
    if signature is None:
        signature = signature_of(load_model(original))
        check_names(signature, options, str(original))
    given = None if options.inputs is None else load_feeds(options.inputs, signature)
    runner = opener(original, use="reference")
    outputs: dict[str, Array] = {}

    def complaint(feeds: Feeds) -> str:
        try:
            outputs.update(runner.run(feeds))
        except CannotRun as error:
            return str(error)
        return ""

    if given is None:
        feeds = make_feeds(signature, options, complaint)
    elif reason := complaint(given):
        raise CannotRun(f"ONNX Runtime cannot run the original: {reason}")
    else:
        feeds = given
    return Reference(original, feeds, outputs, limit(signature.float_types))


def verify_model(
    reference: Reference, variants: Sequence[Callable[[], Runner]], *, opener: Opener = open_model
) -> Verification:
    """Compare all outputs of the fused model, opened in each of these ways, one after the other, with the original's
    (see `compare`); the largest error counts.

    A fused model that fails
    where the original ran has an infinite error, and `skipped` is the reason; where ONNX Runtime's optimizations break
    the original as well, that is all there is to say.
    """
    original = partial(opener, reference.model)
    try:
        found = [variant().run(reference.feeds) for variant in variants]
    except CannotRun as error:
        if not _runs(original, reference.feeds):
            return Verification(skipped=f"ONNX Runtime's optimizations keep the original from running: {error}")
        failed = tuple(OutputCheck(name, float("inf"), reference.limit.relative) for name in reference.outputs)
        return Verification(failed, skipped=f"the fused model does not run: {error}")
    checks = compare(reference.outputs, found, reference.limit, original, reference.feeds)
    if not checks:
        return Verification(skipped="the original draws at random, or any rounding changes all it gives")
    return Verification(checks)


def _runs(model: Callable[[], Runner], feeds: Feeds) -> bool:
    try:
        model().run(feeds)
    except CannotRun:
        return False
    return True
