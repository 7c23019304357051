"""The report: its JSON follows the documented schema, and its text says what happened."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx_ir as ir
import pytest
from rich.console import Console

from fusion_cli.costs import Score, Terms
from fusion_cli.explain.why import Answer
from fusion_cli.measured import Choice, Measurement, OpCheck, OutputCheck, Timed, Verification
from fusion_cli.planir.stages import Plan, Pointwise, Rowwise
from fusion_cli.report import Report, planned_fusions, summarise, write_report, written_fusions
from fusion_cli.report.read import read_report
from fusion_cli.report.readable import counted
from fusion_cli.report.render import render_summary
from fusion_cli.report.render_explain import render_answer, render_explain
from fusion_cli.report.verdict import verdict
from fusion_cli.sessions.timing import Speed
from fusion_cli.types import Candidate, FusedOp, Library, Region, Rejection, Rewrite, Source, TensorSpec

DOCS = Path(__file__).parents[2] / "docs"
SCHEMA = json.loads((DOCS / "report.schema.json").read_text("utf-8"))
KINDS = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}


def problems(value: Any, schema: dict[str, Any], path: str = "$") -> Iterator[str]:
    """Where `value` departs from `schema` (the keywords that report.schema.json uses)."""
    if "const" in schema and value != schema["const"]:
        yield f"{path}: not {schema['const']}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{path}: {value!r} not among {schema['enum']}"
    kinds = schema.get("type", [])
    if kinds and not any(is_kind(value, kind) for kind in ([kinds] if isinstance(kinds, str) else kinds)):
        yield f"{path}: {value!r} is no {kinds}"
    elif isinstance(value, dict):
        yield from (f"{path}: no {key}" for key in schema.get("required", []) if key not in value)
        for key, item in value.items():
            inner = schema.get("properties", {}).get(key, schema.get("additionalProperties", False))
            if inner is False:
                yield f"{path}: {key} is not documented"
            else:
                yield from problems(item, inner, f"{path}.{key}")
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from problems(item, schema["items"], f"{path}[{i}]")


def is_kind(value: Any, kind: str) -> bool:
    if kind in ("number", "integer"):
        return isinstance(value, int if kind == "integer" else int | float) and not isinstance(value, bool)
    return isinstance(value, KINDS[kind])


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


def rendered(report: Report) -> str:
    console = Console(width=200, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    render_summary(report, console)
    return console.export_text()


@pytest.mark.parametrize("report", [full_report(), full_report(float("inf")), dry_report()])
def test_json_follows_the_schema(report: Report, tmp_path: Path) -> None:
    write_report(report, tmp_path / "report.json")
    read = json.loads((tmp_path / "report.json").read_text("utf-8"))
    assert list(problems(read, SCHEMA)) == []
    assert [p.name for p in tmp_path.iterdir()] == ["report.json"]


def test_the_validator_sees_departures() -> None:
    data = full_report().to_dict()
    data["fusions"][0]["stages"] = ["magic"]
    data["summary"]["fusions"] = "two"
    del data["idioms"]
    data["extra"] = 1
    assert len(list(problems(data, SCHEMA))) == 4


def test_every_key_of_the_schema_is_explained() -> None:
    text = (DOCS / "report.md").read_text("utf-8")

    def keys(schema: Any) -> Iterator[str]:
        if isinstance(schema, dict):
            yield from schema.get("properties", {})
            for value in schema.values():
                yield from keys(value)

    assert [key for key in sorted(set(keys(SCHEMA))) if f"`{key}`" not in text] == []


def test_counts_and_savings_add_up_over_places() -> None:
    summary = full_report().summary
    assert (summary.fusions, summary.kernels, summary.nodes_fused) == (2, 1, 4)
    assert (summary.bytes_saved, summary.launches_saved, summary.us_saved) == (4000, 2, 12.0)


def test_each_place_names_its_own_nodes_and_the_operators_check() -> None:
    fusions = full_report().to_dict()["fusions"]
    assert [f["nodes"] for f in fusions] == [["a", "b"], ["c", "d"]]
    assert [f["call"] for f in fusions] == ["Demo_1_0", "Demo_1_1"]
    assert fusions[0]["stages"] == ["pointwise", "rowwise", "rowwise"]
    assert [m["error"] for m in fusions[0]["measured"]] == [1e-7]


def test_libraries_do_not_tell_where_they_were_built() -> None:
    assert full_report().to_dict()["libraries"][0]["path"] == "cpu.so"


def test_an_error_that_is_not_finite_is_null() -> None:
    verification = full_report(float("inf")).to_dict()["verification"]
    assert verification["outputs"] == [{"output": "y", "error": None, "tolerance": 1e-3, "ok": False}]
    assert verification["ok"] is False


def test_summary_text() -> None:
    text = rendered(full_report())
    assert "operators found    9 (recognised: 2 Gelu)" in text
    assert "algebra            2 ConvAffine, 1 PadConv\n" in text
    assert "predicted          12.0 us saved, 4.0 kB less traffic, 2 launches less\n" in text
    assert "4 operators into 2 (1 kernel)" in text
    assert "2 (cpu 2); cpu library: 2 files compiled in 1.5 s" in text
    assert "passed: 1 output, largest error 1.0e-07 (tolerance 0.001)" in text
    assert "written            the simplified model with kernels: faster than the original\n" in text
    assert "timed on cpu       x [2,128]; 40 rounds\n" in text
    assert "the simplified model with kernels 50.0 us, 2.00x (1.90 to 2.10) of the original's speed\n" in text
    assert "turned down by what is predicted:\n  1 x Demo: FUS301 expected a gain, found a loss of 2 us" in text
    assert "cpu       measured 20.0 us -> 10.0 us (2.00x) at one place, error 1.0e-07 (tolerance 0.001)" in text
    assert "note: nvcc was not found" in text
    assert "out.fusion" in text


def test_summary_text_of_a_failure_and_of_a_dry_run() -> None:
    assert "FAILED at output y" in rendered(full_report(float("inf")))
    assert "(dry run: nothing written)" in rendered(dry_report())


SLOW = (replace(TIMED[0], models=(TIMED[0].models[0], Timed("kernels", 125.0, Speed(0.8, 0.79, 0.81)))),)
EVEN = (replace(TIMED[0], models=(TIMED[0].models[0], Timed("kernels", 99.0, Speed(1.01, 0.99, 1.03)))),)


@pytest.mark.parametrize(
    ("choice", "beginning"),
    [
        (Choice("kernels", "faster", TIMED), "2.00x on this CPU at x [2,128]"),
        (Choice("kernels", "faster", (replace(TIMED[0], device="cuda"),)), "2.00x on this GPU at x [2,128]"),
        (
            Choice("original", "nothing is faster by more than noise", SLOW),
            "nothing faster on this CPU at x [2,128]: the best is 0.80x (0.79 to 0.81); the original is written",
        ),
        (Choice("original", "nothing was found"), "nothing faster on this CPU: nothing was found; the original"),
        (
            Choice("kernels", "--force keeps it", SLOW),
            "slower than the original on this CPU at x [2,128]: 0.80x (0.79 to 0.81); written all the same: --force",
        ),
        (Choice("kernels", "asked for", EVEN), "as fast as the original on this CPU at x [2,128]: 1.01x"),
        (
            Choice("kernels", "not timed: its kernels do not run on this machine"),
            "written, not timed: its kernels do not run on this machine; predicted, not measured: 12.0 us saved by 2 ",
        ),
        (None, "written without verifying or timing it (--no-verify); predicted: 12.0 us saved by 2 fusions on cpu"),
    ],
)
def test_the_first_line_is_the_verdict(choice: Choice | None, beginning: str) -> None:
    report = replace(full_report(), choice=choice)
    first, second = rendered(report).splitlines()[:2]
    assert first.startswith(beginning)
    assert second == "m.onnx -> out.onnx"
    assert explained(report).splitlines()[0] == first
    if choice is not None and choice.chosen == "original":
        assert all(option in first for option in ("--dim", "--shape", "--inputs", "--target", "--force"))


def test_the_verdict_of_kernels_for_another_machine_says_so() -> None:
    fusions = tuple(replace(f, targets=("sm_90a",), measured=()) for f in full_report().fusions)
    even = replace(TIMED[0], models=(TIMED[0].models[0], Timed("simplified", 99.0, Speed(1.01, 0.99, 1.03))))
    report = replace(full_report(), fusions=fusions, choice=Choice("simplified", "nothing is faster", (even,)))
    assert verdict(report).startswith("written for sm_90a, which was not run here; predicted: 12.0 us saved by 2 ")
    assert verdict(report).endswith("on this CPU at x [2,128] it is 1.01x (0.99 to 1.03) without kernels")


def test_the_verdict_of_what_was_not_run_is_a_prediction() -> None:
    assert verdict(dry_report()) == "predicted, not measured: 6.0 us saved by 1 fusion on cpu"
    assert verdict(replace(dry_report(), targets=("portable",))).endswith("so none is faster (--target portable)")
    slower = replace(dry_report(), summary=replace(dry_report().summary, us_saved=-3.0))
    assert verdict(slower) == "predicted, not measured: 3.0 us lost by 1 fusion on cpu"
    nothing = replace(dry_report(), fusions=(), summary=summarise((), ["cpu"], 4, 4, 0))
    assert verdict(nothing) == "predicted, not measured: nothing pays on cpu"


@pytest.mark.parametrize("report", [full_report(), full_report(float("inf")), dry_report()])
def test_a_report_is_read_as_it_was_written(report: Report, tmp_path: Path) -> None:
    write_report(report, tmp_path / "report.json")
    read = read_report(tmp_path / "report.json")
    assert read.to_dict() == report.to_dict()
    assert read.choice == report.choice
    assert [f.predicted for f in read.fusions] == [f.predicted for f in report.fusions]


def test_what_was_measured_and_taken_back_is_told() -> None:
    gone = Rejection("Demo", "b", "verify", "FUS402", "about 20.0 us", "25.0 us", nodes=("a", "b"), target="cpu")
    report = replace(full_report(), rejected=(*full_report().rejected, gone))
    assert "measured and taken back:\n  1 x Demo on cpu: FUS402 expected about 20.0 us, found 25.0 us" in rendered(
        report
    )
    text = explained(report)
    assert "1 fusion measured and taken back\n- FUS402 Demo at b on cpu\n" in text
    assert "found     25.0 us" in text


def test_commands_to_go_on_with_can_be_pasted() -> None:
    report = replace(full_report(), model="my model.onnx")
    commands = [line for line in rendered(report).splitlines() if line.startswith("next: ")]
    assert commands == ["next: fusion-cli explain out.onnx", "next: fusion-cli bench 'my model.onnx' out.onnx"]


def explained(report: Report, **options: bool) -> str:
    console = Console(width=200, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    render_explain(report, console, **options)
    return console.export_text()


def test_explain_shows_reasons_and_names_are_no_markup() -> None:
    text = explained(full_report(), everything=True)
    assert "FUS301 Demo at e\n" in text
    assert "FUS101 Norm at f\N{REPLACEMENT CHARACTER}[31m and 2 places alike: would save up to 3.0 us\n" in text
    assert "rule      rules/idioms/norm.rule:7, 3 of 6 lines matched" in text
    assert "hint      look at [f]" in text
    assert "\x1b" not in text
    assert "predicted 20.0 us -> 8.0 us (2.50x), 4.0 kB less traffic" in text  # two places alike, told once
    assert "note: nvcc was not found" in text


def test_explain_counts_what_would_save_nothing() -> None:
    report = full_report()
    quiet = Rejection("Quiet", "g", "match", "FUS101", "Add", "Mul", covered_by="Demo", saving_us=5.0)
    idle = Rejection("Idle", "g", "match", "FUS101", "Add", "Mul")
    slip = Rejection("Slip", "g", "match", "FUS107", "0.5", "0.55", covered_by="Demo")
    text = explained(replace(report, rejected=(*report.rejected, quiet, idle, slip)))
    assert "Norm" in text
    assert "Quiet" not in text
    assert "Idle" not in text
    assert "FUS107 Slip" in text  # what may be a mistake of the model's author is told all the same
    assert "5 near misses" in text
    assert "2 more" in text


def test_explain_wraps_on_a_narrow_terminal() -> None:
    report = full_report()
    console = Console(width=40, record=True, force_terminal=True, file=open("/dev/null", "w"))  # noqa: SIM115
    render_explain(report, console)
    lines = [line for line in console.export_text().splitlines() if not line.startswith(("-", "+", "note"))]
    assert all(len(line) <= 40 for line in lines if line[:1] == " ")
    assert "look at [f]" in " ".join(lines)


def on_terminal(width: int) -> Console:
    return Console(width=width, record=True, force_terminal=True, file=open("/dev/null", "w"))


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_summary_wraps_between_words_and_below_its_labels(width: int) -> None:
    console = on_terminal(width)
    report = full_report()
    why = "the best is 1.06x (0.82 to 1.31), and no word of this line is cut in two, however narrow the terminal is"
    lost = replace(report.rejected[0], code="FUS301", stage="score", expected=why, covered_by="")
    render_summary(replace(report, rejected=(lost,), notes=(why,)), console)
    lines = console.export_text().splitlines()
    told = [line for line in lines if not line.startswith(("next: ", "bundle: ", "m.onnx"))]
    assert all(len(line) <= width for line in told)
    assert why in " ".join(" ".join(told).split())
    labels = [line for line in told if line.startswith("  ") and not line.startswith("  1 x")]
    assert all(line[:21].isspace() or line[2:20].strip() for line in labels[:8])


def test_where_nothing_is_fused_that_is_all_that_is_said_of_it() -> None:
    report = full_report()
    text = rendered(replace(report, fusions=(), summary=replace(report.summary, fusions=0, nodes_fused=0, kernels=0)))
    assert "  fused              none\n" in text
    assert "predicted  " not in text


def test_what_would_be_lost_is_called_so() -> None:
    report = full_report()
    text = rendered(replace(report, summary=replace(report.summary, us_saved=-1500.0)))
    assert "predicted          1.50 ms lost, 4.0 kB less traffic, 2 launches less\n" in text
    text = rendered(replace(report, summary=replace(report.summary, bytes_saved=-1500, launches_saved=-1)))
    assert "predicted          12.0 us saved, 1.5 kB more traffic, 1 launch more\n" in text


def test_misses_that_are_only_counted_have_one_line() -> None:
    report = full_report()
    covered = [replace(r, covered_by="Demo") for r in report.rejected if r.rule and r.stage == "match"]
    covered = [r for r in covered if r.code != "FUS107"] * 2
    assert covered
    console = Console(width=200, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    render_explain(replace(report, rejected=tuple(covered)), console)
    (line,) = [line for line in console.export_text().splitlines() if "near miss" in line]
    assert line == (
        f"{len(covered)} near misses (less saved, or covered otherwise): --rule, --node and --json show them"
    )


def test_taken_back_are_as_many_as_there_were_places() -> None:
    report = full_report()
    back = replace(report.rejected[0], code="FUS404", stage="verify", places=3)
    console = Console(width=200, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    render_explain(replace(report, rejected=(back,)), console)
    assert "3 fusions measured and taken back\n" in console.export_text()


def test_nouns_follow_their_numbers() -> None:
    assert [counted(n, "kernel") for n in (0, 1, 2)] == ["0 kernels", "1 kernel", "2 kernels"]
    assert [counted(n, "near miss", "near misses") for n in (1, 0)] == ["1 near miss", "0 near misses"]


@pytest.mark.parametrize("width", [40, 80, 120])
def test_the_answer_on_a_node_is_ten_lines_on_any_terminal(width: int) -> None:
    many = tuple(f"MatMul /encoder/layer.{i}/attention/self/MatMul" for i in range(12))
    why = "Norm came nearest; " + "it expected a sum of squares, and found another function " * 12
    miss = Rejection("Norm", "n", "match", "FUS101", "Add", "Mul", "write it " * 20, nodes=many, source="norm.rule:7")
    for rejected in ([], [miss], [miss] * 5):
        answer = Answer("n", "n", "Add", "missed", "FUS101", why, "FUS121", many[0], reads=many, feeds=many)
        console = Console(width=width, record=True, force_terminal=True, file=open("/dev/null", "w"))  # noqa: SIM115
        render_answer(answer, rejected, console)
        lines = console.export_text().splitlines()
        assert len(lines) <= 10
        assert lines[0] == "Add n: missed"
        assert lines[1].split()[:4] == ["why", "FUS101", "Norm", "came"]
        assert all(len(line) <= width for line in lines)
