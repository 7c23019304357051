"""By how much predicted gains may be off, and what is said of those that are within it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from fusion_cli.costs import Score, Terms
from fusion_cli.devices.work import Work
from fusion_cli.report.outcome import predicted
from fusion_cli.score import load_profile
from fusion_cli.score.uncertainty import uncertainty_us
from fusion_cli.types import Target
from tests.helpers.made_up_reports import full_report

H200 = replace(load_profile(Target("sm_90a", "cuda", "sm_90a")), error={"default": 0.5, "Linear": 0.1, "Rowwise": 0.2})
PRODUCT, ROWS, ADD = (
    Work("MatMul", 1e6, 1e11, "float16"),
    Work("Rowwise", 1e9, simple=1e6),
    Work("Add", 1e9, simple=1e6),
)


def test_kinds_are_independent_and_each_is_off_on_both_sides() -> None:
    rows, add = ROWS.time_us(H200), ADD.time_us(H200)
    assert uncertainty_us([ADD], [], H200) == pytest.approx(0.5 * add)
    assert uncertainty_us([ADD, ADD], [ADD], H200) == pytest.approx(0.5 * add)
    assert uncertainty_us([ADD], [ROWS], H200) == pytest.approx(math.hypot(0.5 * add, 0.2 * rows))
    # The same product of the vendor's takes as long in a node as in an operator, however long that is.
    longer = replace(PRODUCT, name="Linear", flops=2e11)
    off = 0.1 * (longer.time_us(H200) - PRODUCT.time_us(H200))
    assert uncertainty_us([PRODUCT], [longer], H200) == pytest.approx(off)


def test_a_profile_without_errors_is_certain() -> None:
    assert uncertainty_us([ADD], [], replace(H200, error={})) == 0


@pytest.mark.parametrize(("off", "certain"), [(5.9, True), (6.1, False)])
def test_a_gain_is_certain_if_it_is_more_than_predictions_are_off(off: float, certain: bool) -> None:
    for before, after in ((10.0, 4.0), (4.0, 10.0)):
        score = Score("cpu", Terms(before), Terms(after), 0, 0, 1, 1, uncertainty_us=off)
        assert score.is_certain == certain


def test_what_is_uncertain_and_was_not_measured_is_told() -> None:
    report = full_report()
    unsure = Score("cpu", Terms(10.0), Terms(9.0), 0, 0, 1, 1, uncertainty_us=5.0)
    fusions = tuple(replace(f, targets=("cpu",), predicted={"cpu": unsure}, measured=()) for f in report.fusions)
    told = dict(predicted(replace(report, fusions=fusions, choice=None)))
    assert told["not certain"].startswith(f"{len(fusions)} fusion")
    sure = tuple(replace(f, predicted={"cpu": replace(unsure, uncertainty_us=0.5)}) for f in fusions)
    assert "not certain" not in dict(predicted(replace(report, fusions=sure, choice=None)))
    assert report.choice is not None
    assert "not certain" not in dict(predicted(replace(report, fusions=fusions)))
