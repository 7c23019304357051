"""Attention as its kernels see it."""

from __future__ import annotations

import re
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from fusion_cli.devices.profile import DeviceProfile
from fusion_cli.emit import emit
from fusion_cli.errors import Unsupported
from fusion_cli.kernels.attention import AttentionFamily
from fusion_cli.kernels.attention_fitting import Fitting, goes_round
from fusion_cli.kernels.attention_stage import AttentionStage
from fusion_cli.kernels.attention_work import block_bytes, check_room, efficiency, visible
from fusion_cli.planir.stages import Attention
from fusion_cli.score import load_profile
from fusion_cli.types import Target
from tests.helpers.cuda_attention_plans import alibi, attention, bare, causal, lowered, masked, window
from tests.helpers.cuda_case import Case, fused_op
from tests.helpers.cuda_host_library import host_program, output_of
from tests.helpers.cuda_product_plans import knowing
from tests.helpers.sized_stages import sized_stages


@pytest.fixture(scope="module")
def sorted_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return host_program("sorted.cc", tmp_path_factory.mktemp("sorted"))


def view(case: Case) -> AttentionStage:
    (stage,) = case.plan.stages
    assert isinstance(stage, Attention)
    return AttentionFamily().cuda(case.plan, stage, 0)


@pytest.mark.parametrize(
    ("case", "by_key", "firm", "sorts"),
    [
        (masked("float16", 64, "bool", "right"), True, True, True),
        (masked("float16", 64, "lowest", "right"), True, True, True),
        (masked("float16", 32, "lowest", "right"), True, True, False),
        (masked("float16", 72, "lowest", "right"), True, True, True),
        (masked("float16", 64, "added", "right"), True, False, True),
        (masked("float16", 64, "added", "right", later=True), False, False, True),
        (attention("float16", 64), True, False, True),
        (alibi("float16", 64), False, False, False),
        (window("float16"), False, True, True),
        (causal("float16"), False, True, False),
        (bare("float16"), False, False, False),
        (lowered("float16"), False, False, False),
        (lowered("float16", put=True), False, True, False),
    ],
    ids=lambda x: x.name if isinstance(x, Case) else "",
)
def test_what_a_mask_hides_by_the_key_alone(case: Case, by_key: bool, firm: bool, sorts: bool) -> None:
    stage = view(case)
    assert stage.sorted == sorts
    assert (stage.by_key, stage.by_key and stage.firm) == (by_key, by_key and firm)


@pytest.mark.parametrize(
    ("heads", "multiplied"),
    [
        ((40,), (48, 48)),
        ((64,), (64, 64)),
        ((72,), (80, 80)),
        ((80, 40), (80, 48)),
        ((128, 100), (128, 112)),
        ((16,), ()),
    ],
    ids=str,
)
def test_no_more_is_multiplied_than_heads_have(heads: tuple[int, ...], multiplied: tuple[int, ...]) -> None:
    """By sixteens, of the panels of 64 columns that heads lie in; shallow heads run by another kernel."""
    found = view(attention("float16", *heads)).panels
    assert list(found.values()) == ([multiplied] if multiplied else [])


@pytest.mark.parametrize(
    ("dtype", "heads", "tiles"),
    [
        ("float16", (32,), (False, True)),
        ("float16", (64,), (True,)),
        ("float16", (128, 200), (False,)),
        ("float32", (64,), (False, True)),
    ],
    ids=["shallow", "Hopper's own", "deep", "floats"],
)
def test_few_queries_have_tiles_of_their_own(dtype: str, heads: tuple[int, ...], tiles: tuple[bool, ...]) -> None:
    """As windows of 49 do: tiles are of 64 queries or, where those are wide, of 128."""
    stage = view(attention(dtype, *heads))
    assert [stage.tiles(*dims) for dims in stage.head_dims] == [tiles]


@pytest.fixture(scope="module")
def fitting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return host_program("fitting.cc", tmp_path_factory.mktemp("fitting"))


@pytest.fixture(scope="module")
def taken(fitting: Path) -> dict[tuple[int, int], tuple[int, ...]]:
    """By queries and keys the kernels that take them, in the order in which they are asked."""
    lines = ([int(x) for x in line.split()] for line in output_of(fitting).splitlines())
    return {(line[0], line[1]): tuple(i for i, takes in enumerate(line[2:]) if takes) for line in lines}


@pytest.mark.parametrize(("columns", "apart", "fits"), [(24, 24, "1"), (20, 24, "0"), (24, 28, "0")])
def test_rows_are_read_in_pieces_that_are_all_their_own(fitting: Path, columns: int, apart: int, fits: str) -> None:
    """What lies behind a row may not be the tensor's any more."""
    assert output_of(fitting, str(columns), str(apart)) == fits


def kinds(fitting: Fitting) -> tuple[int, ...]:
    """The numbers of the kernels that fit, as `taken` counts them."""
    rings = {True: 2, False: 3}
    return (
        *(t - 1 for t in fitting.shorts),
        *(rings[r] for r in fitting.rings),
        *(4,) * fitting.many,
        *(5,) * fitting.few,
    )


def test_of_known_sizes_those_kernels_fit_that_may_be_launched(taken: dict[tuple[int, int], tuple[int, ...]]) -> None:
    for (queries, keys), kernels in taken.items():
        # Keys that are there all at once leave nothing to others.
        first = kernels[:1] if kernels[:1] in ((0,), (1,)) else kernels
        assert kinds(Fitting.to(queries, keys)) == first, (queries, keys)


def test_of_sizes_that_are_open_all_kernels_fit_that_any_of_them_has(
    taken: dict[tuple[int, int], tuple[int, ...]],
) -> None:
    for queries in {q for q, _ in taken}:
        assert set(kinds(Fitting.to(queries, None))) == {i for (q, _), of in taken.items() if q == queries for i in of}
    for keys in {k for _, k in taken}:
        assert set(kinds(Fitting.to(None, keys))) == {i for (_, k), of in taken.items() if k == keys for i in of}
    assert kinds(Fitting.to(None, None)) == (0, 1, 2, 3, 4, 5)


@pytest.mark.parametrize(
    ("case", "kernels"),
    [
        (knowing(attention("float16", 64), q=128, k=128), {"short", "kernel"}),
        (knowing(attention("float16", 64), q=128, k=300), {"ring", "kernel"}),
        (knowing(attention("float16", 64), q=128, k=1000), {"ring", "warpgroups", "sort", "kernel"}),
        (knowing(attention("float16", 128), q=128, k=300), {"warpgroups", "sort", "kernel"}),
        (knowing(attention("float16", 64), q=1), {"decode", "kernel"}),
        (knowing(attention("float16", 64), q=40), {"short", "kernel"}),
        (knowing(bare("float16"), s=2000), {"warpgroups", "kernel"}),
        (attention("float16", 64), {"short", "ring", "warpgroups", "sort", "decode", "kernel"}),
    ],
    ids=lambda x: x.name if isinstance(x, Case) else "",
)
def test_what_known_sizes_never_take_is_not_compiled(case: Case, kernels: set[str]) -> None:
    text = emit(fused_op(case), Target("sm_90a", "cuda", "sm_90a")).text
    defined = re.search(r"__global__ .*?^void stage_0\(", text, re.DOTALL | re.MULTILINE)
    assert defined
    assert set(re.findall(r"stage_0_(\w+)\(const fusion::half\*", defined[0])) == kernels
    assert set(re.findall(r"launch\(stage_0_(\w+)<", text)) == kernels


def test_shallow_heads_have_rings_of_each_kind_that_the_mask_has() -> None:
    assert view(attention("float16", 64)).rings((64, 64)) == (True, False)
    assert view(window("float16")).rings((64, 64)) == (False,)
    assert view(attention("float16", 128)).rings((128, 128)) == ()


def test_stages_that_have_the_same_kernels_are_one_function() -> None:
    assert Fitting.to(4096, 4096) == Fitting.to(1024, 2048)
    assert Fitting.to(100, 77) != Fitting.to(100, 177)


def test_later_keys_that_are_lowered_need_no_score_program() -> None:
    stage = view(lowered("float16"))
    assert (stage.bare, stage.causal, stage.later, stage.firm) == (True, False, "(-65504.0f)", False)
    assert [b.name for b in stage.buffers] == ["parts_0", "sorts_0"]  # lengths of keys
    stage = view(lowered("float16", put=True))
    assert (stage.bare, stage.later, stage.firm) == (True, "(-65504.0f)", True)
    assert [b.name for b in stage.buffers] == ["parts_0"]
    assert (view(causal("float16")).causal, view(causal("float16")).later) == (True, "")


@pytest.mark.parametrize("change", [{"scale": -1.0}, {"sink": 0}])
def test_others_sort_their_masks_of_positions(change: dict[str, float]) -> None:
    case = lowered("float16")
    (stage,) = case.plan.stages
    assert isinstance(stage, Attention)
    found = AttentionFamily().cuda(case.plan, replace(stage, **change), 0)
    assert (found.bare, found.later, found.sorted) == (False, "", True)


def test_kernels_leave_lowered_keys_out_where_they_tell_that_these_do_not_count() -> None:
    hopper, ampere = (load_profile(Target(arch, "cuda", arch)) for arch in ("sm_90a", "sm_80"))

    def share(case: Case, profile: DeviceProfile, **change: float) -> float:
        (stage,) = case.plan.stages
        assert isinstance(stage, Attention)
        return visible(replace(stage, **change), 4096, 4096, 64, profile) / 4096**2

    assert share(lowered("float16"), hopper) == share(causal("float16"), hopper) == share(causal("float16"), ampere)
    assert 0.5 < share(lowered("float16"), hopper) < 0.51
    assert share(lowered("float16"), ampere) == share(bare("float16"), hopper) == 1
    assert share(lowered("float16"), hopper, sink=0) == share(lowered("float16"), hopper, scale=-1.0) == 1


@pytest.mark.parametrize(
    ("target", "dtype", "share"), [("sm_90a", "float16", 0.695), ("sm_90a", "float32", 0.5), ("sm_89", "float16", 0.5)]
)
def test_scores_take_as_long_with_heads_half_as_deep(target: str, dtype: str, share: float) -> None:
    """Of Hopper's own kernel, whose products are as fast as they can be; the others' take most of the time."""
    profile = load_profile(Target(target, "cuda", target))
    for has_mask in (False, True):
        half, whole = (depth / efficiency(profile, dtype, depth, has_mask) for depth in (64, 128))
        assert half / whole == pytest.approx(share)


@pytest.mark.parametrize(
    ("target", "dtype", "queries", "keys", "depth", "found"),
    [
        ("sm_90a", "float16", 2048, 2048, 128, True),
        ("sm_90a", "float32", 2048, 2048, 128, False),
        ("sm_90a", "float16", 2048, 256, 128, False),  # short
        ("sm_90a", "float16", 2048, 257, 128, True),
        ("sm_90a", "float16", 2048, 512, 64, False),  # a ring
        ("sm_90a", "float16", 2048, 513, 64, True),
        ("sm_90a", "float16", 64, 2048, 128, False),  # keys are shared
        ("sm_90a", "float16", 2048, 2048, 256, False),
        ("sm_80", "float16", 2048, 2048, 128, False),
    ],
)
def test_long_attentions_go_round(target: str, dtype: str, queries: int, keys: int, depth: int, found: bool) -> None:
    assert goes_round(load_profile(Target(target, "cuda", target)), dtype, queries, keys, depth, depth) == found


@pytest.mark.parametrize(
    ("dtype", "tokens", "blocks", "in_rounds"),
    [("float16", 2048, 28 * 16, True), ("float16", 200, 28 * 4, False), ("float32", 600, 28 * 10 * 3, False)],
)
def test_the_score_has_as_many_pieces_as_the_kernel(dtype: str, tokens: int, blocks: int, in_rounds: bool) -> None:
    (at,) = sized_stages(bare(dtype, 128).plan, {"b": 1, "h": 28, "s": tokens}, "cuda")
    (work,) = AttentionFamily().work(replace(at, profile=load_profile(Target("sm_90a", "cuda", "sm_90a"))))
    assert (work.blocks, work.in_rounds) == (blocks, in_rounds)


@pytest.mark.parametrize(
    ("by_key", "firm", "keys", "blocks"),
    [
        (True, True, 500, 0),
        (True, True, 5000, 0),
        (True, False, 1024, 0),
        (True, False, 1025, 6 * 9),
        (False, True, 500, 2 * 3 * 4),
        (False, False, 500, 2 * 3 * 4 + 6 * 4),
    ],
    ids=["firm", "firm and long", "short", "long", "by query and firm", "by query"],
)
def test_what_is_looked_at_before_an_attention(
    by_key: bool, firm: bool, keys: int, blocks: int, sorted_program: Path
) -> None:
    """Tiles of the masks of two batches, and of the keys of six heads; nothing where a mask is by key and short."""
    assert int(output_of(sorted_program, *(str(int(x)) for x in (by_key, firm, keys)))) == blocks


@pytest.mark.parametrize(
    ("case", "small"),
    [
        (bare("bfloat16"), True),
        (masked("float16", 64, "bool", "right"), True),
        (masked("float16", 64, "lowest", "right"), True),
        (masked("bfloat16", 96, "lowest", "all"), False),
        (masked("float16", 64, "added", "right"), True),
        (masked("bfloat16", 128, "added", "left"), False),
        (masked("float32", 128, "added", "right"), False),
    ],
    ids=lambda x: x.name if isinstance(x, Case) else "",
)
def test_scores_are_small_where_no_mask_holds_large_numbers(case: Case, small: bool) -> None:
    """Their unit of exponents may then be multiplied into them."""
    assert view(case).small == small


@pytest.mark.parametrize(
    ("small", "flags"), [(False, ()), (True, ("-D__CUDA_ARCH_LIST__=890",))], ids=["large", "small"]
)
def test_what_the_score_takes_for_a_tile_is_what_the_kernel_takes(
    small: bool, flags: tuple[str, ...], tmp_path: Path
) -> None:
    program = host_program("attention_tiles.cc", tmp_path, *flags)
    lines = output_of(program, seconds=300).splitlines()
    for size, depth, value_depth, is_bare, found in (map(int, line.split()) for line in lines):
        assert block_bytes(bool(is_bare), size, depth, value_depth, small) == found


@pytest.mark.parametrize(
    ("target", "dtype", "depth", "fits"),
    [
        ("sm_80", "float16", 128, True),
        ("sm_89", "float16", 128, True),
        ("sm_120a", "float16", 256, True),
        ("sm_89", "float32", 128, True),
        ("sm_89", "float32", 192, False),
        ("sm_90a", "float32", 256, True),
    ],
)
def test_heads_fit_on_a_chip_as_the_kernel_has_them(target: str, dtype: str, depth: int, fits: bool) -> None:
    (stage,) = bare(dtype).plan.stages
    assert isinstance(stage, Attention)
    profile = load_profile(Target(target, "cuda", target))
    with nullcontext() if fits else pytest.raises(Unsupported, match="FUS303"):
        check_room(profile, stage, dtype, depth, depth)
