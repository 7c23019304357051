"""Rules with a kernel of their own: operators that no generated kernel covers, from the model to numbers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import fusion_cli
from fusion_cli.build import find_compiler
from fusion_cli.errors import RuleError
from fusion_cli.pipeline import explain
from fusion_cli.report import Report
from fusion_cli.types import Options, Rejection, Target
from tests.helpers.graphs import parse

RULE = Path(__file__).parents[1] / "examples" / "custom_rule"
CPU = ["CPUExecutionProvider"]
needs_nvcc = pytest.mark.skipif(find_compiler(Target("sm_80", "cuda", "sm_80")) is None, reason="nvcc is not installed")

DECAY = """
g (float[batch, 4, steps] x, float[batch, 4, steps] z) => (float[batch, 4, steps, steps] y, float[batch, 4, steps] w) {
    last = Constant <value = int64 {-1}> () k = Constant <value = int64 {0}> ()
    rows = Constant <value = int64[1] {-1}> () columns = Constant <value = int64[1] {-2}> ()
    sum = CumSum (x, last) to = Unsqueeze (sum, rows) from = Unsqueeze (sum, columns)
    between = Sub (to, from) growth = Exp (between) y = Trilu <upper = 0> (growth, k)
    w = Neg (z)
}"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "decay.onnx"
    onnx.save(parse(DECAY), path)
    return path


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    """A copy of the example's folder, to change."""
    return Path(shutil.copytree(RULE, tmp_path / "rules"))


def fuse(model: Path, rules: Path, *targets: str, force: bool = True, only: tuple[str, ...] = ("Decay",)) -> Report:
    return fusion_cli.optimize(
        model, model.with_name("fused.onnx"), targets=targets, rules=only, rule_paths=[rules], force=force
    )


def emitted(report: Report) -> list[Rejection]:
    return [r for r in report.rejected if r.stage == "emit"]


def same_numbers(model: Path, fused: Path) -> None:
    for steps in (1, 2, 37):
        rng = np.random.default_rng(steps)
        feeds = {name: rng.standard_normal((3, 4, steps), dtype=np.float32) for name in ("x", "z")}
        expected = ort.InferenceSession(model, providers=CPU).run(None, feeds)
        for session in (fusion_cli.session(fused, providers=CPU), ort.InferenceSession(fused, providers=CPU)):
            for a, b in zip(expected, session.run(None, feeds), strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def test_operators_that_no_plan_covers_run_as_the_rules_kernel(model: Path) -> None:
    report = fuse(model, RULE, "cpu")
    (fusion,) = report.fusions
    assert (fusion.rule, fusion.kernel, fusion.stages, fusion.targets) == ("Decay", "decay", ("decay",), ("cpu",))
    assert report.verification is not None
    assert [check.error < 1e-4 for check in report.verification.ops] == [True]
    (source,) = [s.text for s in report.sources if s.op]
    assert "fusion::Ints{run.dims(0)[0], 4, run.dims(0)[2], run.dims(0)[2]}" in source
    written = json.loads((model.parent / "fused.fusion" / "report.json").read_text())
    assert [f["stages"] for f in written["fusions"]] == [["decay"]]
    assert [n.op_type for n in onnx.load(model.parent / "fused.onnx").graph.node] == [fusion.name, "Neg"]
    same_numbers(model, model.parent / "fused.onnx")


def test_the_score_takes_it_without_force_where_it_saves_enough(model: Path) -> None:
    report, _ = explain(model, Options(targets=("cpu", "sm_80"), rules=("Decay",), rule_paths=(RULE,)))
    (fusion,) = report.fusions
    assert fusion.targets == ("cpu", "sm_80")
    # x is read and y is written, beside a few axes.
    x, y = 4 * 4 * 128, 4 * 4 * 128 * 128
    assert [s.bytes_after for s in fusion.predicted.values()] == [pytest.approx(x + y, rel=1e-3)] * 2
    assert all(s.launches_after == 1 and s.gain_us > 0 for s in fusion.predicted.values())


@pytest.mark.parametrize("wrong", [False, True])
def test_a_kernel_whose_numbers_differ_is_taken_back(model: Path, rules: Path, wrong: bool) -> None:
    template = rules / "decay.cc.jinja"
    source = template.read_text()
    assert "std::exp(" in source
    if wrong:
        template.write_text(source.replace("std::exp(", "std::exp2("))
    report = fuse(model, rules, "cpu")
    assert [f.rule for f in report.fusions] == ([] if wrong else ["Decay"])
    reasons = [(r.rule, r.code) for r in report.rejected if r.stage == "verify"]
    assert reasons == ([("Decay", "FUS401")] if wrong else [])
    same_numbers(model, model.parent / "fused.onnx")


@needs_nvcc
def test_both_templates_are_built(model: Path) -> None:
    report = fuse(model, RULE, "cpu", "sm_80")
    assert [f.targets for f in report.fusions] == [("cpu", "sm_80")]
    assert {lib.target: lib.ops for lib in report.libraries} == dict.fromkeys(
        ("cpu", "sm_80"), (report.fusions[0].name,)
    )


def test_a_target_without_a_template_is_a_reason(model: Path, rules: Path) -> None:
    (rules / "decay.cu.jinja").unlink()
    report = fuse(model, rules, "cpu", "sm_80")
    assert [f.targets for f in report.fusions] == [("cpu",)]
    (reason,) = emitted(report)
    assert (reason.rule, reason.code, reason.target) == ("Decay", "FUS505", "sm_80")
    assert reason.expected == "a template decay.cu.jinja on sm_80"
    assert reason.hint
    same_numbers(model, model.parent / "fused.onnx")


def test_where_there_is_no_template_other_rules_have_the_nodes(model: Path, rules: Path) -> None:
    (rules / "decay.cc.jinja").unlink()
    report = fuse(model, rules, "cpu", only=())
    taken = {n for f in report.fusions for n in f.nodes}
    assert {"Sub->between", "Exp->growth"} <= taken
    assert "Decay" not in {f.rule for f in report.fusions}
    assert [r.code for r in emitted(report)] == ["FUS505"]


def test_a_size_that_the_template_cannot_tell_is_a_reason(model: Path, rules: Path) -> None:
    (rules / "tail.rule").write_text(
        '# kernel: decay\n<domain: "fusion.rules", opset_import: ["": 17]>\n'
        "Tail (x) => (y) { n = NonZero (x) y = Neg (n) }\n"
    )
    onnx.save(parse("g (float[n] x) => (int64[1, found] y) { n = NonZero (x) y = Neg (n) }"), model)
    report = fuse(model, rules, "cpu", only=("Tail",))
    assert report.fusions == ()
    assert [(r.code, r.found) for r in emitted(report)] == [("FUS506", "one that is not known")]
    fused = ort.InferenceSession(model.parent / "fused.onnx", providers=CPU)
    np.testing.assert_array_equal(fused.run(None, {"x": np.float32([0, 2, 3])})[0], [[-1, -2]])


def test_a_wrong_template_name_is_an_error_at_its_line(model: Path, rules: Path) -> None:
    rule = rules / "decay.rule"
    rule.write_text(rule.read_text().replace("# kernel: decay", "# kernel: decoy"))
    with pytest.raises(RuleError, match=r"decay\.rule:2:11: no template decoy\.cc\.jinja.*did you mean 'decay'"):
        fuse(model, rules, "cpu")
    assert not (model.parent / "fused.onnx").exists()


RELU = """// {{ op }}
#include "ort/op.h"
namespace {
const fusion::Port kInputs[] = { {{ "{" }}{{ inputs[0].onnx_type }}, false} }, kOutputs[] = { {1, false} };
struct Kernel {
  Kernel(const fusion::Api&, const OrtKernelInfo*) {}
  void compute(fusion::Run& run) {
    const auto* x = static_cast<const float*>(run.input(0));
    auto* y = static_cast<float*>(run.output(0, run.dims(0)));
    for (int64_t i = 0; i < fusion::count(run.dims(0)); ++i) y[i] = x[i] > 0 ? x[i] : 0;
  }
};
}
FUSION_OP({{ op }}, "{{ ep }}", kInputs, kOutputs, Kernel)
"""


@pytest.mark.parametrize("force", [False, True])
def test_a_kernel_that_saves_nothing_is_turned_down_unless_forced(tmp_path: Path, force: bool) -> None:
    rules, model = tmp_path / "rules", tmp_path / "relu.onnx"
    rules.mkdir()
    (rules / "relu.cc.jinja").write_text(RELU)
    (rules / "one.rule").write_text(
        '# kernel: relu\n<domain: "fusion.rules", opset_import: ["": 17]>\nOne (x) => (y) { y = Relu (x) }\n'
    )
    onnx.save(parse("g (float[n, 64] x) => (float[n, 64] y) { y = Relu (x) }"), model)
    report = fuse(model, rules, "cpu", force=force, only=("One",))
    assert [f.kernel for f in report.fusions] == (["relu"] if force else [])
    turned_down = [(r.stage, r.code) for r in report.rejected if r.rule == "One"]
    assert turned_down == ([] if force else [("score", "FUS301")])
    x = np.float32([[-1, 2] * 32])
    fused = fusion_cli.session(tmp_path / "fused.onnx", providers=CPU)
    np.testing.assert_array_equal(fused.run(None, {"x": x})[0], np.maximum(x, 0))
