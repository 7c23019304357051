"""The second half of the pipeline: from what was chosen to files in the staging folder, tried and timed."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fusion_cli.analyse import Analysis, report_of
from fusion_cli.build import advice, build, find_compiler, named
from fusion_cli.clock import Clock
from fusion_cli.codes.emit import HINTS
from fusion_cli.emit import emit, emit_registration
from fusion_cli.errors import NumbersDiffer, Unsupported
from fusion_cli.measured import WORDS, Choice, ModelName, Verification
from fusion_cli.outline import inline_back
from fusion_cli.outline.both_ways import add_guards
from fusion_cli.page import page
from fusion_cli.report import Report, write_report, written_fusions
from fusion_cli.report.decisions import Decisions
from fusion_cli.runtime import write_manifest
from fusion_cli.save import Staging, save_model, save_original
from fusion_cli.sessions.process import Process
from fusion_cli.sizes.parsing import written
from fusion_cli.types import FusedOp, Library, Options, Rejection, Source
from fusion_cli.verify.contest import Contest
from fusion_cli.verify.gate import require
from fusion_cli.verify.rollback import Failed, Trial


@dataclass(frozen=True)
class _Written:
    """What of the model is written, and what was found out of it."""

    ops: Sequence[FusedOp]
    libraries: Sequence[Library]
    verification: Verification | None = None
    choice: Choice | None = None


class Production:
    """Emit, build, save and verify one model, taking back what does not hold or does not help."""

    def __init__(
        self, path: Path, found: Analysis, options: Options, decisions: Decisions | None, clock: Clock, stage: Staging
    ) -> None:
        self.path, self.found, self.options, self.decisions = path, found, options, decisions
        self.clock, self.stage = clock, stage
        self.model = found.model  # as it is written; that of `found` keeps all functions
        self.notes: list[str] = []
        self.rejections = list(found.rejections)

    def write(self, ops: Sequence[FusedOp]) -> Report:
        with self.clock.stage("emit"):
            ops, sources = self._emit(ops)
        with Process(self.clock.budget) as process:
            trial = Trial(self.path, self.options, process, self.found.signature, self.clock.listener)
            done = self._settle(trial, ops, sources)
        done = replace(done, libraries=[named(library) for library in done.libraries])
        if done.choice is not None:
            self.clock.listener.decided(f"written: {WORDS[done.choice.chosen]}, {done.choice.why}")
        checks = () if done.verification is None else done.verification.ops
        found = replace(self.found, model=self.model, assumed=self._assumed(done))
        fusions = written_fusions(done.ops, checks)
        report = replace(
            report_of(self.path, found, self.clock, fusions, done.choice),
            output=str(self.stage.output),
            rejected=(*self.rejections, *self._taken_back_before()),
            verification=done.verification,
            sources=tuple(s for s in sources if s.op in {o.name for o in done.ops if s.target in o.targets}),
            libraries=tuple(done.libraries),
            notes=(*self.found.notes, *self.notes),
        )
        with self.clock.stage("report"):
            write_report(report, self.stage.bundle / "report.json")
            (self.stage.bundle / "report.html").write_text(page(report), encoding="utf-8")
        self._manifest(done)
        return report

    def _assumed(self, done: _Written) -> Mapping[str, int]:
        """The sizes that were made up: where models ran those that they ran at, which may not be the likeliest."""
        measured = () if done.choice is None else tuple(m.sizes for m in done.choice.measured)
        checked = () if done.verification is None else done.verification.sizes
        shapes = next(iter((*measured, *checked)), {})
        ran = {
            written(dim): size
            for value in self.found.signature.inputs
            for dim, size in zip(value.opened.dims, shapes.get(value.name, ()), strict=False)
            if isinstance(dim, str)
        }
        return {name: ran.get(name, size) for name, size in self.found.assumed.items()}

    def _taken_back_before(self) -> list[Rejection]:
        """What the run whose times stand for this one's took back."""
        if self.decisions is None or self.decisions.recalled is None:
            return []
        return [r for r in self.decisions.recalled.rejected if r.stage == "verify"]

    def _settle(self, trial: Trial, ops: Sequence[FusedOp], sources: Sequence[Source]) -> _Written:
        """Build, save and verify; without the kernels that fail or do not help, until none does. Then write the whole
        model that was chosen."""
        if self.decisions is not None:
            decided = self.decisions
            done = self._as_decided(trial, decided.apply(ops), sources, decided.choice, decided.is_check)
            return replace(done, verification=done.verification and decided.with_times(done.verification))
        least: ModelName = "simplified" if self.options.fixed_dims or self.found.was_fused else "original"
        contest = Contest(trial, self.found.targets, least)
        untouched = not ops and self._is_as_it_was()
        while True:
            ops, libraries = self._save(ops, sources)
            if not self.options.verify:
                return _Written(ops, libraries)
            choice = None
            with self.clock.stage("verify"):
                verification, failed = trial.run(self.stage.model, ops, libraries)
            if not failed:
                require(self.path, verification, ops, asked=self.options.require_verified)
                if untouched:
                    return self._original(verification, Choice("original", "nothing was found to simplify or to fuse"))
                with self.clock.stage("choose"):
                    choice, failed = contest.choose(self.stage.model, ops, libraries)
            fewer = self._without(ops, failed)
            if choice is not None:
                done = _Written(ops, libraries, verification, choice)
                return self._original(verification, choice) if choice.chosen == "original" else done
            ops = fewer

    def _without(self, ops: Sequence[FusedOp], failed: Sequence[Failed]) -> list[FusedOp]:
        """The operators without the kernels that failed, which are reported."""
        self.rejections += [rejection for _, _, rejection in failed]
        for op, _, rejection in failed:
            self.clock.listener.decided(f"{op}: taken back, {rejection}")
        dropped = {(op, target) for op, target, _ in failed}
        return [replace(o, targets=tuple(t for t in o.targets if (o.name, t) not in dropped)) for o in ops]

    def _as_decided(
        self, trial: Trial, ops: Sequence[FusedOp], sources: Sequence[Source], choice: Choice, is_check: bool
    ) -> _Written:
        """The same without asking what helps; where numbers do not hold here, that is an error, or for a check a fusion
        less."""
        if choice.chosen == "original":
            return self._original(Verification(), choice)
        ops, libraries = self._save(ops, sources)
        verification = None
        if self.options.verify:
            with self.clock.stage("verify"):
                verification, failed = trial.run(self.stage.model, ops, libraries)
            if failed and is_check:
                return self._as_decided(trial, self._without(ops, failed), sources, choice, is_check)
            require(self.path, verification, ops, asked=self.options.require_verified)
            if is_check:
                with self.clock.stage("choose"):
                    choice = Contest(trial, self.found.targets).measure(self.stage.model, libraries, choice)
            for op, target, reason in failed:
                raise NumbersDiffer(
                    f"{op} on {target}: expected {reason.expected}, found {reason.found}",
                    where=str(self.path),
                    hint="this machine cannot do as was decided; leave --decisions out",
                )
        return _Written(ops, libraries, verification, choice)

    def _save(self, ops: Sequence[FusedOp], sources: Sequence[Source]) -> tuple[list[FusedOp], list[Library]]:
        """Build and save those that have a kernel or a function of their own."""
        kept = self._keep(ops)
        libraries = self._build(kept, sources)
        with self.clock.stage("save"):
            save_model(self.model, self.stage, self.found.signature.outputs)
        return kept, libraries

    def _is_as_it_was(self) -> bool:
        """Whether the model has as many nodes as the original and no others: all steps but the algebra only remove."""
        asked = self.found.algebra or self.options.fixed_dims or self.found.was_fused
        return not asked and len(list(self.found.model.graph.all_nodes())) == self.found.signature.nodes

    def _original(self, verification: Verification, choice: Choice) -> _Written:
        with self.clock.stage("save"):
            save_original(self.stage)
        skipped = verification.skipped or "the original itself is written"
        return _Written((), (), replace(verification, outputs=(), skipped=skipped), choice)

    def _manifest(self, done: _Written) -> None:
        """The last file of the bundle, which names all others."""
        targets = {t.name: t for t in self.found.targets}
        write_manifest(
            self.stage.bundle,
            model=self.stage.model,
            libraries=[(targets[lib.target], lib) for lib in done.libraries],
            data=[path.name for path in self.stage.data],
            ops=[
                {
                    "name": op.name,
                    "rule": op.rule,
                    "targets": list(op.targets),
                    "calls": [
                        {"node": name, "replaces": list(c.region.node_names)}
                        for name, c in zip(op.call_names, op.calls, strict=True)
                    ],
                }
                for op in done.ops
            ],
        )

    def _keep(self, ops: Sequence[FusedOp]) -> list[FusedOp]:
        """Put the nodes of operators that no target has a kernel for back where they were, all at once each time: the
        file is not to tell in which order they were given up."""
        kept = [o for o in ops if o.targets]
        functions = {f.name for f in self.found.model.functions.values()}
        has_kernels = any(t != "portable" for o in ops for t in o.targets)
        if functions:  # saving changes a model; without kernels to be given up it is saved once
            self.model = self.found.model.clone() if has_kernels else self.found.model
        if gone := functions - {o.name for o in kept}:
            inline_back(self.model, gone.__contains__)
        guards = {name: guard for op in kept for name, guard in op.guards.items()}
        if guards:
            add_guards(self.model, guards)
        return kept

    def _emit(self, ops: Sequence[FusedOp]) -> tuple[list[FusedOp], list[Source]]:
        sources: list[Source] = []
        kept: list[FusedOp] = []
        for op in ops:
            targets = []
            for target in (t for t in self.found.targets if t.name in op.targets):
                if target.kind != "portable":
                    try:
                        sources.append(
                            emit(op, target, debug=self.options.debug, template_paths=self.options.rule_paths)
                        )
                    except Unsupported as e:
                        expected, hint = f"{e.expected} for {target.name}", HINTS.get(e.code, "")
                        region = op.calls[0].region
                        told = Rejection.of(region, "emit", e.code, expected, e.found, hint, target.name)
                        self.rejections.append(replace(told, places=len(op.calls)))
                        self.clock.listener.decided(f"{told}")
                        continue
                targets.append(target.name)
            kept.append(replace(op, targets=tuple(targets)))
        return kept, sources

    def _build(self, ops: Sequence[FusedOp], sources: Sequence[Source]) -> list[Library]:
        libraries: list[Library] = []
        folder = self.stage.bundle / "src"
        for old in (folder, self.stage.bundle / "lib"):  # of kernels that were taken back since
            shutil.rmtree(old, ignore_errors=True)
        for target in self.found.targets:
            own = [o for o in ops if target.name in o.targets]
            if target.kind == "portable" or not own:
                continue
            names = {o.name for o in own}
            files = [s for s in sources if s.target == target.name and s.op in names]
            files.append(emit_registration(target, own))
            (folder / target.name).mkdir(parents=True, exist_ok=True)
            for source in files:
                (folder / target.name / source.filename).write_text(source.text, encoding="utf-8")
            if find_compiler(target) is None:
                note = f"no compiler for {target.name}: sources are written, nothing is built. {advice(target)}"
                if note not in self.notes:
                    self.notes.append(note)
                continue
            with self.clock.stage("build"):
                library = build(
                    files,
                    target,
                    self.stage.bundle / "lib",
                    jobs=self.options.jobs,
                    debug=self.options.debug,
                    budget=self.clock.budget,
                    listener=self.clock.listener,
                )
                libraries.append(library)
        return libraries
