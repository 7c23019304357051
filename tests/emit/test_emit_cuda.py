"""CUDA sources: they compile for every architecture, read well, and carry no text of a model unescaped."""

from __future__ import annotations

import re
import struct
from dataclasses import replace
from pathlib import Path

import pytest

from fusion_cli.build import build, find_compiler
from fusion_cli.build.toolchain_cuda import flags, link_flags
from fusion_cli.emit import emit, emit_registration
from fusion_cli.errors import Unsupported
from fusion_cli.planir.stages import Instr, Operand, Plan
from fusion_cli.targets import CUDA
from fusion_cli.types import Target
from tests.helpers.cuda_attention_plans import attention, causal
from tests.helpers.cuda_case import fused_op, merged
from tests.helpers.cuda_conv_plans import conv
from tests.helpers.cuda_plans import all_cases, everything, sliced
from tests.helpers.cuda_product_plans import gated, linear
from tests.helpers.cuda_row_plans import layer_norm, pointwise

CPU = Target("cpu", "cpu")
SM_80, SM_90A = (Target(arch, "cuda", arch) for arch in ("sm_80", "sm_90a"))
needs_nvcc = pytest.mark.skipif(find_compiler(SM_90A) is None, reason="nvcc is not installed")


@needs_nvcc
@pytest.mark.parametrize("target", CUDA, ids=lambda t: t.name)
def test_kernels_compile_to_machine_code_and_ptx_where_others_run_it(target: Target, tmp_path: Path) -> None:
    """Every stage kind for the architectures that are tried on GPUs, in either type of 16 bits for the newest; for the
    others a small kernel and a large one."""
    ops = [fused_op(pointwise("float32")), fused_op(attention("float16", 64))]
    if target in (SM_80, SM_90A):
        types = ("float32", "bfloat16") if target == SM_80 else ("float32", "bfloat16", "float16")
        ops = [fused_op(everything(dtype)) for dtype in types]
        ops += [fused_op(sliced("float16")), fused_op(gated("bfloat16", trans_b=True))]
    sources = [emit(op, target) for op in ops] + [emit_registration(target, ops)]
    library = build(sources, target, tmp_path, jobs=2, cache_dir=tmp_path / "cache")
    assert library.ops == tuple(op.name for op in ops)
    number = int(re.sub(r"\D", "", target.arch))
    code = {("machine", number)} if target.arch.endswith("a") else {("machine", number), ("ptx", number)}
    assert device_code(library.path.read_bytes()) == code
    again = build(sources, target, tmp_path, jobs=2, cache_dir=tmp_path / "cache")
    assert again.compiled == 0
    assert again.path == library.path


def device_code(library: bytes) -> set[tuple[str, int]]:
    """What the library's fat binaries hold: kinds of code and their architectures, from the headers of the entries."""
    found = set()
    for start in (m.start() for m in re.finditer(struct.pack("<I", 0xBA55ED50), library)):
        _, header, size = struct.unpack_from("<HHQ", library, start + 4)
        at, end = start + header, start + header + size
        while at < end:
            kind, _, header, size = struct.unpack_from("<HHIQ", library, at)
            (arch,) = struct.unpack_from("<I", library, at + 28)
            found.add(({1: "ptx", 2: "machine"}[kind], arch))
            at += header + size
    return found


@needs_nvcc
@pytest.mark.parametrize("target", [SM_80, SM_90A], ids=lambda t: t.name)
def test_the_same_sources_make_the_same_library_in_any_folder(target: Target, tmp_path: Path) -> None:
    ops = [replace(fused_op(p("float32")), name=f"{p.__name__}_1") for p in (pointwise, layer_norm)]
    sources = [emit(op, target) for op in ops] + [emit_registration(target, ops)]
    made = [build(sources, target, tmp_path, cache_dir=tmp_path / folder) for folder in ("one", "of/another/depth")]
    assert [library.compiled for library in made] == [3, 3]
    assert made[0].path == made[1].path, "libraries are named by their content"


@needs_nvcc
def test_library_registers_nothing_without_a_device(tmp_path: Path) -> None:
    ort = pytest.importorskip("onnxruntime")
    if "CUDAExecutionProvider" in ort.get_available_providers():
        pytest.skip("there may be a device")
    op = fused_op(pointwise("float32"))
    library = build([emit(op, SM_80), emit_registration(SM_80, [op])], SM_80, tmp_path, cache_dir=tmp_path / "cache")
    options = ort.SessionOptions()
    options.register_custom_ops_library(str(library.path))


@needs_nvcc
def test_debug_adds_line_information_and_ranges(tmp_path: Path) -> None:
    op = fused_op(pointwise("float16"))
    source = emit(op, SM_80, debug=True)
    assert "fusion::Range" in source.text
    library = build([source, emit_registration(SM_80, [op])], SM_80, tmp_path, debug=True, cache_dir=tmp_path / "cache")
    assert b".nv_debug_line_sass" in library.path.read_bytes()


@pytest.mark.parametrize("case", all_cases(), ids=lambda c: c.name)
def test_sources_render(case) -> None:  # type: ignore[no-untyped-def]
    text = emit(fused_op(case), SM_90A).text
    assert text.count("{") == text.count("}")
    assert f"FUSION_OP(Case_{case.name}, " in text
    assert not re.search(r"[ \t]+$", text, re.MULTILINE)
    called = re.findall(r"^ +(stage_\d+)\(device, stream, h", text, re.MULTILINE)
    assert len(called) == len(case.plan.stages)
    assert all(len(re.findall(rf"^void {name}\(const gpu::Device.*\) {{$", text, re.MULTILINE)) == 1 for name in called)


@pytest.mark.parametrize("target", [CPU, SM_90A], ids=lambda t: t.name)
def test_equal_stages_are_one_function(target: Target) -> None:
    case = merged("horizontal", [linear("float16"), linear("float16"), linear("float16", narrow=True)])
    text = emit(fused_op(case), target).text
    calls = re.findall(r"^ +(stage_\d)\((?:device, stream|run), h", text, re.MULTILINE)
    assert calls == ["stage_0", "stage_0", "stage_1"]
    assert text.count("void stage_0(") == text.count("void stage_1(") == 1


def test_node_names_stay_in_comments() -> None:
    text = emit(fused_op(pointwise("float32")), SM_90A).text
    (line,) = [line for line in text.splitlines() if "injected" in line]
    assert line.strip().startswith("//")
    assert not line.endswith("\\")
    assert "*/" not in line


def test_an_identity_epilogue_needs_no_second_pass() -> None:
    case = linear("float16")
    (stage,) = case.plan.stages
    bare = replace(stage, program=(Instr("acc", (), "float16"),), stores=(replace(stage.stores[0], instr=0),))
    plain = emit(fused_op(replace(case, plan=replace(case.plan, stages=(bare,)))), SM_90A).text
    assert "stage_0_pass" not in plain
    assert "stage_0_pass" in emit(fused_op(case), SM_90A).text


def test_the_bare_product_goes_to_workspace_when_no_output_has_its_type() -> None:
    assert "work + product_0" in emit(fused_op(linear("float16", narrow=True)), SM_90A).text
    assert "product_0" not in emit(fused_op(linear("float16")), SM_90A).text
    assert "Workspace" not in emit(fused_op(linear("float32")), SM_90A).text


def _changed(plan: Plan, tensor: int, **changes: object) -> Plan:
    tensors = list(plan.tensors)
    tensors[tensor] = replace(tensors[tensor], **changes)  # type: ignore[arg-type]
    return replace(plan, tensors=tuple(tensors))


def test_what_cuda_cannot_do_is_turned_down() -> None:
    wide = causal("float16", 320)
    with pytest.raises(Unsupported, match="head dimension"):
        emit(fused_op(wide), SM_90A)
    case = linear("float16")
    with pytest.raises(Unsupported, match="FUS501"):
        emit(fused_op(replace(case, plan=_changed(case.plan, 1, dtype="float32"))), SM_90A)
    high = pointwise("float32")
    with pytest.raises(Unsupported, match="rank"):
        emit(fused_op(replace(high, plan=_changed(high.plan, 0, shape=(1,) * 9))), SM_90A)
    case = conv("float32")
    (stage,) = case.plan.stages
    turned = replace(stage, operands=(Operand(0, (0, 1, 3, 2)), *stage.operands[1:]))
    with pytest.raises(Unsupported, match="as they lie in memory"):
        emit(fused_op(replace(case, plan=replace(case.plan, stages=(turned,)))), SM_90A)


def test_flags_name_the_architecture() -> None:
    assert "-gencode=arch=compute_90a,code=sm_90a" in flags(SM_90A, debug=False)
    assert "-lineinfo" in flags(SM_80, debug=True)
    assert "-cudart=static" in link_flags(SM_80)
