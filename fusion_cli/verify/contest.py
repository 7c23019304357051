"""The contest of whole models: which is written, and the kernels that are given up before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from fusion_cli.codes import verify as codes
from fusion_cli.costs import Device
from fusion_cli.measured import Choice, ModelName
from fusion_cli.sessions import CannotRun
from fusion_cli.sessions.timing import Speed
from fusion_cli.types import FusedOp, Library, Rejection, Target
from fusion_cli.verify.choice import Open, Setting, choose, speeds_alone, unhelpful
from fusion_cli.verify.rollback import FORCE, MOST_READERS, Failed, Trial, taken_back
from fusion_cli.verify.whole_model import Reference

_MANY_NODES, _MOST_NODES = 4_000, 10_000
"""Models of more take ONNX Runtime long to open in the way that they are timed: they are opened once and timed at one
size, or not at all."""
_BRIEFLY = 0.5
"""Seconds for each model in a setting that does not decide, or that is large."""


class Contest:
    """Times versions of the model of a trial as a whole, on the first of its targets that this machine can run (on the
    CPU where none has kernels); remembers the choice once it is made. `least` is the simplest that may be written."""

    def __init__(self, trial: Trial, targets: Sequence[Target], least: ModelName = "original") -> None:
        self._trial = trial
        self._least = least
        self._elsewhere = any(t.kind == "cuda" and not trial.providers(t.name) for t in targets)
        self._target = next((t for t in targets if t.kind != "portable" and trial.providers(t.name)), None)
        self._alone: dict[str, Speed] = {}
        """How fast the model is with the kernels of one group only, or, of one that is tried, with them too."""
        self._choice: Choice | None = None

    def choose(
        self, fused: Path, ops: Sequence[FusedOp], libraries: Sequence[Library]
    ) -> tuple[Choice | None, list[Failed]]:
        """Which whole model to write, by their times on this machine (see `choice.choose`), and what of a fused one is
        given up for the original; or no choice yet, and kernels to be taken back before the next try."""
        trial, signature = self._trial, self._trial.signature
        library = self._library(libraries)
        built: ModelName = "kernels" if any(t != "portable" for o in ops for t in o.targets) else "simplified"
        if self._choice is not None:
            return self._choice, []
        if trial.reference is None:
            return Choice(built, "not timed: the original was not run"), []
        # What is for another machine, or is yet to be compiled, cannot be timed, and is not given up for the original.
        runs = {"portable", *(lib.target for lib in libraries if trial.providers(lib.target))}
        is_timed = not self._elsewhere and all(t in runs for o in ops for t in o.targets)
        least = self._least if is_timed else "simplified"
        if library is None and not is_timed:
            return Choice(built, "not timed: its kernels do not run on this machine"), []
        if library is None and (signature.most_readers > MOST_READERS or signature.nodes > _MOST_NODES):
            return Choice(built, "not timed: so large a model takes long to open"), []
        try:
            return self._compare(fused, ops, library, least, trial.reference)
        except CannotRun as error:
            return Choice(built, f"not timed: {error}"), []

    def _compare(
        self, fused: Path, ops: Sequence[FusedOp], library: Library | None, least: ModelName, reference: Reference
    ) -> tuple[Choice | None, list[Failed]]:
        options, models = self._trial.options, self._models(fused, library)
        # The functions themselves may be what was asked for: names that other runtimes know.
        asked: ModelName | None = "simplified" if library is None and ops and "portable" in options.targets else None
        settings = self._settings(reference)
        choice = choose(models, settings, least=least, asked=asked, forced=options.force, listener=self._trial.listener)
        own = [] if library is None or options.force else [o for o in ops if library.target in o.targets]
        if library is not None and (taken := self._unhelpful(fused, own, library, settings[0])):
            return None, [
                (o.name, library.target, _not_alone(o, library.target, self._alone[_group(o)], options.tune))
                for o in own
                if _group(o) in taken
            ]
        self._choice = choice
        if choice.chosen == "original":
            return choice, [(o.name, t, _for_original(o, t, choice)) for o in ops for t in o.targets]
        if library is not None and own and choice.chosen == "simplified":
            return None, [(o.name, library.target, _for_simplified(o, library.target, choice)) for o in own]
        return choice, []

    def measure(self, fused: Path, libraries: Sequence[Library], decided: Choice) -> Choice:
        """What was decided, with the times of the models here; without them where it cannot be run."""
        library, reference = self._library(libraries), self._trial.reference
        if reference is None or (library is None and decided.chosen == "kernels"):
            return decided
        try:
            found = choose(self._models(fused, library), self._settings(reference), listener=self._trial.listener)
        except CannotRun:
            return decided
        return replace(found, chosen=decided.chosen, why=decided.why)

    def _library(self, libraries: Sequence[Library]) -> Library | None:
        return next((lib for lib in libraries if self._target and lib.target == self._target.name), None)

    def _models(self, fused: Path, library: Library | None) -> dict[ModelName, Open]:
        opener = self._trial.process.open
        models: dict[ModelName, Open] = {
            "original": partial(opener, self._trial.original),
            "simplified": partial(opener, fused),
        }
        if library is not None:
            models["kernels"] = partial(opener, fused, libraries=[library.path])
        return models

    def _settings(self, reference: Reference) -> list[Setting]:
        on_gpu = self._target is not None and self._target.kind == "cuda"
        return _settings(reference, on_gpu, is_large=self._trial.signature.nodes > _MANY_NODES)

    def _unhelpful(self, fused: Path, ops: Sequence[FusedOp], library: Library, setting: Setting) -> list[str]:
        """The groups whose kernels do not help, where there are others.

        With `--tune` what is predicted to pay is given up only where it is slower, for what many small gains add up to
        is lost if each is within noise; what is not predicted to has to make the model faster that has the others."""
        groups: dict[str, list[str]] = {}
        for op in ops:
            groups.setdefault(_group(op), []).append(op.name)
        if len(groups) < 2:
            return []
        trial, tried = self._trial, {_group(o) for o in ops if _is_tried(o)}
        trusted = groups.keys() - tried
        others = [name for group in groups if group in trusted for name in groups[group]]
        for asked, beside in (trusted, ()), (tried, others):
            fresh = {g: names for g, names in groups.items() if g in asked and g not in self._alone}
            args = (fused, library.path, fresh, setting, trial.process.open, trial.listener)
            self._alone |= speeds_alone(*args, beside=beside)
        return unhelpful({g: self._alone[g] for g in groups}, trusted if trial.options.tune else ())


def _group(op: FusedOp) -> str:
    """What an operator is timed with: all of its rule, apart those that are not predicted to pay."""
    return f"{op.rule} where that may pay" if _is_tried(op) else op.rule


def _is_tried(op: FusedOp) -> bool:
    return all(call.uncertain for call in op.calls)


def _settings(reference: Reference, on_gpu: bool, is_large: bool) -> list[Setting]:
    """Where models are timed, first where it decides."""
    first, *others = (case.feeds for case in reference.cases)
    deciding: tuple[Device, ...] = ("cuda", "cuda graph") if on_gpu else ("cpu",)
    if is_large:
        return [Setting(first, device, seconds=_BRIEFLY, sittings=1) for device in deciding]
    return [
        *(Setting(first, device) for device in deciding),
        *(Setting(feeds, deciding[0], decides=False, seconds=_BRIEFLY) for feeds in others),
    ]


def _not_alone(op: FusedOp, target: str, speed: Speed, is_tuned: bool) -> Rejection:
    expected = f"the simplified model to be faster with the kernels of {op.rule}"
    if _is_tried(op):
        expected = "the model to be faster with it"
    elif is_tuned:
        expected += ", or as fast"
    return taken_back(op, target, codes.SLOWER, expected, str(speed), FORCE)


def _for_simplified(op: FusedOp, target: str, choice: Choice) -> Rejection:
    expected = f"the whole model to be faster than the simplified one, {choice.speed_of('simplified')} of the original"
    return taken_back(op, target, codes.SLOWER, expected, str(choice.speed_of("kernels")), FORCE)


def _for_original(op: FusedOp, target: str, choice: Choice) -> Rejection:
    expected = "a whole model that is faster than the original"
    found = choice.speed_of("kernels") or choice.speed_of("simplified")
    return taken_back(op, target, codes.ORIGINAL, expected, str(found), FORCE)
