"""The fused model against the original, in ONNX Runtime on the same inputs, output by output."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

from fusion_cli.load import load_model
from fusion_cli.measured import OutputCheck, Verification
from fusion_cli.operators.dtypes import ONNX_FLOATS
from fusion_cli.sessions import Array, CannotRun, OverBudget, open_model
from fusion_cli.sessions.process import Opener, Runner
from fusion_cli.types import FusedOp, Options
from fusion_cli.verify import Limit, Outputs, compare, limit, nudge
from fusion_cli.verify.feeds import Feeds, load_feeds, make_feeds, open_sizes
from fusion_cli.verify.sides import untried
from fusion_cli.verify.signature import Signature, check_names, signature_of

_LEAST_VECTOR = 16
"""Numbers in a constant that is taken for a bias or a scale."""


@dataclass(frozen=True, eq=False)
class Case:
    """What a model gives for some inputs, by name."""

    feeds: Feeds
    outputs: Outputs


@dataclass(frozen=True, eq=False)
class Reference:
    """What a model gives, and how far from it another may be. The first case is of likely sizes, at which models are
    timed; where sizes are open there are others."""

    model: Path
    cases: tuple[Case, ...]
    limit: Limit

    @property
    def feeds(self) -> Feeds:
        """The inputs of the first case."""
        return self.cases[0].feeds


def reference_for(
    original: Path,
    options: Options,
    opener: Opener = open_model,
    signature: Signature | None = None,
    ops: Sequence[FusedOp] = (),
) -> Reference:
    """Run a model, operator by operator as it is written, with the inputs of `options.inputs`, or random ones of sizes
    with which ONNX Runtime runs it, likely ones first, and on both sides of the guards of `ops`. The model is read for
    its signature where that is not given.

    Raises ModelError if the arrays given do not fit the model, and CannotRun if ONNX Runtime cannot run it: Refused
    where that means the file, OverBudget where it took too much.
    """
    if signature is None:
        signature = signature_of(load_model(original))
        check_names(signature, options, str(original))
    given = None if options.inputs is None else load_feeds(options.inputs, signature)
    runner = opener(original, use="reference")
    cases: list[Case] = []

    def complaint(feeds: Feeds) -> str:
        try:
            cases.append(Case(feeds, runner.run(feeds)))
        except OverBudget:
            raise  # what takes too long with likely sizes is not tried with all others
        except CannotRun as error:
            return str(error)
        return ""

    if given is None:
        make_feeds(signature, options, complaint)
    elif reason := complaint(given):
        raise CannotRun(f"ONNX Runtime cannot run the original: {reason}")
    if given is None and (options.bounds or open_sizes(signature, options)):
        with suppress(CannotRun):  # it may run at one size only
            make_feeds(signature, options, complaint, unlike=cases[0].feeds)
    if given is None:
        for sizes in untried(ops, [case.feeds for case in cases]):
            with suppress(CannotRun):
                make_feeds(signature, replace(options, dims={**options.dims, **sizes}), complaint)
    return Reference(original, tuple(cases), limit(signature.float_types))


def verify_model(
    reference: Reference, variants: Sequence[Callable[[], Runner]], *, opener: Opener = open_model
) -> Verification:
    """Compare all outputs of the fused model, opened in each of these ways, one after the other, with the original's
    (see `compare`); the largest error counts.

    A fused model that fails where the original ran has an infinite error, and `skipped` is the reason; where ONNX
    Runtime's optimizations break the original as well, that is all there is to say.
    """
    original = cache(partial(opener, reference.model))  # opened once for all cases: a deep model takes seconds
    vectors = cache(partial(_vectors, reference.model))

    def nudged(seed: int) -> Runner:  # each once: all open would take memory
        return opener(reference.model, use="reference", constants=nudge(vectors(), seed))

    try:
        found = [_run_all(variant(), reference.cases) for variant in variants]
    except CannotRun as error:
        if not _runs(original, reference.feeds):
            return Verification(skipped=f"ONNX Runtime's optimizations keep the original from running: {error}")
        names = reference.cases[0].outputs
        failed = tuple(OutputCheck(name, float("inf"), reference.limit.relative) for name in names)
        return Verification(failed, skipped=f"the fused model does not run: {error}")
    checks: dict[str, OutputCheck] = {}
    for case, *results in zip(reference.cases, *found, strict=True):
        for check in compare(case.outputs, results, reference.limit, original, case.feeds, nudged):
            checks[check.output] = max(checks.get(check.output, check), check, key=lambda c: c.share)
    if not checks:
        return Verification(skipped="the original draws at random, or any rounding changes all it gives")
    return Verification(tuple(checks.values()))


def _vectors(model: Path) -> dict[str, Array]:
    """A model's biases and scales: where its inputs are integers, these are what can be moved in the last place.
    (Constants of few numbers may be sizes.)"""
    constants = {name: value.const_value for name, value in load_model(model).graph.initializers.items()}
    vectors = {
        name: constant.numpy()
        for name, constant in constants.items()
        if constant is not None and constant.dtype in ONNX_FLOATS and len(constant.shape) == 1
    }
    return {name: array for name, array in vectors.items() if array.size >= _LEAST_VECTOR}


def _run_all(model: Runner, cases: Sequence[Case]) -> list[Outputs]:
    return [model.run(case.feeds) for case in cases]


def _runs(model: Callable[[], Runner], feeds: Feeds) -> bool:
    try:
        model().run(feeds)
    except CannotRun:
        return False
    return True
