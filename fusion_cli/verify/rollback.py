"""The trial of a fused model: what holds, and what has to be taken back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from fusion_cli.codes import verify as codes
from fusion_cli.sessions import CPU, CUDA_FLOAT32, CannotRun, Providers, Use
from fusion_cli.sessions.process import Process, Runner
from fusion_cli.targets import runs_here
from fusion_cli.types import FusedOp, Library, OpCheck, Options, Rejection, Verification
from fusion_cli.verify.ops import check_ops
from fusion_cli.verify.signature import Signature
from fusion_cli.verify.whole_model import Reference, reference_for, verify_model

Failed = tuple[str, str, Rejection]
"""Operator, target, and why its kernel is taken back."""

_OPS_SECONDS = 10.0
_MODEL_SECONDS = 2.0
_MOST_READERS = 1000
"""Where one value has more, ONNX Runtime's optimizations are left out of the check: they take quadratic time."""
_NOISE = 1.02
"""Times of a whole model that differ by less are called equal."""


class Trial:
    """Runs versions of one fused model against the original, on the same inputs; remembers operators that passed."""

    def __init__(self, original: Path, options: Options, process: Process, signature: Signature) -> None:
        self.original = original
        self._signature = signature
        self.options = options
        self._process = process
        self._reference: Reference | None = None
        self._checks: dict[tuple[str, str], OpCheck] = {}

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
        seconds = _MODEL_SECONDS if "cpu" in runnable else 0.0
        # Without kernels: as ONNX Runtime optimizes the model, if that takes bearable time.
        stock: Use = "reference" if self._signature.most_readers > _MOST_READERS else "check"
        variants: list[Callable[[], Runner]] = [partial(self._process.open, fused, use=stock)]
        # The CPU's comes last: it is the one that is timed.
        for library, providers in sorted(runnable.values(), key=lambda pair: pair[0].target == "cpu"):
            use: Use = "timing" if seconds > 0 else "check"
            variants.append(partial(self._process.open, fused, libraries=[library.path], providers=providers, use=use))
        verification = verify_model(self._reference, variants, seconds=seconds, opener=self._process.open)
        return replace(verification, ops=checks), self._blame(verification, ops, checks)

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

    def _blame(self, verification: Verification, ops: Sequence[FusedOp], checks: Sequence[OpCheck]) -> list[Failed]:
        """If the whole does not hold though its parts do: the half of the operators most likely to be the cause."""
        before, after = verification.before_us, verification.after_us
        slower = before is not None and after is not None and after > _NOISE * before and not self.options.force
        if verification.ok and not slower:
            return []
        suspects = [c for c in checks if not verification.ok or c.target == "cpu"]
        suspects.sort(key=lambda c: (c.before_us or 0.0) - (c.after_us or 0.0) if verification.ok else -c.error)
        by_name = {o.name: o for o in ops}
        likely = suspects[: (len(suspects) + 1) // 2]
        return [(c.op, c.target, _rollback_least(by_name[c.op], verification)) for c in likely]

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
        return _reason(op, codes.SLOWER, f"less than {before:.1f} us", f"{after:.1f} us", "--force keeps it")
    return None


def _rollback_least(op: FusedOp, verification: Verification) -> Rejection:
    """The reason to put the nodes of `op` back though its own check passed: the whole model did not."""
    if not verification.ok:
        worst = max(verification.outputs, key=lambda o: o.error)
        found = f"{worst.error:.2e} at output '{worst.output}'"
        return _reason(op, codes.NUMBERS, f"an error of the whole model of at most {worst.tolerance:g}", found)
    expected = f"at most {verification.before_us or 0:.1f} us for the whole model"
    found = f"{verification.after_us or 0:.1f} us; this kernel is among those that save the least"
    return _reason(op, codes.SLOWER, expected, found, "--force keeps it")


def _reason(op: FusedOp, code: str, expected: str, found: str, hint: str = "") -> Rejection:
    node = op.calls[0].region.node_names[-1]
    return Rejection(op.rule, node, "verify", code, expected, found, hint, progress=1.0)
