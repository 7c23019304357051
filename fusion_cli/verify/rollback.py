"""The trial of a fused model: what holds, what is worth having, and what has to be taken back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from fusion_cli.codes import verify as codes
from fusion_cli.measured import Choice, ModelName
from fusion_cli.sessions import CPU, CUDA_FLOAT32, CannotRun, Providers, Use
from fusion_cli.sessions.process import Process, Runner
from fusion_cli.sessions.timing import Speed
from fusion_cli.targets import runs_here
from fusion_cli.types import FusedOp, Library, OpCheck, Options, Rejection, Verification
from fusion_cli.verify.choice import Open, choose, speeds_alone, unhelpful
from fusion_cli.verify.ops import check_ops
from fusion_cli.verify.signature import Signature
from fusion_cli.verify.whole_model import Reference, reference_for, verify_model

Failed = tuple[str, str, Rejection]
"""Operator, target, and why its kernel is taken back."""

_OPS_SECONDS = 10.0
_MOST_READERS, _MOST_NODES = 1000, 10_000
"""Where one value has more readers, ONNX Runtime's optimizations are left out of the check: they take quadratic time,
as does opening a model of more nodes in the way that it is timed."""
_FORCE = "--force keeps it"


class Trial:
    """Runs versions of one fused model against the original, on the same inputs; remembers operators that passed, and
    the choice once it is made."""

    def __init__(self, original: Path, options: Options, process: Process, signature: Signature) -> None:
        self.original = original
        self._signature = signature
        self.options = options
        self._process = process
        self._reference: Reference | None = None
        self._checks: dict[tuple[str, str], OpCheck] = {}
        self._alone: dict[str, Speed] = {}
        """How fast the model is with the kernels of one rule only."""
        self._choice: Choice | None = None

    def run(
        self, fused: Path, ops: Sequence[FusedOp], libraries: Sequence[Library]
    ) -> tuple[Verification, list[Failed]]:
        """Try every operator by itself, then, if all hold, the whole model.

        Raises ModelError if the inputs given by the user do not fit the model.
        """
        runnable = {lib.target: (lib, providers) for lib in libraries if (providers := self._providers(lib.target))}
        try:
            if self._reference is None:
                self._reference = reference_for(self.original, self.options, self._process.open, self._signature)
            failed = [f for lib, where in runnable.values() for f in self._try_ops(fused, ops, lib, where)]
        except CannotRun as error:
            return Verification(skipped=str(error)), []
        checks = tuple(c for o in ops for t in o.targets if (c := self._checks.get((o.name, t))) is not None)
        if failed:
            return Verification(ops=checks), failed
        # Without kernels: as ONNX Runtime optimizes the model, if that takes bearable time.
        stock: Use = "reference" if self._signature.most_readers > _MOST_READERS else "check"
        variants: list[Callable[[], Runner]] = [partial(self._process.open, fused, use=stock)]
        for library, providers in runnable.values():
            variants.append(partial(self._process.open, fused, libraries=[library.path], providers=providers))
        verification = replace(verify_model(self._reference, variants, opener=self._process.open), ops=checks)
        return verification, [] if verification.ok else _blame(verification, ops)

    def choose(
        self, fused: Path, ops: Sequence[FusedOp], libraries: Sequence[Library], least: ModelName
    ) -> tuple[Choice | None, list[Failed]]:
        """Which whole model to write, by their times on this machine's CPU (see `choice.choose`), and what of a fused
        one is given up for the original; or no choice yet, and kernels to be taken back before the next try."""
        library = next((lib.path for lib in libraries if lib.target == "cpu"), None)
        built: ModelName = "kernels" if any(t != "portable" for o in ops for t in o.targets) else "simplified"
        if self._choice is not None:
            return self._choice, []
        if self._reference is None:
            return Choice(built, "not timed: the original was not run"), []
        if library is None and least != "original":
            return Choice(built, "not timed: no kernel runs on the CPU"), []
        is_large = self._signature.most_readers > _MOST_READERS or self._signature.nodes > _MOST_NODES
        if library is None and is_large:
            return Choice(built, "not timed: so large a model takes long to open"), []
        try:
            return self._compare(fused, ops, library, least)
        except CannotRun as error:
            return Choice(built, f"not timed: {error}"), []

    def _compare(
        self, fused: Path, ops: Sequence[FusedOp], library: Path | None, least: ModelName
    ) -> tuple[Choice | None, list[Failed]]:
        assert self._reference is not None
        feeds, opened = self._reference.feeds, partial(self._process.open, use="timing")
        models: dict[ModelName, Open] = {
            "original": partial(opened, self.original),
            "simplified": partial(opened, fused),
        }
        if library is not None:
            models["kernels"] = partial(opened, fused, libraries=[library])
        # The functions themselves may be what was asked for: names that other runtimes know.
        asked: ModelName | None = "simplified" if library is None and "portable" in self.options.targets else None
        choice = choose(models, feeds, least=least, asked=asked, forced=self.options.force)
        own = [] if library is None or self.options.force else [o for o in ops if "cpu" in o.targets]
        groups = {o.rule: [other.name for other in own if other.rule == o.rule] for o in own}
        if library is not None and len(groups) > 1:
            fresh = {rule: names for rule, names in groups.items() if rule not in self._alone}
            self._alone |= speeds_alone(fused, library, fresh, feeds, self._process.open)
            speeds = {rule: self._alone[rule] for rule in groups}
            if taken := unhelpful(speeds, together=choice.chosen == "kernels"):
                return None, [(o.name, "cpu", _not_alone(o, speeds[o.rule])) for o in own if o.rule in taken]
        self._choice = choice
        if choice.chosen == "original":
            return choice, [(o.name, t, _for_original(o, choice)) for o in ops for t in o.targets]
        if own and choice.chosen == "simplified":
            return None, [(o.name, "cpu", _for_simplified(o, choice)) for o in own]
        return choice, []

    def _try_ops(self, fused: Path, ops: Sequence[FusedOp], library: Library, providers: Providers) -> list[Failed]:
        target = library.target
        fresh = [o for o in ops if o.name in library.ops and (o.name, target) not in self._checks]
        assert self._reference is not None
        found = check_ops(
            fused,
            fresh,
            self._reference.feeds,
            library=library.path,
            target=target,
            seconds=_OPS_SECONDS if target == "cpu" else 0.0,
            opener=partial(self._process.open, providers=providers),
        )
        self._checks |= {(check.op, target): check for check in found}
        by_name = {o.name: o for o in fresh}
        reasons = [(c, rollback(by_name[c.op], c, never_slower=not self.options.force)) for c in found]
        return [(check.op, target, reason) for check, reason in reasons if reason is not None]

    def _providers(self, target: str) -> Providers:
        """Where kernels for `target` can be tried on this machine; nowhere if empty."""
        if target == "cpu":
            return CPU
        try:
            available = self._process.available_providers()
        except CannotRun:
            return ()
        return CUDA_FLOAT32 if "CUDAExecutionProvider" in available and runs_here(target) else ()


def rollback(op: FusedOp, check: OpCheck, *, never_slower: bool) -> Rejection | None:
    """The reason to put the nodes of `op` back, if its own check gives one.

    With `never_slower` a kernel must have been measured to be faster, if it was timed at all.
    """
    if check.note:
        return _reason(op, codes.FAILS, f"{op.name} to run on {check.target}", check.note)
    if not check.ok:
        return _reason(op, codes.NUMBERS, f"an error of at most {check.tolerance:g}", f"{check.error:.2e}")
    before, after = check.before_us, check.after_us
    if never_slower and before is not None and after is not None and after >= before:
        return _reason(op, codes.SLOWER, f"less than {before:.1f} us", f"{after:.1f} us", _FORCE)
    return None


def _blame(verification: Verification, ops: Sequence[FusedOp]) -> list[Failed]:
    """If the numbers of the whole do not hold though those of its parts do: the half of the operators whose errors are
    the largest."""
    suspects = sorted(verification.ops, key=lambda c: -c.error)
    by_name = {o.name: o for o in ops}
    worst = max(verification.outputs, key=lambda o: o.error)
    expected = f"an error of the whole model of at most {worst.tolerance:g}"
    found = f"{worst.error:.2e} at output '{worst.output}'"
    likely = suspects[: (len(suspects) + 1) // 2]
    return [(c.op, c.target, _reason(by_name[c.op], codes.NUMBERS, expected, found)) for c in likely]


def _not_alone(op: FusedOp, speed: Speed) -> Rejection:
    expected = f"the simplified model to be faster with the kernels of {op.rule}"
    return _reason(op, codes.SLOWER, expected, str(speed), _FORCE)


def _for_simplified(op: FusedOp, choice: Choice) -> Rejection:
    expected = f"the whole model to be faster than the simplified one, {choice.speed_of('simplified')} of the original"
    return _reason(op, codes.SLOWER, expected, str(choice.speed_of("kernels")), _FORCE)


def _for_original(op: FusedOp, choice: Choice) -> Rejection:
    expected = "a whole model that is faster than the original"
    return _reason(op, codes.ORIGINAL, expected, str(choice.candidates[-1].speed), _FORCE)


def _reason(op: FusedOp, code: str, expected: str, found: str, hint: str = "") -> Rejection:
    node = op.calls[0].region.node_names[-1]
    return Rejection(op.rule, node, "verify", code, expected, found, hint, progress=1.0)
