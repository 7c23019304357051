"""One graph or one damaged model through `optimize`, and what is wrong with what comes of it."""

from __future__ import annotations

import shutil
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import onnx

import fusion_cli
from fusion_cli.errors import FusionError, NumbersDiffer
from fusion_cli.limits import MORE_TIME, Budget
from fusion_cli.load import load_model
from fusion_cli.runtime import find_library
from fusion_cli.sessions import CPU, CUDA_FLOAT32, CannotRun
from fusion_cli.sessions.process import Opener, Process, Runner
from fusion_cli.targets import resolve_targets
from fusion_cli.verify import limit
from fusion_cli.verify.signature import signature_of
from fusion_cli.verify.whole_model import Case, Reference, verify_model
from tests.fuzz.damage import damage
from tests.fuzz.exact import is_as_exact
from tests.fuzz.variety import draw_graph
from tests.helpers.dynamic_graphs import read_by

SECONDS = 60.0
"""For each stage, and each time a model is opened or run."""
Feeds = Sequence[Mapping[str, np.ndarray]]
GOOD = frozenset({"right", "refused", "does not run", "does not run on GPUs", "as on GPUs", "as exact"})
_ANY = ("CUDAExecutionProvider", "CPUExecutionProvider")


class Trials:
    """Outcomes in words, the first of which says which kind: one of `GOOD`, or "wrong", "fails", "fault", "late",
    "refused a valid model", "left files".

    "as exact" is a result that is not ONNX Runtime's, but no further from that in double precision, "as on GPUs" one
    that only ONNX Runtime's own kernels for GPUs give, not those for CPUs, and "does not run on GPUs" a model that
    these do not run either."""

    def __init__(self, folder: Path, target: str, process: Process) -> None:
        self.source, self.output = folder / "m.onnx", folder / "out.onnx"
        self.target, self.process = target, process
        self.providers = CUDA_FLOAT32 if resolve_targets([target])[0].kind == "cuda" else CPU
        self.cases: list[Case] = []
        """What ONNX Runtime computes of the model at `source`, at all sizes or none."""

    @property
    def opener(self) -> Opener:
        return _in_one_thread(self.process)

    def graph(self, seed: int) -> str:
        """A graph that ONNX Runtime runs, at three sizes."""
        proto, feeds = draw_graph(Random(seed))
        return self.judge(proto.SerializeToString(), feeds, valid=True)

    def mutant(self, seed: int) -> str:
        """A graph that was damaged."""
        rng = Random(seed)
        proto, feeds = draw_graph(rng)
        return self.judge(damage(proto, rng), feeds, valid=False, verify=rng.random() < 0.1)

    def judge(self, data: bytes, feeds: Feeds, *, valid: bool, verify: bool = False) -> str:
        """What comes of a file."""
        said = self.optimize(data, feeds, valid=valid, verify=verify)
        if said or not self.cases:
            return said or "right"
        library = find_library(self.output, self.providers, _ANY)
        if library is None:
            return self.compare(None)
        # By a name of its own: a process that has loaded another from the same path would go on with that.
        own = self.source.with_name(f"{library.sha256}.so")
        shutil.copyfile(library.path, own)
        return self.compare(own)

    def optimize(self, data: bytes, feeds: Feeds, *, valid: bool, verify: bool = False) -> str:
        """What comes of a file where nothing is written; ONNX Runtime's word is asked for first if it has to be
        valid."""
        self._clear()
        self.source.write_bytes(data)
        self.cases = self._run(feeds, self.opener)
        if valid and not self.cases:
            return "does not run"
        try:
            fusion_cli.optimize(
                self.source, self.output, targets=[self.target], force=True, verify=verify, timeout=SECONDS
            )
        except NumbersDiffer as error:
            return f"wrong: {error}"
        except FusionError as error:
            if MORE_TIME in str(error):
                return f"late: {error}"
            if list(self.source.parent.iterdir()) != [self.source]:
                return "left files"
            return f"refused a valid model: {error} {error.__cause__ or ''}" if valid else "refused"
        except Exception:
            return f"fault: {traceback.format_exc()}"
        return ""

    def compare(self, library: Path | None) -> str:
        """What was written in stock ONNX Runtime, and with a library of its kernels."""
        failed, off = self._off(self.cases, partial(self.opener, self.output))
        if failed or off or library is None:
            return _told(failed, off)
        with_kernels = {"libraries": [library], "providers": self.providers}
        try:  # without what ONNX Runtime would run in place of kernels that it does not take
            self.opener(_without_functions(self.output), use="reference", **with_kernels)
        except CannotRun as error:
            return f"fails: {error}"
        fused = {"model": self.output, **with_kernels}
        failed, off = self._off(self.cases, partial(self.opener, **fused))
        if off and not failed and self._is_as_exact(self.opener(**fused)):
            return f"as exact: {_listed(off)}"
        if not (failed or off) or self.providers is CPU:
            return _told(failed, off)
        with Process(self.process.budget) as fresh:  # what a GPU stumbled over it does not get over
            return self._beside_their_own(failed, off, _in_one_thread(fresh), fused)

    def _is_as_exact(self, fused: Runner) -> bool:
        found = [fused.run(case.feeds) for case in self.cases]
        return is_as_exact(self.source.read_bytes(), self.cases, found)

    def _beside_their_own(self, failed: str, off: Mapping[str, float], opener: Opener, fused: Mapping[str, Any]) -> str:
        """What is left of it where ONNX Runtime's own kernels do not run the model on a GPU, or are off where they run
        it and the fused model agrees with them."""
        gpu = partial(opener, providers=self.providers)
        theirs = self._run([case.feeds for case in self.cases], gpu)
        if failed or not theirs:
            return _told(failed, off) if theirs or not failed else "does not run on GPUs"
        others = self._off(self.cases, partial(gpu, self.source))[1]
        alike = others.keys() - self._off(theirs, partial(opener, **fused), gpu)[1].keys()
        wrong = {name: error for name, error in off.items() if name not in alike}
        return _told("", wrong) if wrong else f"as on GPUs: {_listed(off)}"

    def _off(
        self, cases: Sequence[Case], opened: Callable[[], Runner], original: Opener | None = None
    ) -> tuple[str, dict[str, float]]:
        """Why a model does not run, or the error of each output that is further off than may be from the cases, which
        `original` computes."""
        allowed = limit(signature_of(load_model(self.source)).float_types)
        try:
            found = verify_model(
                Reference(self.source, tuple(cases), allowed), [opened], opener=original or self.opener
            )
        except CannotRun as error:
            return str(error), {}
        off = {o.output: o.error for o in found.outputs if not o.ok}
        return found.skipped if off else "", off

    def _run(self, feeds: Feeds, opener: Opener) -> list[Case]:
        try:
            runner = opener(self.source, use="reference")
            return [Case(feed, runner.run(feed)) for feed in feeds]
        except (CannotRun, KeyError, RuntimeError):
            return []

    def _clear(self) -> None:
        for path in sorted(self.source.parent.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()


def _in_one_thread(process: Process) -> Opener:
    return partial(process.open, threads=1)


def _told(failed: str, off: Mapping[str, float]) -> str:
    if failed:
        return f"fails: {failed}"
    return f"wrong: {_listed(off)}" if off else "right"


def _listed(off: Mapping[str, float]) -> str:
    return ", ".join(f"{name} is off by {error:.2g}" for name, error in off.items())


def _without_functions(path: Path) -> bytes:
    proto = onnx.load(path)
    del proto.functions[:]
    data: bytes = proto.SerializeToString()
    return data


def smallest(trials: Trials, data: bytes, feeds: Feeds, kind: str) -> bytes:
    """The least that makes one result of a graph and has the same outcome; all of it where no part has."""
    proto = onnx.ModelProto.FromString(data)
    for node in proto.graph.node:
        for name in node.output:
            part = _making(proto, name)
            if trials.judge(part, feeds, valid=True).startswith(kind):
                return part
    return data


def _making(proto: onnx.ModelProto, name: str) -> bytes:
    part = onnx.ModelProto.FromString(proto.SerializeToString())
    needed, kept = {name}, []
    for node in reversed(proto.graph.node):
        if needed.intersection(node.output):
            kept.append(node)
            needed.update(read_by(node))
    del part.graph.node[:], part.graph.output[:]
    part.graph.node.extend(reversed(kept))
    part.graph.output.append(onnx.helper.make_empty_tensor_value_info(name))
    data: bytes = part.SerializeToString()
    return data


def budget(target: str) -> Budget:
    """For the process in which models run; what CUDA's driver takes for itself is not held against it."""
    is_gpu = resolve_targets([target])[0].kind == "cuda"
    return Budget(SECONDS) if is_gpu else Budget(SECONDS, 4 << 30)
