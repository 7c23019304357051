"""The report as text: its verdict, its summary, and what `explain` says of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.console import Console

from fusion_cli.explain.why import Answer
from fusion_cli.measured import Choice, Timed
from fusion_cli.report import Report, summarise
from fusion_cli.report.readable import counted
from fusion_cli.report.render import render_summary
from fusion_cli.report.render_explain import render_answer, render_explain
from fusion_cli.report.verdict import verdict
from fusion_cli.sessions.timing import Speed
from fusion_cli.types import Rejection
from tests.helpers.made_up_reports import TIMED, dry_report, full_report


def rendered(report: Report) -> str:
    console = Console(width=200, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    render_summary(report, console)
    return console.export_text()


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
