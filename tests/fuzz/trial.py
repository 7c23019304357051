"""One graph or one damaged model through `optimize`, and what is wrong with what comes of it."""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from random import Random

import numpy as np
import onnx

import fusion_cli
from fusion_cli.errors import FusionError, NumbersDiffer
from fusion_cli.limits import MORE_TIME, Budget
from fusion_cli.load import load_model
from fusion_cli.runtime import find_library
from fusion_cli.sessions import CannotRun
from fusion_cli.sessions.process import Process
from fusion_cli.verify import limit
from fusion_cli.verify.signature import signature_of
from fusion_cli.verify.whole_model import Case, Reference, verify_model
from tests.fuzz.damage import damage
from tests.fuzz.variety import draw_graph
from tests.helpers.dynamic_graphs import read_by

SECONDS = 60.0
"""For each stage, and each time a model is opened or run."""
Feeds = Sequence[Mapping[str, np.ndarray]]
CPU = ["CPUExecutionProvider"]
GOOD = frozenset({"right", "refused", "does not run"})


class Trials:
    """Outcomes in words, the first of which says which kind: one of `GOOD`, or "wrong", "fault", "late", "refused a
    valid model", "left files"."""

    def __init__(self, folder: Path, target: str, process: Process) -> None:
        self.source, self.output = folder / "m.onnx", folder / "out.onnx"
        self.target, self.opener = target, partial(process.open, threads=1)
        self.cases: list[Case] = []
        """What ONNX Runtime computes of the model at `source`, at all sizes or none."""

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
        library = find_library(self.output, CPU, CPU)
        return self.compare(None if library is None else library.path)

    def optimize(self, data: bytes, feeds: Feeds, *, valid: bool, verify: bool = False) -> str:
        """What comes of a file where nothing is written; ONNX Runtime's word is asked for first if it has to be
        valid."""
        self._clear()
        self.source.write_bytes(data)
        self.cases = self._run(feeds)
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
            return f"refused a valid model: {error}" if valid else "refused"
        except Exception:
            return f"fault: {traceback.format_exc()}"
        return ""

    def compare(self, library: Path | None) -> str:
        """What was written in stock ONNX Runtime, and with a library of its kernels."""
        allowed = limit(signature_of(load_model(self.source)).float_types)
        ways = [partial(self.opener, self.output)]
        if library is not None:
            ways.append(partial(self.opener, self.output, libraries=[library]))
        try:
            found = verify_model(Reference(self.source, tuple(self.cases), allowed), ways, opener=self.opener)
        except CannotRun as error:
            return f"wrong: {error}"
        worst = [f"{o.output} is off by {o.error:.2g}" for o in found.outputs if not o.ok]
        return f"wrong: {found.skipped} {', '.join(worst)}" if worst else "right"

    def _run(self, feeds: Feeds) -> list[Case]:
        try:
            runner = self.opener(self.source, use="reference")
            return [Case(feed, runner.run(feed)) for feed in feeds]
        except (CannotRun, KeyError, RuntimeError):
            return []

    def _clear(self) -> None:
        for path in sorted(self.source.parent.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()


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


def budget() -> Budget:
    """For the process in which models run."""
    return Budget(SECONDS, 4 << 30)
