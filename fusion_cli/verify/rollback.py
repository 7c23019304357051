"""The trial of a fused model: what holds, what is worth having, and what has to be taken back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from fusion_cli.codes import verify as codes
from fusion_cli.errors import ModelError
from fusion_cli.kernels import kind_of
from fusion_cli.listener import NOBODY, Listener
from fusion_cli.measured import OpCheck, Verification
from fusion_cli.sessions import CPU, CUDA_FLOAT32, CannotRun, OverBudget, Providers, Refused, Use
from fusion_cli.sessions.process import Process, Runner
from fusion_cli.targets import runs_here
from fusion_cli.types import FusedOp, Library, Options, Rejection
from fusion_cli.verify.ops import check_ops
from fusion_cli.verify.signature import Signature
from fusion_cli.verify.whole_model import Reference, reference_for, verify_model

Failed = tuple[str, str, Rejection]
"""Operator, target, and why its kernel is taken back."""

_OPS_SECONDS = 10.0
MOST_READERS = 1000
"""Where one value has more, ONNX Runtime's optimizations are left out of the check: they take quadratic time."""
FORCE = "--force keeps it"
_UNTRIED = "--no-verify writes the fused model without running either"


class Trial:
    """Runs versions of one fused model against the original, on the same inputs; remembers operators that passed."""

    def __init__(
        self, original: Path, options: Options, process: Process, signature: Signature, listener: Listener = NOBODY
    ) -> None:
        self.original = original
        self.options = options
        self.signature = signature
        self.process = process
        self.listener = listener
        self.reference: Reference | None = None
        """What the original gives; None until it was run, or if it cannot be."""
        self._checks: dict[tuple[str, str], OpCheck] = {}
        self._providers: dict[str, Providers] = {"cpu": CPU}

    def run(
        self, fused: Path, ops: Sequence[FusedOp], libraries: Sequence[Library]
    ) -> tuple[Verification, list[Failed]]:
        """Try every operator by itself, then, if all hold, the whole model.

        Raises ModelError if the inputs given by the user do not fit the model, and if ONNX Runtime refuses the original
        or takes more time or memory for it than there is.
        """
        runnable = {lib.target: (lib, providers) for lib in libraries if (providers := self.providers(lib.target))}
        try:
            if self.reference is None:
                self.reference = reference_for(self.original, self.options, self.process.open, self.signature, ops)
            failed = [f for lib, where in runnable.values() for f in self._try_ops(fused, ops, lib, where)]
        except (Refused, OverBudget) as error:
            what = "ONNX Runtime refuses the model" if isinstance(error, Refused) else "while the model ran"
            raise ModelError(f"{what}: {error}", where=str(self.original), hint=_UNTRIED) from error
        except CannotRun as error:
            return Verification(skipped=str(error)), []
        checks = tuple(c for o in ops for t in o.targets if (c := self._checks.get((o.name, t))) is not None)
        if failed:
            return Verification(ops=checks), failed
        # Without kernels: as ONNX Runtime optimizes the model, if that takes bearable time.
        stock: Use = "reference" if self.signature.most_readers > MOST_READERS else "check"
        variants: list[Callable[[], Runner]] = [partial(self.process.open, fused, use=stock)]
        for library, providers in runnable.values():
            variants.append(partial(self.process.open, fused, libraries=[library.path], providers=providers))
        sizes = tuple({name: array.shape for name, array in case.feeds.items()} for case in self.reference.cases)
        found = verify_model(self.reference, variants, opener=self.process.open)
        verification = replace(found, ops=checks, sizes=sizes)
        return verification, [] if verification.ok else _blame(verification, ops)

    def _try_ops(self, fused: Path, ops: Sequence[FusedOp], library: Library, providers: Providers) -> list[Failed]:
        target = library.target
        fresh = [o for o in ops if o.name in library.ops and (o.name, target) not in self._checks]
        assert self.reference is not None
        is_timed = kind_of(target) == "cpu" and self.options.decisions is None
        found = check_ops(
            fused,
            fresh,
            [case.feeds for case in self.reference.cases],
            library=library.path,
            target=target,
            seconds=_OPS_SECONDS if is_timed else 0.0,
            opener=partial(self.process.open, providers=providers),
            listener=self.listener,
        )
        self._checks |= {(check.op, target): check for check in found}
        by_name = {o.name: o for o in fresh}
        for check in found:
            self.listener.decided(_holds(check))
        reasons = [(c, rollback(by_name[c.op], c, never_slower=not self.options.force)) for c in found]
        return [(check.op, target, reason) for check, reason in reasons if reason is not None]

    def providers(self, target: str) -> Providers:
        """Where kernels for `target` can be tried on this machine; nowhere if empty."""
        if target not in self._providers:
            try:
                available = self.process.available_providers()
            except CannotRun:
                return ()
            needed, own = (
                ("CPUExecutionProvider", CPU) if kind_of(target) == "cpu" else ("CUDAExecutionProvider", CUDA_FLOAT32)
            )
            self._providers[target] = own if needed in available and runs_here(target) else ()
        return self._providers[target]


def rollback(op: FusedOp, check: OpCheck, *, never_slower: bool) -> Rejection | None:
    """The reason to put the nodes of `op` back, if its own check gives one.

    With `never_slower` a kernel that was timed must not have been slower by more than noise: what it is worth shows in
    the model that it sits in.
    """
    if check.note:
        return taken_back(op, check.target, codes.FAILS, f"{op.name} to run on {check.target}", check.note)
    if not check.ok:
        return taken_back(
            op, check.target, codes.NUMBERS, f"an error of at most {check.tolerance:g}", f"{check.error:.2e}"
        )
    if never_slower and check.is_slower and check.before_us is not None:
        return taken_back(
            op, check.target, codes.SLOWER, f"about {check.before_us:.1f} us", f"{check.after_us:.1f} us", FORCE
        )
    return None


def _holds(check: OpCheck) -> str:
    """An operator's own test, in words."""
    if check.note:
        return f"{check.op} on {check.target}: {check.note}"
    time = f", {check.before_us:.1f} -> {check.after_us:.1f} us" if check.before_us and check.after_us else ""
    return f"{check.op} on {check.target}: error {check.error:.1e} (tolerance {check.tolerance:g}){time}"


def _blame(verification: Verification, ops: Sequence[FusedOp]) -> list[Failed]:
    """If the numbers of the whole do not hold though those of its parts do: the half of the operators whose errors are
    the largest."""
    suspects = sorted(verification.ops, key=lambda c: -c.error)
    by_name = {o.name: o for o in ops}
    worst = max(verification.outputs, key=lambda o: o.error)
    expected = f"an error of the whole model of at most {worst.tolerance:g}"
    found = f"{worst.error:.2e} at output '{worst.output}'"
    likely = suspects[: (len(suspects) + 1) // 2]
    return [(c.op, c.target, taken_back(by_name[c.op], c.target, codes.NUMBERS, expected, found)) for c in likely]


def taken_back(op: FusedOp, target: str, code: str, expected: str, found: str, hint: str = "") -> Rejection:
    """Why the nodes of an operator are put back."""
    told = Rejection.of(op.calls[0].region, "verify", code, expected, found, hint, target)
    return replace(told, places=len(op.calls))
