"""Reports that are made up: of a run with two fusions and near misses, and of a dry run."""

from __future__ import annotations

from pathlib import Path

import onnx_ir as ir

from fusion_cli.costs import Score, Terms
from fusion_cli.measured import Choice, Measurement, OpCheck, OutputCheck, Timed, Verification
from fusion_cli.planir.stages import Plan, Pointwise, Rowwise
from fusion_cli.report import Report, planned_fusions, summarise, written_fusions
from fusion_cli.sessions.timing import Speed
from fusion_cli.types import Candidate, FusedOp, Library, Region, Rejection, Rewrite, Source, TensorSpec

TIMED = (
    Measurement(
        "cpu",
        (Timed("original", 100.0, Speed(1.0, 1.0, 1.0)), Timed("kernels", 50.0, Speed(2.0, 1.9, 2.1))),
        40,
        {"x": (2, 128)},
    ),
)


def candidate(*names: str) -> Candidate:
    x = ir.Value(name="x")
    nodes = tuple(ir.Node("", "Relu", [x], name=name) for name in names)
    region = Region("Demo", nodes, (), (x,), (nodes[-1].outputs[0],))
    kernel = {"operands": (), "program": (), "stores": (), "dims": 0}
    plan = Plan((), (), (Pointwise(**kernel), Rowwise(**kernel), Rowwise(**kernel)), (), (), 0)
    scores = {
        "cpu": Score("cpu", Terms(10.0), Terms(4.0), 3000, 1000, 2, 1),
        "sm_90a": Score("sm_90a", Terms(8.0), Terms(1.0), 3000, 500, 2, 1),
    }
    return Candidate(region, plan, scores, ("cpu",))


def full_report(error: float = 1e-7) -> Report:
    spec = (TensorSpec("x", "float32", (2, "n")),)
    function = ir.Function("fusion", "Demo_1", graph=ir.Graph([], [], nodes=[]), attributes=[])
    op = FusedOp(
        "Demo_1",
        "Demo",
        "auto",
        function,
        None,
        spec,
        spec,
        (candidate("a", "b"), candidate("c", "d")),
        ("Demo_1_0", "Demo_1_1"),
        ("cpu",),
    )
    checks = (OpCheck("Demo_1", "cpu", 1e-7, 1e-3, 20.0, 10.0), OpCheck("Other_2", "cpu", 0.5, 1e-3))
    fusions, targets = written_fusions([op], checks), ("cpu", "sm_90a")
    return Report(
        model="m.onnx",
        model_sha256="0", output="out.onnx", targets=targets, summary=summarise(fusions, targets, 9, 7, 5),
        idioms={"Gelu": 2}, algebra=(Rewrite("ConvAffine", ("g", "h"), 2), Rewrite("PadConv", ("p", "g"), 1)),
        fusions=fusions, timings={"load": 0.1},
        rejected=(
            Rejection("Demo", "e", "score", "FUS301", "a gain", "a loss of 2 us", saving_us=-2.0, progress=1.0),
            Rejection(
                "Norm", "f\x1b[31m", "match", "FUS101", "Add", "Mul", "look at [f]", progress=0.5, saving_us=3.0,
                held=3, lines=6, source="rules/idioms/norm.rule:7", nodes=("e", "f"), matched=1, places=3,
            ),
        ),
        sources=(Source("cpu", "Demo_1", "Demo_1.cc", "text"), Source("cpu", "", "register.cc", "text")),
        libraries=(Library("cpu", Path("/somewhere/lib/cpu.so"), ("Demo_1",), 2, 1.5),),
        verification=Verification((OutputCheck("y", error, 1e-3),), checks),
        choice=Choice("kernels", "faster than the original", TIMED),
        notes=("nvcc was not found",),
    )  # fmt: skip


def dry_report() -> Report:
    fusions = planned_fusions([candidate("a", "b")])
    summary = summarise(fusions, ["cpu"], 4, 4, 1)
    return Report(
        model="m.onnx", model_sha256="0", targets=("cpu",), summary=summary, idioms={}, fusions=fusions, timings={}
    )
