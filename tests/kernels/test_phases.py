"""Hopper's kernel that goes from one product of few rows to the next: its parts on the host, and when it is there."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fusion_cli.build import build, find_compiler
from fusion_cli.emit import emit, emit_registration
from fusion_cli.kernels import family_of
from fusion_cli.kernels.phases import holding, phases_of, with_attention
from fusion_cli.planir.stages import Plan
from fusion_cli.types import Target
from tests.helpers.cuda_host_library import host_program
from tests.helpers.cuda_layer_plans import layer
from tests.helpers.cuda_product_plans import abreast, gated, linear, products
from tests.helpers.plan_builder import fused_op
from tests.helpers.sized_stages import sized_stages

SM_90A, SM_80 = Target("sm_90a", "cuda", "sm_90a"), Target("sm_80", "cuda", "sm_80")


def text_of(plan: Plan, target: Target = SM_90A) -> str:
    return emit(fused_op("Products", plan), target).text


def sized(plan: Plan, **sizes: int) -> Plan:
    """The plan with numbers for some of its symbols."""
    known: Callable[[int | str], int | str] = lambda d: sizes.get(d, d) if isinstance(d, str) else d  # noqa: E731
    return replace(plan, tensors=tuple(replace(t, shape=tuple(map(known, t.shape))) for t in plan.tensors))


def kinds(plan: Plan) -> list[list[str]]:
    return [[phase.kind for phase in run] for run in phases_of(plan)]


def test_results_are_right_whichever_blocks_share_them(tmp_path: Path) -> None:
    """Blocks run at once; several kernels, of one phase to five, three launches each on the same memory."""
    program = host_program("phases.cc", tmp_path)
    found = subprocess.run([program], capture_output=True, text=True, check=False, timeout=300)
    assert (found.returncode, found.stdout, found.stderr) == (0, "0\n", "")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_layer_is_one_run(dtype: str) -> None:
    plan = layer(dtype).plan
    assert kinds(plan) == [["products", "rows", "products", "products"]]
    run = next(phases_of(plan))
    assert [phase.kind for phase in with_attention(plan, run)] == ["attention", *(phase.kind for phase in run)]
    assert holding(plan, 3) == run
    assert not holding(plan, 0)


def test_what_it_is_not_for() -> None:
    assert not kinds(layer("float32").plan)
    assert not kinds(linear("float16", trans_b=True).plan)
    assert not kinds(sized(gated("float16").plan, s=17, b=1))
    assert not kinds(sized(gated("float16").plan, k=64, n=64))
    assert kinds(sized(layer("float16").plan, n=1004)) == [["products", "products"]]  # rows are not of eights
    many_keys = sized(layer("float16").plan, t=65)
    assert not with_attention(many_keys, next(phases_of(many_keys)))


def test_one_launch_needs_fewer_weights_than_several() -> None:
    assert kinds(sized(abreast("float16").plan, k=3584, n=3584, m=512))
    assert not kinds(sized(layer("float16").plan, n=2048, m=5504))
    assert kinds(sized(layer("float16").plan, n=3584, m=18944))


def test_products_of_one_left_operand_are_one_phase_if_they_are_alike() -> None:
    assert not kinds(products("float16").plan)
    assert [len(phase.stages) for run in phases_of(gated("float16").plan) for phase in run] == [2]


def test_the_kernel_stands_before_those_that_it_stands_for() -> None:
    plan = layer("float16").plan
    text = text_of(plan)
    whole, short, alone = (
        text.index(f"{name}(device, stream, ") for name in ("if (!phases_1", "if (!phases_0", " stage_1")
    )
    assert whole < short < alone
    assert "constant_1 && constant_3 && constant_4 && constant_5" in text
    assert "gpu::launch_at_once(phases_0_kernel<kRows>" in text
    assert "phases_" not in text_of(plan, SM_80)


def test_products_are_predicted_by_its_times_where_weights_are_large() -> None:
    plan = gated("float16").plan
    for n, arch, name in ((18944, "sm_90a", "LinearPhase"), (1024, "sm_90a", "Linear"), (18944, "sm_80", "Linear")):
        for at in sized_stages(plan, {"b": 1, "s": 1, "k": 3584, "n": n}, "cuda"):
            at = replace(at, profile=replace(at.profile, arch=arch))
            assert [w.name for w in family_of(plan, at.stage, "cuda").work(at)] == [name]


@pytest.mark.skipif(find_compiler(SM_90A) is None, reason="nvcc is not installed")
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_it_compiles(dtype: str, tmp_path: Path) -> None:
    op = fused_op("Layer", layer(dtype).plan)
    sources = [emit(op, SM_90A), emit_registration(SM_90A, [op])]
    assert build(sources, SM_90A, tmp_path, jobs=2, cache_dir=tmp_path / "cache").path.is_file()
