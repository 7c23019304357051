"""Tuning files: what was measured once is done again, anywhere, and what is missing can be an error."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from click.testing import CliRunner

import fusion_cli
from fusion_cli.cli import main
from fusion_cli.codes.score import DOES_NOT_PAY
from fusion_cli.devices.profile import DeviceProfile
from fusion_cli.errors import FusionError, NotTuned
from fusion_cli.report import Report
from fusion_cli.report.tuning import read_tuning
from fusion_cli.verify import choice, rollback
from tests.helpers.timings import measured
from tests.test_decisions import US, files, layer
from tests.test_pipeline import small_layer

__all__ = ["layer"]


@pytest.fixture(autouse=True)
def times(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Says which models are the fastest from now on."""

    def are(name: str) -> None:
        monkeypatch.setattr(choice, "measure", measured(US[name]))

    monkeypatch.setattr(rollback, "_OPS_SECONDS", 0.0)
    are("kernels")
    return are


def tuned(model: Path, output: Path, tuning: Path, **options: object) -> Report:
    output.parent.mkdir(exist_ok=True)
    return fusion_cli.optimize(model, output, targets=["cpu"], tuning=tuning, **options)


def _with_producer() -> onnx.ModelProto:
    """The same model in another file."""
    model = small_layer()
    model.producer_name = "x"
    return model


def no_timing(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(*_: object, **__: object) -> None:
        raise AssertionError("timed")

    monkeypatch.setattr(choice, "measure", nothing)
    monkeypatch.setattr("fusion_cli.sessions.process.RemoteRunner.time_against", nothing)


@pytest.mark.parametrize("name", US)
def test_what_was_tuned_is_written_again_and_nothing_is_timed(
    layer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: Callable[[str], None], name: str
) -> None:
    times(name)
    file = tmp_path / "tuning.json"
    first = tuned(layer, tmp_path / "a" / "out.onnx", file, tune=True)
    no_timing(monkeypatch)
    again = tuned(layer, tmp_path / "b" / "out.onnx", file, require_tuned=True)
    assert files(tmp_path / "a" / "out.onnx") == files(tmp_path / "b" / "out.onnx")
    assert first.choice is not None
    assert again.choice is not None
    assert (again.choice.chosen, again.choice.why) == (first.choice.chosen, f"as {file} decided")


def test_what_may_pay_is_measured_with_tune_and_done_again(
    layer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fusion_cli.score.prediction.MARGIN", 0.999)
    monkeypatch.setattr(DeviceProfile, "uncertainty", lambda *_: 100.0)
    plain = fusion_cli.optimize(layer, tmp_path / "plain.onnx", targets=["cpu"])
    assert (plain.fusions, {r.code for r in plain.rejected} >= {DOES_NOT_PAY}) == ((), True)
    file, out = tmp_path / "tuning.json", [tmp_path / name / "out.onnx" for name in "abc"]
    first = tuned(layer, out[0], file, tune=True)
    assert first.fusions
    assert first.tried == ("cpu",)
    assert not [r for r in first.rejected if r.code == DOES_NOT_PAY and set(r.nodes) == set(first.fusions[0].nodes)]
    tuned(layer, out[1], file, require_tuned=True)
    out[2].parent.mkdir()
    fusion_cli.optimize(layer, out[2], targets=["cpu"], decisions=out[0].with_suffix(".fusion") / "report.json")
    assert files(out[0]) == files(out[1]) == files(out[2])


def test_decisions_of_a_run_that_tried_nothing_more_are_done_again_without(
    layer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DeviceProfile, "uncertainty", lambda *_: 100.0)
    out = [tmp_path / name / "out.onnx" for name in "ab"]
    for path in out:
        path.parent.mkdir()
    rules = ["ResidualNorm", "HorizontalLinear"]  # one that pays, and one that does not and may
    first = fusion_cli.optimize(layer, out[0], targets=["cpu"], rules=rules)
    assert {f.rule for f in first.fusions} == {"ResidualNorm"}
    assert "HorizontalLinear" in {r.rule for r in first.rejected if r.code == DOES_NOT_PAY}
    decisions = out[0].with_suffix(".fusion") / "report.json"
    again = fusion_cli.optimize(layer, out[1], targets=["cpu"], rules=rules, decisions=decisions)
    assert files(out[0]) == files(out[1])
    assert (first.tried, again.tried) == ((), ())


def test_what_may_pay_is_given_up_where_it_is_slower(
    layer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: Callable[[str], None]
) -> None:
    monkeypatch.setattr("fusion_cli.score.prediction.MARGIN", 0.999)
    monkeypatch.setattr(DeviceProfile, "uncertainty", lambda *_: 100.0)
    times("original")
    assert tuned(layer, tmp_path / "out.onnx", tmp_path / "tuning.json", tune=True).fusions == ()


def test_what_surely_does_not_pay_is_not_tried(layer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fusion_cli.score.prediction.MARGIN", 0.999)
    monkeypatch.setattr(DeviceProfile, "uncertainty", lambda *_: 0.0)
    assert tuned(layer, tmp_path / "out.onnx", tmp_path / "tuning.json", tune=True).fusions == ()


def test_a_file_collects_models_and_keeps_the_latest_of_each(
    layer: Path, tmp_path: Path, times: Callable[[str], None]
) -> None:
    file, other = tmp_path / "tuning.json", tmp_path / "other.onnx"
    model = small_layer()
    model.graph.name = "another"
    onnx.save(model, other)
    tuned(layer, tmp_path / "a.onnx", file, tune=True)
    tuned(other, tmp_path / "b.onnx", file, tune=True)
    assert {e.model for e in read_tuning(file)} == {"layer.onnx", "other.onnx"}
    assert {e.chosen for e in read_tuning(file)} == {"kernels"}
    times("original")
    tuned(other, tmp_path / "b.onnx", file, tune=True)
    assert {e.model: e.chosen for e in read_tuning(file)} == {"layer.onnx": "kernels", "other.onnx": "original"}
    entry = read_tuning(file)[0]
    assert entry.device
    assert entry.onnxruntime
    assert entry.timed_on == "cpu"
    assert entry.sizes


def test_what_is_missing_is_measured_or_an_error(layer: Path, tmp_path: Path) -> None:
    file = tmp_path / "tuning.json"
    tuned(layer, tmp_path / "a.onnx", file, tune=True)
    with pytest.raises(NotTuned, match="for this model with these options"):
        tuned(layer, tmp_path / "b.onnx", file, require_tuned=True, opt_level=1)
    onnx.save(_with_producer(), layer)
    with pytest.raises(NotTuned, match="for this model"):
        tuned(layer, tmp_path / "b.onnx", file, require_tuned=True)
    assert not (tmp_path / "b.onnx").exists()
    report = tuned(layer, tmp_path / "b.onnx", file)
    assert report.choice is not None
    assert report.choice.measured
    assert len(read_tuning(file)) == 1


def test_what_was_not_measured_is_not_kept(layer: Path, tmp_path: Path) -> None:
    file = tmp_path / "tuning.json"
    report = tuned(layer, tmp_path / "a.onnx", file, tune=True, verify=False)
    assert f"nothing was measured, so that nothing was added to {file}" in report.notes
    assert not file.exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"fusion_cli": "0.0"}, "for it by this version, but by 0.0"),
        ({"options": {"opt_level": 3}}, "for this model with these options"),
    ],
)
def test_entries_of_other_versions_and_options_do_not_count(
    layer: Path, tmp_path: Path, change: dict[str, object], message: str
) -> None:
    file = tmp_path / "tuning.json"
    tuned(layer, tmp_path / "a.onnx", file, tune=True)
    content = json.loads(file.read_text())
    content["entries"][0] |= change
    file.write_text(json.dumps(content))
    with pytest.raises(NotTuned, match=message):
        tuned(layer, tmp_path / "b.onnx", file, require_tuned=True)


def test_devices_that_decide_alike_are_one_and_others_an_error(layer: Path, tmp_path: Path) -> None:
    file = tmp_path / "tuning.json"
    tuned(layer, tmp_path / "a.onnx", file, tune=True)
    content = json.loads(file.read_text())
    content["entries"].append({**content["entries"][0], "device": "another"})
    file.write_text(json.dumps(content))
    assert tuned(layer, tmp_path / "b.onnx", file, require_tuned=True).choice is not None
    content["entries"][1]["chosen"] = "original"
    file.write_text(json.dumps(content))
    with pytest.raises(FusionError, match=r"decides otherwise for each of .*another"):
        tuned(layer, tmp_path / "c.onnx", file)


@pytest.mark.parametrize("text", ["no json", "[]", '{"schema": 0, "entries": []}', '{"schema": 1, "entries": [{}]}'])
def test_what_is_no_tuning_file_is_an_error_and_stays(layer: Path, tmp_path: Path, text: str) -> None:
    file = tmp_path / "tuning.json"
    file.write_text(text)
    for options in ({}, {"tune": True}):
        with pytest.raises(FusionError, match="cannot be read as a tuning file"):
            tuned(layer, tmp_path / "a.onnx", file, **options)
    assert file.read_text() == text
    with pytest.raises(FusionError, match="cannot be read as a tuning file"):
        tuned(layer, tmp_path / "a.onnx", tmp_path / "none.json")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--tune"], "--tune is with --tuning FILE"),
        (["--require-tuned"], "--require-tuned is with --tuning FILE"),
        (["--tuning", "t", "--tune", "--require-tuned"], "contradict each other"),
        (["--tuning", "t", "--decisions", "r"], "--decisions is an alternative to --tuning"),
        (["--tuning", "t", "--tune", "--no-verify"], "--no-verify is without --tune"),
        (["--tuning", "t", "--tune", "--dry-run"], "--dry-run is without --tune"),
    ],
)
def test_options_that_contradict_each_other(layer: Path, options: list[str], message: str) -> None:
    result = CliRunner().invoke(main, ["optimize", str(layer), "-o", "out.onnx", *options])
    assert result.exit_code == 2
    assert message in result.output


def test_a_miss_has_its_own_exit_code(layer: Path, tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text('{"schema": 1, "entries": []}')
    arguments = ["optimize", str(layer), "-o", str(tmp_path / "out.onnx"), "--target", "cpu", "--tuning"]
    result = CliRunner().invoke(main, [*arguments, str(tmp_path / "t.json"), "--require-tuned"])
    assert result.exit_code == NotTuned.exit_code == 6
    assert "add it with --tune" in result.output


def test_other_profiles_than_it_was_decided_with_are_an_error(
    layer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "tuning.json"
    report = tuned(layer, tmp_path / "a.onnx", file, tune=True)
    assert report.profiles == {"cpu": ""}
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    assert CliRunner().invoke(main, ["devices", "add", "cpu"]).exit_code == 0
    with pytest.raises(FusionError, match="decided with the profile 'of fusion-cli' for cpu, here is 'cpu "):
        tuned(layer, tmp_path / "b.onnx", file)
    with pytest.raises(FusionError, match="decided with the profile"):
        fusion_cli.optimize(layer, tmp_path / "b.onnx", decisions=tmp_path / "a.fusion" / "report.json")


def _alone(us: float, rule: str) -> Callable[[str, frozenset[str]], float]:
    """What the model takes with the kernels of one rule alone, where it takes 90 us without and 50 with others."""
    return lambda model, rules: {"original": 100, "simplified": 90}.get(model, us if rules == {rule} else 50)


@pytest.mark.parametrize(("us", "tune", "is_kept"), [(90, False, False), (90, True, True), (95, True, False)])
def test_a_small_gain_that_is_predicted_is_kept_with_tune_unless_it_is_a_loss(
    layer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, us: float, tune: bool, is_kept: bool
) -> None:
    everything = {f.rule for f in fusion_cli.optimize(layer, tmp_path / "all.onnx", targets=["cpu"]).fusions}
    assert len(everything) > 1
    small = min(everything)
    monkeypatch.setattr(choice, "measure", measured(_alone(us, small)))
    asked = {"tuning": tmp_path / "tuning.json", "tune": True} if tune else {"remeasure": True}
    report = fusion_cli.optimize(layer, tmp_path / "out.onnx", targets=["cpu"], **asked)
    assert {f.rule for f in report.fusions} == (everything if is_kept else everything - {small})
    if not is_kept:
        (told,) = {(r.expected, r.found) for r in report.rejected if r.stage == "verify"}
        ending = ", or as fast" if tune else ""
        expected = f"the simplified model to be faster with the kernels of {small}{ending}"
        assert told == (expected, f"{90 / us:.2f}x ({90 / us:.2f} to {90 / us:.2f})")


@pytest.mark.parametrize(("us", "is_kept"), [(40, True), (50, False)])
def test_what_may_pay_is_timed_beside_what_is_predicted_to(
    layer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, us: float, is_kept: bool
) -> None:
    """By itself it is twice as fast as the nodes; what counts is the model that has the other kernels."""
    monkeypatch.setattr(DeviceProfile, "uncertainty", lambda *_: 100.0)
    rules = ["ResidualNorm", "HorizontalLinear"]  # one that pays, and one that does not and may

    def took(model: str, found: frozenset[str]) -> float:
        return {"original": 100.0, "simplified": 90.0}.get(model, us if found == set(rules) else 50.0)

    monkeypatch.setattr(choice, "measure", measured(took))
    report = tuned(layer, tmp_path / "out.onnx", tmp_path / "tuning.json", tune=True, rules=rules)
    assert {f.rule for f in report.fusions} == (set(rules) if is_kept else {"ResidualNorm"})
    told = [r.expected for r in report.rejected if r.stage == "verify"]
    assert told == ([] if is_kept else ["the model to be faster with it"])
