"""Guards: the sizes at which a fusion runs, and that the score turns just there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import onnx
import pytest

import fusion_cli
from fusion_cli.analyse import analyse
from fusion_cli.clock import Clock
from fusion_cli.costs import Guard, Score, Terms
from fusion_cli.devices.known import load_profile
from fusion_cli.report import Fusion, Report
from fusion_cli.score import Baseline, guards
from fusion_cli.targets import resolve_targets
from fusion_cli.types import Options
from tests.helpers.crossing_models import DECODER, ENCODER, NARROW, write


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("decoder") / "model.onnx", DECODER)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("encoder") / "model.onnx", ENCODER)


def fusion(report: Report, rule: str) -> Fusion | None:
    return next((f for f in report.fusions if f.rule == rule), None)


def guard(model: Path, rule: str, targets: str | list[str] = "cpu", **options: object) -> Guard | None:
    found = fusion(fusion_cli.optimize(model, targets=targets, **options), rule)
    assert found is not None
    return found.predicted[found.targets[0]].guard


def is_taken(model: Path, rule: str, **sizes: int) -> bool:
    return fusion(fusion_cli.optimize(model, targets="cpu", dims=sizes), rule) is not None


def test_what_pays_for_one_row_is_guarded_by_the_product_of_all_that_rows_are_made_of(decoder: Path) -> None:
    found = guard(decoder, "HorizontalLinear")
    assert found == Guard(("batch", "sequence"), "x", (0, 1), 1, is_from=False)
    assert is_taken(decoder, "HorizontalLinear", batch=1, sequence=1)
    assert not is_taken(decoder, "HorizontalLinear", batch=1, sequence=2)
    assert not is_taken(decoder, "HorizontalLinear", batch=2, sequence=1)


def test_what_pays_for_many_rows_is_guarded_from_the_size_on_at_which_it_does(encoder: Path) -> None:
    found = guard(encoder, "LayerNormLinear")
    assert found is not None
    assert (found.dims, found.is_from) == (("seq",), True)
    assert 1 < found.limit < 128
    assert is_taken(encoder, "LayerNormLinear", seq=found.limit)
    assert not is_taken(encoder, "LayerNormLinear", seq=found.limit - 1)


def test_it_holds_at_its_limit_and_on_one_side_of_it() -> None:
    least = Guard(("batch", "seq"), "x", (0, 1), 37, is_from=True)
    most = replace(least, is_from=False)
    assert [least.holds((2, n, 5)) for n in (18, 19)] == [False, True]
    assert [most.holds((1, n, 5)) for n in (36, 37, 38)] == [True, True, False]
    assert str(least) == "from batch*seq=37 on; below it"
    assert str(most) == "up to batch*seq=37; beyond it"


def test_sizes_that_are_told_are_believed(decoder: Path) -> None:
    assert guard(decoder, "HorizontalLinear", dims={"batch": 1, "sequence": 1}) is None
    told = guard(decoder, "HorizontalLinear", dims={"batch": 1})
    assert told is not None
    assert told.dims == ("sequence",)


@pytest.mark.parametrize("targets", [["sm_90a"], ["cpu", "sm_90a"], ["portable"]])
def test_there_is_no_control_flow_for_gpus_and_for_several_targets(encoder: Path, targets: list[str]) -> None:
    assert guard(encoder, "LayerNormLinear", targets) is None


def test_what_is_forced_runs_at_all_sizes(encoder: Path) -> None:
    assert guard(encoder, "LayerNormLinear", force=True) is None


def test_an_if_that_costs_more_than_is_lost_is_left_out(encoder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = fusion(fusion_cli.optimize(encoder, targets="cpu"), "LayerNormLinear")
    assert found is not None
    profile = load_profile(resolve_targets(["cpu"])[0])
    dear = replace(profile, if_us=found.predicted["cpu"].gain_us + profile.if_us)
    monkeypatch.setattr("fusion_cli.analyse.load_profile", lambda target: dear)
    assert guard(encoder, "LayerNormLinear") is None


@pytest.mark.parametrize(
    ("after", "uncertainty", "expected"),
    [
        (lambda rows: 50 if rows <= 40 else 900, 1, "up to batch*sequence=40; beyond it"),
        (lambda rows: 50 if rows >= 5 else 900, 1, "from batch*sequence=5 on; below it"),
        (lambda rows: 50 if 5 <= rows <= 40 else 900, 1, None),
        (lambda rows: 50, 1, None),
        (lambda rows: 50 if rows <= 40 else 101, 0, None),
        (lambda rows: 50 if rows <= 40 else 900, 60, None),
        (lambda rows: 97 if rows <= 40 else 900, 0, None),
        (lambda rows: 160 if rows == 32 else 50, 1, None),
    ],
    ids=["above", "below", "both sides", "neither", "an If takes more", "uncertain", "not with an If", "more is won"],
)
def test_one_size_is_compared_where_much_is_lost_beyond_it_and_surely_won_before(
    decoder: Path,
    monkeypatch: pytest.MonkeyPatch,
    after: Callable[[int], float],
    uncertainty: float,
    expected: str | None,
) -> None:
    assert decided(decoder, monkeypatch, after, uncertainty, batch=1, sequence=16) == expected


def test_the_sizes_that_are_assumed_of_other_dimensions_are_part_of_the_product(
    decoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = decided(decoder, monkeypatch, lambda rows: 50 if rows <= 40 else 900, 1, batch=4, sequence=8)
    assert found == "up to batch*sequence=40; beyond it"


def decided(
    decoder: Path, monkeypatch: pytest.MonkeyPatch, after: Callable[[int], float], uncertainty: float, **assumed: int
) -> str | None:
    """The guard of what takes so long by its rows; its nodes take 100 us, and both a little more with each row."""

    def score(sizes: Mapping[str, int]) -> Score:
        rows = sizes["batch"] * sizes["sequence"]
        before, took = Terms(100 + rows / 1e3), Terms(after(rows) + rows / 1e3)
        return Score("cpu", before, took, 0, 0, 1, 1, uncertainty_us=uncertainty)

    monkeypatch.setattr(guards, "score_region", lambda region, plan, baseline, sizes, force: score(sizes[0]))
    options = Options(targets=("cpu",))
    found = analyse(decoder, options, Clock(options))
    candidate = next(c for c in found.chosen if c.region.rule == "HorizontalLinear")
    baseline = Baseline(found.model.graph, load_profile(found.targets[0]))
    taken = replace(candidate, scores={"cpu": score(assumed)})
    guard = guards.Guards(found.model.graph, assumed, assumed, baseline).guarded(taken).scores["cpu"].guard
    return None if guard is None else str(guard)


@pytest.mark.parametrize(("opset", "is_guarded"), [(8, False), (9, True)])
def test_there_is_none_where_integers_are_not_compared(tmp_path: Path, opset: int, is_guarded: bool) -> None:
    model = onnx.load(write(tmp_path / "model.onnx", DECODER))
    model.opset_import[0].version = opset
    onnx.save(model, tmp_path / "model.onnx")
    assert (guard(tmp_path / "model.onnx", "HorizontalLinear") is not None) == is_guarded


def test_an_if_that_would_be_noticed_is_not_written(tmp_path: Path) -> None:
    assert guard(write(tmp_path / "model.onnx", NARROW), "LayerNormLinear") is None
