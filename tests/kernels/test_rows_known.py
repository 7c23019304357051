"""What is compiled for products whose rows are known before they run: no kernel that so many rows never have."""

from __future__ import annotations

import pytest

from fusion_cli.emit import emit
from fusion_cli.kernels import family_of
from fusion_cli.planir.stages import Plan
from fusion_cli.types import Target
from tests.helpers.cuda_case import Case, fused_op
from tests.helpers.cuda_product_plans import abreast, adding, gated, knowing, linear

SM_90A = Target("sm_90a", "cuda", "sm_90a")
OPEN = linear("float16")


def compiled(case: Case) -> set[str]:
    """The kernels of few and of many rows that the source has, by their names."""
    text = emit(fused_op(case), SM_90A).text
    return {
        name
        for name in ("stage_0_skinny", "stage_0_wide_kernel", "group_0_skinny", "group_0_wide_kernel")
        if name in text
    }


def said(plan: Plan) -> set[str]:
    stage = plan.stages[0]
    return {s.variant for s in family_of(plan, stage, "cuda").schedules(plan, stage, "cuda")}


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        pytest.param(OPEN, {"stage_0_skinny", "stage_0_wide_kernel"}, id="unknown"),
        pytest.param(knowing(OPEN, n=64), {"stage_0_skinny", "stage_0_wide_kernel"}, id="of unknown rows"),
        pytest.param(knowing(OPEN, m=8), {"stage_0_skinny"}, id="few"),
        pytest.param(knowing(OPEN, m=9), set(), id="neither few nor many"),
        pytest.param(knowing(OPEN, m=63), set(), id="not quite many"),
        pytest.param(knowing(OPEN, m=64), {"stage_0_wide_kernel"}, id="many"),
        pytest.param(knowing(linear("float32"), m=2), {"stage_0_skinny"}, id="few of float32"),
        pytest.param(knowing(linear("float32"), m=3), set(), id="more of float32"),
    ],
)
def test_a_product_has_the_kernels_of_its_rows(case: Case, expected: set[str]) -> None:
    assert compiled(case) == expected
    assert ("skinny" in said(case.plan)) == ("stage_0_skinny" in expected)
    assert ("warpgroups" in said(case.plan)) == ("stage_0_wide_kernel" in expected)


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        pytest.param(OPEN, "stage_0_tiles = gpu::WideTiles<1>", id="unknown"),
        pytest.param(knowing(OPEN, m=70, k=64), "stage_0_tiles = gpu::WideTiles<1>", id="of unknown columns"),
        pytest.param(knowing(OPEN, m=2**28, n=64, k=64), "stage_0_tiles = gpu::WideTiles<1>", id="too many"),
        pytest.param(
            knowing(adding("float16", "br"), b=2**14, s=2**14, n=64, k=64),
            "stage_0_tiles = gpu::TriedTiles",
            id="too many in all",
        ),
        pytest.param(
            knowing(OPEN, m=70, n=192, k=64),
            "stage_0_tiles = gpu::FastestTiles<gpu::WideTiles<1>, false, 70, 64, 192>",
            id="known",
        ),
        pytest.param(
            knowing(adding("float16", "br"), b=2, s=35, k=520, n=136),
            "stage_0_tiles = gpu::FastestTiles<gpu::TriedTiles, false, 70, 520, 136>",
            id="by trial",
        ),
        pytest.param(
            knowing(gated("float16"), b=2, s=50, k=104, n=200),
            "group_0_tiles = gpu::FastestTiles<gpu::WideTiles<2>, false, 100, 104, 200>",
            id="gate and up",
        ),
        pytest.param(
            knowing(abreast("float16"), b=2, s=50, k=104, n=200, m=72),
            "group_0_tiles = gpu::FastestTiles<gpu::WideTiles<1>, false, 100, 104, 200, 72, 72>",
            id="abreast",
        ),
        pytest.param(
            knowing(linear("float32"), m=128, n=192, k=64),
            "stage_0_turned_tiles = gpu::FastestTiles<gpu::FloatTiles<1>, true, 128, 128, 192>",
            id="a float is two of the depth",
        ),
        pytest.param(linear("float32"), "stage_0_tf32_tiles = gpu::Tf32Tiles", id="unknown in TF32"),
        pytest.param(
            knowing(linear("float32"), m=128, n=192, k=64),
            "stage_0_tf32_tiles = gpu::FastestTf32Tiles<gpu::Tf32Tiles, false, 128, 64, 192>",
            id="known in TF32",
        ),
        pytest.param(
            knowing(linear("float32", trans_b=True), m=128, n=192, k=64),
            "stage_0_tf32_tiles = gpu::FastestTf32Tiles<gpu::Tf32Tiles, true, 128, 64, 192>",
            id="turned in TF32",
        ),
    ],
)
def test_where_all_sizes_are_known_few_tiles_are_compiled(case: Case, expected: str) -> None:
    assert f"using {expected};" in emit(fused_op(case), SM_90A).text


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (16, {"group_0_skinny", "stage_0_wide_kernel"}),  # what adds a bias is tried from few rows on
        (17, {"stage_0_wide_kernel"}),
        (64, {"group_0_wide_kernel", "stage_0_wide_kernel"}),
    ],
)
def test_products_of_one_left_operand_have_the_kernels_of_their_rows(rows: int, expected: set[str]) -> None:
    case = knowing(abreast("float16"), b=1, s=rows)
    assert compiled(case) == expected
    assert ("skinny" in said(case.plan)) == (rows == 16)


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        pytest.param(knowing(adding("float16", "br"), b=1, s=20, n=40), {"stage_0_wide_kernel"}, id="more than few"),
        pytest.param(knowing(adding("float16", "br"), b=1, s=8, n=40), {"stage_0_skinny"}, id="always few"),
        pytest.param(
            knowing(adding("float16", "br"), b=1, s=8), {"stage_0_skinny", "stage_0_wide_kernel"}, id="of any width"
        ),
        pytest.param(
            knowing(adding("float16", "br"), b=1, s=8, n=44),
            {"stage_0_skinny", "stage_0_wide_kernel"},
            id="no whole vectors",
        ),
        pytest.param(
            knowing(adding("float16", "br", trans_b=True), b=1, s=8, n=40, k=24),
            {"stage_0_skinny", "stage_0_wide_kernel"},
            id="turned",
        ),
    ],
)
def test_what_a_trial_chooses_is_compiled_unless_there_is_one_kernel_for_all(case: Case, expected: set[str]) -> None:
    assert compiled(case) == expected
