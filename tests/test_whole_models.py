"""Of the original, the simplified model and that with kernels the fastest is written, and what was measured is told."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import fusion_cli
from fusion_cli.report import Report
from fusion_cli.sessions import CannotRun
from fusion_cli.verify import choice, contest, rollback
from tests.helpers.cli_helpers import call
from tests.helpers.graphs import parse
from tests.helpers.timings import ROUNDS, measured
from tests.report.test_report_json import SCHEMA, problems

CPU = ["CPUExecutionProvider"]
MODEL = """
g (float[rows, 512] x) => (float[rows, 512] y) {
    one = Constant <value = float {1.0}> () two = Add (one, one)
    a = Sin (x) b = Mul (a, two) c = Cos (b) d = Add (c, x) e = Sigmoid (d) f = Mul (e, d)
    h = MatMul (f, w)
    i = Abs (h) j = Sqrt (i) k = Softmax <axis = -1> (j) l = Mul (k, two) y = Add (l, h)
}"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    onnx.save(parse(MODEL, {"w": (512, 512)}), tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """How long each whole model takes; operators by themselves are not timed."""
    monkeypatch.setattr(rollback, "_OPS_SECONDS", 0.0)

    def take(original: float, simplified: float, kernels: float = 0.0, **alone: float) -> None:
        def us(name: str, rules: frozenset[str]) -> float:
            if len(rules) == 1 and alone:
                return alone[next(iter(rules))]
            return {"original": original, "simplified": simplified, "kernels": kernels}[name]

        monkeypatch.setattr(choice, "measure", measured(us))

    return take


def optimize(model: Path, *targets: str, **options: object) -> Report:
    options = {"targets": targets or ("cpu",), "dims": {"rows": 256}, **options}
    return fusion_cli.optimize(model, model.with_name("out.onnx"), **options)


def rules(report: Report) -> set[str]:
    return {f.rule for f in report.fusions}


def taken_back(report: Report) -> set[tuple[str, str]]:
    return {(r.rule, r.code) for r in report.rejected if r.stage == "verify"}


def same_numbers(model: Path) -> None:
    x = np.random.default_rng(1).standard_normal((3, 512), dtype=np.float32)
    expected = ort.InferenceSession(model, providers=CPU).run(None, {"x": x})[0]
    out = model.with_name("out.onnx")
    for session in (ort.InferenceSession(out, providers=CPU), fusion_cli.session(out, providers=CPU)):
        np.testing.assert_allclose(session.run(None, {"x": x})[0], expected, rtol=1e-3, atol=1e-4)


def test_kernels_are_written_where_they_are_the_fastest(model: Path, times: Callable[..., None]) -> None:
    times(100, 110, 80)
    report = optimize(model)
    assert rules(report) == {"PointwiseRegion", "RowwiseRegion"}
    assert report.choice is not None
    assert (report.choice.chosen, report.choice.measured[0].sizes) == ("kernels", {"x": (256, 512)})
    assert len(report.libraries) == 1
    same_numbers(model)


def test_the_simplified_model_is_written_where_kernels_do_not_help(model: Path, times: Callable[..., None]) -> None:
    times(100, 80, 79, PointwiseRegion=80, RowwiseRegion=80)
    report = optimize(model)
    assert (report.fusions, report.libraries, report.sources) == ((), (), ())
    assert taken_back(report) == {("PointwiseRegion", "FUS402"), ("RowwiseRegion", "FUS402")}
    assert report.choice is not None
    assert report.choice.chosen == "simplified"
    written = onnx.load(model.with_name("out.onnx"))
    assert not written.functions
    assert [n.op_type for n in written.graph.node].count("Add") == 2  # that of constants is folded
    assert {p.name for p in model.with_name("out.fusion").iterdir()} == {"manifest.json", "report.html", "report.json"}
    same_numbers(model)


def test_the_original_is_written_where_nothing_beats_it(model: Path, times: Callable[..., None]) -> None:
    times(100, 115, 104)
    report = optimize(model)
    assert model.with_name("out.onnx").read_bytes() == model.read_bytes()
    assert {p.name for p in model.with_name("out.fusion").iterdir()} == {"manifest.json", "report.html", "report.json"}
    assert (report.fusions, report.libraries, report.sources) == ((), (), ())
    assert report.summary.nodes_after == report.summary.nodes_before == len(onnx.load(model).graph.node)
    assert taken_back(report) == {("PointwiseRegion", "FUS404"), ("RowwiseRegion", "FUS404")}
    told = call("explain", model.with_name("out.onnx")).stdout
    assert told.startswith("nothing faster on this CPU at x [256,512]: the best is 0.96x")
    assert "2 fusions measured and taken back" in told
    gone = next(n.name for n in report.graph if n.fate == "taken back")
    assert ": taken back\n    why       FUS404 " in call("explain", model.with_name("out.onnx"), "--node", gone).stdout
    same_numbers(model)
    again = optimize(model.with_name("out.onnx"), "portable", dry_run=True)
    assert rules(again) == {"PointwiseRegion", "RowwiseRegion"}


@pytest.mark.parametrize("place", ["", "elsewhere"])
def test_an_original_keeps_its_weights_where_they_are(
    model: Path, times: Callable[..., None], tmp_path: Path, place: str
) -> None:
    times(100, 110)
    proto, out = onnx.load(model), tmp_path / place / "out.onnx"
    out.parent.mkdir(exist_ok=True)
    onnx.save(proto, model, save_as_external_data=True, location="w.bin", size_threshold=64)
    report = fusion_cli.optimize(model, out, targets=["portable"], dims={"rows": 256})
    assert report.choice is not None
    assert report.choice.chosen == "original"
    (data,) = out.parent.glob("out.onnx-*.data")
    assert data.read_bytes() == model.with_name("w.bin").read_bytes()
    written, before = onnx.load(out), onnx.load(model)
    assert list(written.graph.node) == list(before.graph.node)
    assert written.graph.initializer[0].raw_data == before.graph.initializer[0].raw_data
    onnx.checker.check_model(out)


@pytest.mark.parametrize(("simplified", "expected"), [(110, "original"), (100, "simplified"), (80, "simplified")])
def test_a_portable_model_is_the_simplified_one_unless_that_is_slower(
    model: Path, times: Callable[..., None], simplified: float, expected: str
) -> None:
    times(100, simplified)
    report = optimize(model, "portable")
    assert report.choice is not None
    assert report.choice.chosen == expected
    assert rules(report) == ({"PointwiseRegion", "RowwiseRegion"} if expected == "simplified" else set())
    same_numbers(model)


@pytest.mark.parametrize(
    ("useless", "helps", "alone"),
    [("PointwiseRegion", "RowwiseRegion", 120), ("RowwiseRegion", "PointwiseRegion", 110)],
    ids=["hurts", "changes nothing"],
)
def test_kernels_that_do_not_help_the_model_go_and_others_stay(
    model: Path, times: Callable[..., None], useless: str, helps: str, alone: float
) -> None:
    times(100, 110, 112, **{useless: alone, helps: 90})
    report = optimize(model)
    assert rules(report) == {helps}
    assert taken_back(report) == {(useless, "FUS402")}
    assert report.choice is not None
    assert [(c.model, c.us) for c in report.choice.measured[0].models] == [
        ("original", 100),
        ("simplified", 110),
        ("kernels", pytest.approx(90)),
    ]
    same_numbers(model)


def test_force_keeps_all_kernels(model: Path, times: Callable[..., None]) -> None:
    times(100, 100, 200)
    report = optimize(model, force=True)
    assert report.fusions
    assert taken_back(report) == set()
    assert report.choice is not None
    assert report.choice.why == "--force keeps it whatever its time"


def test_without_verification_nothing_is_timed(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise AssertionError

    monkeypatch.setattr(choice, "measure", fail)
    report = optimize(model, verify=False)
    assert report.fusions
    assert report.choice is None


def test_a_model_for_a_gpu_is_not_given_up_for_what_the_cpu_says(
    model: Path, times: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    times(100, 110, 112)
    monkeypatch.setattr(rollback, "runs_here", lambda _: False)
    report = optimize(model, "portable", "sm_80")
    assert report.choice is not None
    assert report.choice.why == "not timed: its kernels do not run on this machine"
    assert report.fusions


def test_a_file_for_a_gpu_too_is_not_given_up_for_what_the_cpu_says(
    model: Path, times: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    times(40, 100, 110)
    monkeypatch.setattr(rollback, "runs_here", lambda _: False)
    report = optimize(model, "cpu", "sm_80")
    assert report.choice is not None
    assert report.choice.chosen == "simplified"
    assert {f.targets for f in report.fusions} == {("sm_80",)}


def test_a_large_model_without_kernels_is_not_timed(
    model: Path, times: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    times(100, 110, 80)
    monkeypatch.setattr(contest, "_MOST_NODES", 5)
    report = optimize(model, "portable")
    assert report.choice is not None
    assert (report.choice.chosen, report.choice.measured) == ("simplified", ())
    assert report.choice.why == "not timed: so large a model takes long to open"
    timed = optimize(model)
    assert timed.choice is not None
    assert timed.choice.chosen == "kernels"


def test_a_model_that_cannot_be_timed_is_written_as_it_was_built(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: object, **__: object) -> None:
        raise CannotRun("it fell over")

    monkeypatch.setattr(rollback, "_OPS_SECONDS", 0.0)
    monkeypatch.setattr(choice, "measure", crash)
    report = optimize(model)
    assert report.choice is not None
    assert (report.choice.chosen, report.choice.why) == ("kernels", "not timed: it fell over")


def test_the_report_and_the_first_line_tell_what_is_written(model: Path, times: Callable[..., None]) -> None:
    times(100, 115, 104)
    result = call("optimize", model, "-o", model.with_name("out.onnx"), "--target", "cpu", "--dim", "rows=256")
    assert result.exit_code == 0
    first = result.stdout.splitlines()[0]
    assert "nothing faster on this CPU at x [256,512]: the best is 0.96x" in first
    assert "--dim" in first
    assert f"timed on cpu       x [256,512]; {ROUNDS} rounds" in result.stdout
    assert "the simplified model with kernels 104.0 us, 0.96x (0.96 to 0.96) of the original's speed" in result.stdout
    written = json.loads((model.with_name("out.fusion") / "report.json").read_text())
    assert list(problems(written, SCHEMA)) == []
    assert written["choice"] == {
        "chosen": "original",
        "why": "nothing is faster by more than noise",
        "measured_at": "",
        "measured": [
            {
                "device": "cpu",
                "models": [
                    {
                        "model": m,
                        "us": pytest.approx(us),
                        "speed": {k: pytest.approx(100 / us) for k in ("ratio", "low", "high")},
                    }
                    for m, us in (("original", 100), ("simplified", 115), ("kernels", 104))
                ],
                "rounds": ROUNDS,
                "sizes": {"x": [256, 512]},
            }
        ],
    }
