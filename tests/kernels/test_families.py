"""Every kernel family answers what the score, emit and the report ask of it."""

from __future__ import annotations

import pytest

from fusion_cli.kernels import FAMILIES, Kind, family_of, kind_of
from fusion_cli.kernels.rowwise import RowwiseFamily
from fusion_cli.planir.stages import Rowwise
from tests.helpers.cuda_case import Case
from tests.helpers.cuda_plans import all_cases
from tests.helpers.cuda_row_plans import columns, looked_up
from tests.helpers.sized_stages import sized_stages


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
@pytest.mark.parametrize("case", all_cases(), ids=lambda c: c.name)
def test_a_family_costs_and_schedules_each_stage(case: Case, kind: Kind) -> None:
    plan = case.plan
    for sized in sized_stages(plan, case.sizes[0], kind):
        stage = sized.stage
        family = family_of(plan, stage, kind)
        works = family.work(sized)
        assert works
        assert all(w.time_us(sized.profile) >= 0 for w in works)
        schedules = family.schedules(plan, stage, kind)
        assert len({s.variant for s in schedules}) + len({s.settings for s in schedules}) > len(schedules)
        assert all(s.when for s in schedules)


def test_families_are_told_apart_by_name() -> None:
    assert len({f.name for f in FAMILIES}) == len(FAMILIES)


def test_rows_that_are_columns_in_memory_are_read_as_they_lie() -> None:
    for perm, name in (((0, 2, 1), "columns"), ((1, 0, 2), "rowwise"), ((2, 0, 1), "rowwise")):
        plan = columns("float16", "mean", perm).plan
        assert family_of(plan, plan.stages[0], "cuda").name == name


def test_targets_without_kernels_have_no_kind() -> None:
    assert [kind_of(t) for t in ("portable", "cpu", "amx", "sm_80", "sm_90a")] == [None, "cpu", "cpu", "cuda", "cuda"]


def test_numbers_of_rows_are_read_once_a_row_and_leave_vectors_as_they_are() -> None:
    plan = looked_up("float16").plan
    (stage,) = plan.stages
    assert isinstance(stage, Rowwise)
    view = RowwiseFamily().cuda(plan, stage, 0)
    assert view.width == 8
    assert [view.loads[n].operand for n in view.vectors] == [0, 1]


def test_of_a_table_the_rows_that_are_read_count() -> None:
    case = looked_up("float16")
    (sized,) = sized_stages(case.plan, {"b": 1, "s": 3, "d": 64}, "cuda")
    (work,) = family_of(case.plan, sized.stage, "cuda").work(sized)
    assert work.bytes == 4 * 3 * 64 * 2 + 3 * (8 + 4)  # two tables, two results, and the numbers
