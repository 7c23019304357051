"""Hopper's kernel for products of few rows on the host: shares of blocks, copies, products, sums and epilogues."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

from fusion_cli.emit import emit
from fusion_cli.kernels import family_of
from fusion_cli.kernels.skinny_stream import streams
from fusion_cli.planir.stages import Plan
from fusion_cli.types import Target
from tests.helpers.cuda_host_library import host_program
from tests.helpers.cuda_product_plans import gated, products
from tests.helpers.plan_builder import fused_op
from tests.helpers.sized_stages import sized_stages

SM_90A = Target("sm_90a", "cuda", "sm_90a")


def text_of(plan: Plan) -> str:
    return emit(fused_op("Products", plan), SM_90A).text


def variants(plan: Plan) -> list[set[str]]:
    return [{s.variant for s in family_of(plan, x, "cuda").schedules(plan, x, "cuda")} for x in plan.stages]


def test_every_result_is_summed_over_all_blocks_that_share_it(tmp_path: Path) -> None:
    program = host_program("stream_product.cc", tmp_path)
    assert subprocess.run([program], capture_output=True, text=True, check=True, timeout=300).stdout == "0\n"


def test_it_is_compiled_in_for_16_bits_and_knows_which_weights_are_constants() -> None:
    plan = products("float16").plan
    assert all("skinny stream" in names for names in variants(plan))
    assert not any("skinny stream" in names for names in variants(products("float32").plan))
    assert "stage_0_stream_launch(device, stream, parts, done, early, x)" in text_of(plan)
    assert "constant_0(fusion::is_constant(api, info, 2))" in text_of(plan)


def test_chains_of_one_launch_are_equally_long() -> None:
    assert "group_0_stream" not in text_of(products("float16").plan)
    even = text_of(gated("float16").plan)
    assert "group_0_stream_launch(device, stream, parts, done, early, x0, x1)" in even
    assert "constant_0 && constant_1" in even


def test_large_right_operands_are_predicted_by_its_times() -> None:
    """Gate and up count together, each of which would be too small; and not on other GPUs."""
    plan = gated("float16").plan
    for n, arch, name in ((18944, "sm_90a", "LinearStream"), (5504, "sm_90a", "Linear"), (18944, "sm_80", "Linear")):
        for at in sized_stages(plan, {"b": 1, "s": 1, "k": 3584, "n": n}, "cuda"):
            at = replace(at, profile=replace(at.profile, arch=arch))
            assert [w.name for w in family_of(plan, at.stage, "cuda").work(at)] == [name]


def test_it_is_not_compiled_in_where_weights_are_known_to_be_small() -> None:
    plan = gated("float16").plan
    tensors = tuple(replace(t, shape=tuple(64 if d in ("k", "n") else d for d in t.shape)) for t in plan.tensors)
    assert streams(plan, (0, 1))
    assert not streams(replace(plan, tensors=tensors), (0, 1))
    assert not streams(gated("float16", trans_b=True).plan, (0, 1))
