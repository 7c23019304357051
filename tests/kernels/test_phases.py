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
from fusion_cli.kernels.phases import holding, phases_of
from fusion_cli.planir.stages import Instr, Linear, Plan, Pointwise, Rowwise, Store
from fusion_cli.types import Target
from tests.helpers.cuda_attention_plans import bare
from tests.helpers.cuda_case import Case, merged
from tests.helpers.cuda_host_library import CLUSTERS, host_program, output_of
from tests.helpers.cuda_layer_plans import layer, rotated
from tests.helpers.cuda_product_plans import abreast, gated, linear, products
from tests.helpers.cuda_row_plans import columns, transpose
from tests.helpers.plan_builder import Builder, Program, fused_op, operands
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
    found = subprocess.run([program], capture_output=True, text=True, check=False, timeout=120)
    assert (found.returncode, found.stdout, found.stderr) == (0, "0\n", "")


@pytest.fixture(scope="module")
def streams_alone(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., bool]:
    """Whether an H200 would have one product in it, of so many rows, columns and so deep."""
    program = host_program("few_choice.cc", tmp_path_factory.mktemp("choice"), f"-I{CLUSTERS}")
    return lambda *sizes: output_of(program, *map(str, sizes)) == "1"


# What was faster on an H200: this kernel, or the one of few rows, or the vendor's with a pass.
@pytest.mark.parametrize(
    ("rows", "columns", "depth", "expected"),
    [
        pytest.param(1, 16384, 4096, False, id="a strip for nearly every block"),
        pytest.param(8, 16384, 4096, False, id="eight rows of it"),
        pytest.param(1, 4096, 4096, False, id="narrow strips for nearly every block"),
        pytest.param(2, 18944, 3584, True, id="a second turn of few strips"),
        pytest.param(1, 12288, 4096, True, id="three quarters of the blocks"),
        pytest.param(1, 8192, 4096, True, id="strips that blocks share"),
        pytest.param(1, 4096, 16384, True, id="deep strips that blocks share"),
        pytest.param(9, 18944, 3584, False, id="more rows than that kernel takes"),
        pytest.param(16, 16384, 4096, False, id="sixteen rows"),
    ],
)
def test_where_a_product_by_itself_goes_through_it(
    streams_alone: Callable[..., bool], rows: int, columns: int, depth: int, expected: bool
) -> None:
    assert streams_alone(rows, columns, depth) == expected


def test_only_one_product_asks_where_it_is_faster() -> None:
    assert "streams_alone" in text_of(linear("float16").plan)
    assert "streams_alone" not in text_of(gated("float16").plan)
    assert "streams_alone" not in text_of(abreast("float16").plan)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_layer_is_one_run(dtype: str) -> None:
    plan = layer(dtype).plan
    after = ["products", "rows", "products", "products"]
    assert kinds(plan) == [after, ["attention", *after]]
    alone, whole = phases_of(plan)
    assert holding(plan, 3) == [alone, whole]
    assert holding(plan, 0) == [whole]


def test_a_layer_with_what_leads_to_its_attention_is_one_run() -> None:
    before, after = ["products"] * 3, ["products", "rows", *["products"] * 3]
    whole = merged("whole", [abreast("float16"), layer("float16")]).plan
    assert kinds(whole) == [before, after, [*before, "attention", *after]]
    apart = merged("apart", [abreast("float16"), transpose("float16"), layer("float16")]).plan
    assert [*before, "attention", *after] not in kinds(apart)
    mixed = merged("mixed", [abreast("bfloat16"), layer("float16")]).plan
    assert kinds(mixed) == [before, after, ["attention", *after]]


def test_what_it_is_not_for() -> None:
    assert not kinds(layer("float32").plan)
    assert not kinds(linear("float16", trans_b=True).plan)
    assert not kinds(sized(gated("float16").plan, s=17, b=1))
    assert not kinds(sized(gated("float16").plan, k=64, n=64))
    assert kinds(sized(layer("float16").plan, n=1004)) == [["products", "products"]]  # rows are not of eights
    assert len(kinds(sized(layer("float16").plan, t=65))) == 1  # without the attention


def passes(plan: Plan) -> list[tuple[int, ...]]:
    """What is computed element by element before an attention, in phases."""
    return [phase.stages for run in phases_of(plan) for phase in run if phase.kind == "elements"]


def test_passes_before_an_attention_are_a_phase_if_none_writes_where_another_reads() -> None:
    assert passes(rotated("float16").plan) == [(0, 1)]
    assert passes(rotated("float16", kept=True).plan) == [(0,), (1,), (2,)]


def test_tiled_copies_before_an_attention_are_launches_of_their_own() -> None:
    turned = merged("turned", [transpose("float16"), rotated("float16")]).plan
    assert passes(turned) == [(3,), (4,)]


def test_attention_of_another_type_is_a_launch_of_its_own() -> None:
    mixed = merged("mixed", [bare("bfloat16"), linear("float16")]).plan
    assert kinds(mixed) == [["products"]]


def test_a_right_operand_that_the_operator_makes_is_read_when_it_is_there() -> None:
    b = Builder()
    x, w = b.input("float16", "m", "k"), b.input("float16", "k", "n")
    made = b.temp("float16", ("k", "n"), b.dims(w))
    p = Program("float16")
    value = p("Relu", p.load(0))
    b.stages.append(Pointwise(operands(w), p.done(), (Store(made, value),), b.dims(w)))
    dims = b.op("matmul", b.dims(x), b.dims(made))
    out = b.output("float16", ("m", "n"), dims)
    b.stages.append(Linear(operands(x, made), (Instr("acc", (), "float16"),), (Store(out, 0),), dims))
    assert not kinds(b.plan())


def sums(dtype: str, length: int, keep: bool) -> Case:
    """Of sixteen rows; with `keep` what remains of each element besides."""
    b = Builder()
    x = b.input(dtype, 16, length)
    p = Program(dtype)
    value = p("Sub", p.load(0), p("reduce_sum", p.load(0))) if keep else p("reduce_sum", p.load(0))
    dims = b.dims(x) if keep else b.op("reduce", b.dims(x), ints=(0, -1))
    out = b.output(dtype, (16, length) if keep else (16,), dims)
    b.stages.append(Rowwise(operands(x), p.done(), (Store(out, value),), b.dims(x)))
    return Case(f"sums_{dtype}_{length}", b.plan(), ({},))


@pytest.mark.parametrize(
    ("dtype", "length", "keep", "kept"),
    [
        ("float16", 16, False, True),
        ("float16", 15, False, False),
        ("float16", 20000, False, False),
        ("float32", 8192, True, True),
        ("float32", 8200, True, False),
        ("int64", 8192, True, False),
    ],
)
def test_rows_are_a_phase_if_a_warpgroup_keeps_them(dtype: str, length: int, keep: bool, kept: bool) -> None:
    plan = merged("rows", [sums(dtype, length, keep), linear("float16")]).plan
    assert kinds(plan) == [["rows", "products"] if kept else ["products"]]


def test_columns_are_no_phase() -> None:
    plan = merged("pooled", [columns("float16", "mean"), linear("float16")]).plan
    assert kinds(plan) == [["products"]]


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
def test_it_compiles(tmp_path: Path) -> None:
    """Every kind of phase, and either type."""
    ops = [fused_op(case.name.title(), case.plan) for case in (layer("float16"), rotated("bfloat16", kept=True))]
    sources = [*(emit(op, SM_90A) for op in ops), emit_registration(SM_90A, ops)]
    assert build(sources, SM_90A, tmp_path, jobs=2, cache_dir=tmp_path / "cache").path.is_file()
