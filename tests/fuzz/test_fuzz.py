"""A few random graphs and damaged models, the same each time; and that the fuzzer tells what is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Self

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import fusion_cli
from fusion_cli.errors import FusionError
from fusion_cli.limits import MORE_TIME, Budget
from fusion_cli.runtime import find_library
from fusion_cli.sessions import CPU, CUDA_FLOAT32, CannotRun, Providers
from fusion_cli.sessions.process import Process, Runner
from tests.fuzz.trial import GOOD, Trials, budget, smallest
from tests.fuzz.variety import draw_graph
from tests.helpers.graphs import parse

FEEDS = [{"x": np.ones((n, 4), np.float32)} for n in (1, 2, 3)]


@pytest.fixture(scope="module")
def process() -> Iterator[Process]:
    with Process(budget("cpu")) as started:
        yield started


@pytest.mark.parametrize(
    ("target", "seeds"),
    [
        ("portable", range(25)),
        ("cpu", range(40, 44)),
        ("cpu", range(100235, 100236)),  # which ONNX Runtime's own optimizations cannot open
    ],
)
def test_graphs_compute_the_same(target: str, seeds: range, tmp_path: Path, process: Process) -> None:
    trials = Trials(tmp_path, target, process)
    found = {seed: trials.graph(seed) for seed in seeds}
    assert {seed: said for seed, said in found.items() if said.partition(":")[0] not in GOOD} == {}
    assert list(found.values()).count("right") > 0.9 * len(seeds)


def test_damaged_models_are_refused_or_compute_the_same(tmp_path: Path, process: Process) -> None:
    trials = Trials(tmp_path, "portable", process)
    found = {seed: trials.mutant(seed) for seed in range(40)}
    assert {seed: said for seed, said in found.items() if said.partition(":")[0] not in GOOD} == {}
    assert min(list(found.values()).count(kind) for kind in ("right", "refused")) > 0.2 * len(found)


FOUND = {
    "kernel without inputs": "g (float[n, 4] x) => (float[1] y, float[n, 4] z) <float[1] w = {0.3}> {"
    " a = Mish (w) y = Exp (a) z = Relu (x) }",
    "logarithm of a sum of what is infinite": "g (float[n, 4] x) => (float[n, 4] y, float[n, 4] z)"
    " <int64[1] axis = {-1}> { o = Sub (x, x) low = Log (o) a = ReduceLogSumExp (low, axis) y = Add (low, a)"
    " high = Neg (low) b = ReduceLogSumExp (high, axis) z = Add (high, b) }",
}
"""Least parts of graphs that were not right once."""


@pytest.mark.parametrize("text", FOUND.values(), ids=list(FOUND))
def test_what_was_found_once_is_right(text: str, tmp_path: Path, process: Process) -> None:
    trials = Trials(tmp_path, "cpu", process)
    assert trials.judge(parse(text, opset=18).SerializeToString(), FEEDS, valid=True) == "right"


def model() -> bytes:
    text = "g (float[n, 4] x) => (float[n, 4] y, float[n, 4] z) { a = Exp (x) y = Add (a, w) z = Sin (x) }"
    data: bytes = parse(text, {"w": (4,)}).SerializeToString()
    return data


def changed(source: Path, output: Path, **_: object) -> None:
    proto = onnx.load(source)
    for tensor in proto.graph.initializer:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) + 1, tensor.name))
    onnx.save(proto, output)


def raising(error: Exception) -> Callable[..., None]:
    def optimize(*_: object, **__: object) -> None:
        raise error

    return optimize


def littering(source: Path, output: Path, **_: object) -> None:
    output.with_name(".left").touch()
    raise FusionError("refused")


@pytest.mark.parametrize(
    ("optimize", "outcome"),
    [
        (changed, "wrong: y is off by"),
        (raising(ValueError("a fault")), "fault: Traceback"),
        (raising(FusionError("no", hint=MORE_TIME)), "late"),
        (raising(FusionError("no")), "refused a valid model: no"),
        (littering, "left files"),
    ],
    ids=["numbers", "traceback", "time", "refusal", "files"],
)
def test_what_is_wrong_is_told(
    optimize: Callable[..., None], outcome: str, tmp_path: Path, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    trials = Trials(tmp_path, "portable", process)
    assert trials.judge(model(), FEEDS, valid=True) == "right"
    monkeypatch.setattr(fusion_cli, "optimize", optimize)
    assert trials.judge(model(), FEEDS, valid=True).startswith(outcome)


@dataclass
class Simulated:
    """A process with a GPU, where the results of kernels, and those of ONNX Runtime's own, are off by a number, or do
    not come (None)."""

    process: Process
    kernels: float | None
    own: float | None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    @property
    def budget(self) -> Budget:
        return self.process.budget

    def open(self, model: Path | bytes, *, providers: Providers = CPU, **options: Any) -> Shifted:
        shift = 0.0 if providers is CPU else self.kernels if options.get("libraries") else self.own
        return Shifted(self.process.open(model, **options), shift)


@dataclass
class Shifted:
    runner: Runner
    shift: float | None

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        if self.shift is None:
            raise CannotRun("an illegal memory access")
        return {name: array + np.float32(self.shift) for name, array in self.runner.run(feeds).items()}


@pytest.mark.parametrize(
    ("kernels", "own", "outcome"),
    [
        (0, 0, "right"),
        (0, None, "right"),
        (1, 1, "as on GPUs: y is off by"),
        (1, 0, "wrong: y is off by"),
        (1, 2, "wrong: y is off by"),
        (1, None, "wrong: y is off by"),
        (None, 0, "fails: the fused model does not run: an illegal memory access"),
        (None, None, "does not run on GPUs"),
    ],
)
def test_kernels_for_gpus_may_do_as_onnx_runtimes_own_there(
    kernels: float | None,
    own: float | None,
    outcome: str,
    tmp_path: Path,
    process: Process,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gpu = Simulated(process, kernels, own)
    monkeypatch.setattr("tests.fuzz.trial.Process", lambda _: gpu)
    trials = Trials(tmp_path, "cpu", gpu)
    assert trials.optimize(model(), FEEDS, valid=True) == ""
    found = find_library(trials.output, CPU, ["CPUExecutionProvider"])
    assert found is not None
    trials.providers = CUDA_FLOAT32
    assert trials.compare(found.path).startswith(outcome)


def test_kernels_that_are_not_taken_are_told(tmp_path: Path, process: Process) -> None:
    trials = Trials(tmp_path, "cpu", process)
    assert trials.judge(model(), FEEDS, valid=True) == "right"
    text = "g (float[n, 4] x) => (float[n, 4] y) { a = Sin (x) y = Mul (a, x) }"
    assert trials.judge(parse(text).SerializeToString(), FEEDS, valid=True) == "right"
    (other,) = tmp_path.glob("*.so")
    kept = other.rename(tmp_path.with_suffix(".so"))
    trials.optimize(model(), FEEDS, valid=True)
    assert "is not a registered function" in trials.compare(kept)


def test_the_part_that_is_wrong_is_kept(tmp_path: Path, process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fusion_cli, "optimize", changed)
    part = onnx.ModelProto.FromString(smallest(Trials(tmp_path, "portable", process), model(), FEEDS, "wrong"))
    assert [n.op_type for n in part.graph.node] == ["Exp", "Add"]
    assert [o.name for o in part.graph.output] == ["y"]


def test_what_is_drawn_has_everything_in_it() -> None:
    graphs = [draw_graph(Random(seed))[0].graph for seed in range(60)]
    drawn = {n.op_type for graph in graphs for n in graph.node}
    assert drawn >= {"If", "Loop", "MatMul", "Softmax", "QuantizeLinear", "Slice", "Reshape", "Cast", "Where", "Conv"}
