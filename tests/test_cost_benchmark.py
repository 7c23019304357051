"""Predictions held against measurements: what counts, what is held out, and the page."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks import cost_cpu, cost_fit, cost_model
from benchmarks.cost_cases import ABLATIONS, Case, Measured, Prediction
from benchmarks.cost_cpu import CPU_CASES
from benchmarks.cost_model_page import HEADING, figures, group
from fusion_cli.costs import Terms
from fusion_cli.devices.profile import DeviceProfile
from fusion_cli.devices.work import Work
from fusion_cli.score import load_profile
from fusion_cli.targets import CPU, CUDA
from fusion_cli.types import Options


def prediction(before: float, after: float, measured: Measured, same: bool = True, whole: bool = False) -> Prediction:
    case = Case("a", Path("a"), Options(), "cpu", measured, whole)
    without = dict.fromkeys(ABLATIONS, (before, after))
    return Prediction(case, Terms(before), Terms(after), without, same)


def of(p: Prediction) -> tuple[float, float]:
    return p.before.total, p.after.total


def test_a_sign_is_right_if_the_faster_one_is_told() -> None:
    right = prediction(10, 5, Measured(8, 7, ("R",)))
    wrong = prediction(5, 10, Measured(8, 7, ("R",)))
    assert figures([right], of)["signs"] == 1
    assert figures([right, wrong], of)["signs"] == 0.5
    alike = prediction(5, 10, Measured(8, 7.9, ("R",)))
    assert figures([alike], of)["signs"] is None
    for speed, known in (((0.97, 1.2), None), ((1.05, 1.2), 0.0)):
        assert figures([prediction(5, 10, Measured(8, 7, ("R",), speed))], of)["signs"] == known


def test_a_fit_finds_the_numbers_that_made_the_times(monkeypatch: pytest.MonkeyPatch) -> None:
    class Made:
        """Times that are a node's and a matrix product's."""

        def totals(self, case: Case, profile: DeviceProfile) -> tuple[float, float, bool]:
            node, product = profile.node_us, 1 / profile.tflops["float32"]
            return node + size[case.id] * product, node + size[case.id] * product + profile.op_us, True

    size, profile = {"a": 0.01, "b": 1.0, "c": 100.0}, load_profile(CPU)
    truth = cost_fit.with_numbers(
        profile, {**cost_fit.numbers_of(profile), "node_us": 0.6, "float32": 0.4, "op_us": 2.0}
    )
    found = []
    for name in size:
        case = prediction(1, 1, Measured(1, 1, ("R",))).case
        before, after, _ = Made().totals(replace(case, id=name), truth)
        found.append(replace(case, id=name, measured=Measured(before, after, ("R",))))
    monkeypatch.setattr(cost_fit, "_PULL", 1e-3)
    fitted, left = cost_fit.fit(Made(), found, profile)  # type: ignore[arg-type]
    assert (fitted.node_us, fitted.op_us) == (pytest.approx(0.6, rel=0.02), pytest.approx(2.0, rel=0.02))
    assert fitted.tflops["float32"] == pytest.approx(0.4, rel=0.02)
    assert left < 1e-3


def test_errors_are_relative_to_what_was_measured_and_those_of_other_fusions_do_not_count() -> None:
    found = [prediction(10, 6, Measured(8, 4, ("R",))), prediction(10, 100, Measured(8, 4, ("Q",)), same=False)]
    told = figures(found, of)
    assert (told["ORT"], told["fused"], told["whole"]) == (pytest.approx(0.25), pytest.approx(0.5), None)
    assert told["compared"] == 1
    whole = figures([prediction(10, 6, Measured(8, 4, ("R",)), whole=True)], of)
    assert (whole["ORT"], whole["whole"]) == (None, pytest.approx(0.375))


def test_about_a_third_is_held_out_and_a_model_as_a_whole() -> None:
    held = [prediction(1, 1, Measured(1, 1, ())).case for _ in CPU_CASES]
    held = [replace(h, id=c.id) for h, c in zip(held, CPU_CASES, strict=True)]
    assert len(CPU_CASES) == len({c.id for c in CPU_CASES}) == 60
    assert 0.2 < sum(c.is_held_out for c in held) / len(held) < 0.45
    case = held[0]
    assert replace(case, device="cuda").is_held_out == replace(case, device="cuda graph").is_held_out
    assert group(prediction(1, 1, Measured(1, 1, ())))[0] == "CPU"


@pytest.mark.parametrize("term", ABLATIONS)
def test_what_a_term_counts_costs_nothing_without_it(term: str) -> None:
    works = [
        Work("MatMul", 1e6, 1e12, "float16", grid=(1, 1000, 1000)),
        Work("Add", 1e9),
        Work("Add", 1e6),
    ]
    gpu = load_profile(next(t for t in CUDA if t.name == "sm_90a"))
    assert term == "dispatch" or sum(getattr(w.terms(gpu), term) for w in works) > 0.2
    without = ABLATIONS[term](gpu)
    assert sum(getattr(w.terms(without), term) for w in works) < 1e-2
    assert term != "dispatch" or without.node_us + without.op_us + without.run_us == 0


def test_cases_for_cpus_are_timed_predicted_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = tuple(c for c in CPU_CASES if c.id in ("cpu_chain_1", "cpu_softmax_1"))
    for module in (cost_model, cost_cpu):
        monkeypatch.setattr(module, "CPU_CASES", few)
    monkeypatch.setattr(cost_cpu, "SECONDS", 0.05)
    page = tmp_path / "page.md"
    page.write_text(f"# Title\n\nWords.\n\n{HEADING}\n\nold\n")
    options = ["--cpu", "--results", str(tmp_path), "--models", str(tmp_path), "--markdown", str(page)]
    result = CliRunner().invoke(cost_model.main, options)
    assert result.exit_code == 0, result.output
    text = page.read_text()
    assert text.startswith("# Title\n\nWords.\n\n")
    assert "\nold\n" not in text
    assert all(f"| {c.id}, cpu |" in text for c in few)
    found = json.loads((tmp_path / "cost-model.json").read_text())
    assert {c["name"] for c in found["cases"]} == {f"{c.id}, cpu" for c in few}
    assert all(c["same_fusions"] and c["measured"]["after"] > 0 for c in found["cases"])
    assert set(found["without"]) == set(ABLATIONS)


def test_every_kernel_that_was_measured_is_predicted(tmp_path: Path) -> None:
    rows = {"built": [{"id": "silu_product_128x768", "mode": "kernels", "fusions": ["PointwiseRegion"]}]}
    us = {"kernels": [2.6, 1.0], "ORT": [7.0, 2.0]}
    rows["timed"] = [{"mode": "silu_product_128x768", "us": us}, {"mode": "gated_1x18944x3584", "us": {}}]
    (tmp_path / "kernels-nvidia-h200.json").write_text(json.dumps(rows))
    result = CliRunner().invoke(cost_model.main, ["--results", str(tmp_path), "--models", str(tmp_path)])
    assert result.exit_code == 0, result.output
    (case,) = json.loads((tmp_path / "cost-model.json").read_text())["cases"]
    assert case["name"] == "silu_product_128x768, kernels"
    assert case["measured"] == {"before": 7.0, "after": 2.6, "rules": ["PointwiseRegion"], "speed": None}
    assert case["same_fusions"]
