"""Launches of an operator that are replayed as a CUDA graph, without a GPU."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from fusion_cli.codegen.expr import onnx_type
from fusion_cli.emit import emit
from fusion_cli.planir.stages import Pointwise, Store
from fusion_cli.types import Target
from tests.helpers.cuda_case import Array, Case, apart, assert_close, fused_op, merged
from tests.helpers.cuda_conv_plans import conv
from tests.helpers.cuda_host_library import host_library, host_program, output_of
from tests.helpers.cuda_plans import sliced, vendors_too
from tests.helpers.cuda_row_plans import scaled
from tests.helpers.emit_helpers import open_session
from tests.helpers.plan_builder import Builder, Program, operands
from tests.helpers.plan_builder import fused_op as plan_op
from tests.helpers.plan_interpreter import interpret, numpy_dtype

SM_80 = Target("sm_80", "cuda", "sm_80")
CASES = [vendors_too("float16"), sliced("float16"), sliced("float32")]


def test_calls_that_come_again_are_replayed(tmp_path: Path) -> None:
    program = host_program("replay.cc", tmp_path)
    output = output_of(program)
    lines = [line.split() for line in output.splitlines()]
    found = {name: tuple(map(int, numbers)) for name, *numbers in lines}
    assert found == {
        "again": (3, 4, 0, 1),  # by itself, timed, captured, and replayed
        "others": (4, 10, 0, 0),
        "in_turn": (6, 12, 0, 2),
        "many": (16 * 3 + 4 * 4, 4 * sum(range(1, 21)), 0, 16),
        "long_ago": (1 + 69 + 3, 1 + sum(range(2, 71)) + 3, 0, 1),
        "gpu_bound": (8, 4 + 8, 0, 0),
        "not_known_yet": (4, 5, 0, 1),
        "always_host_bound": (3, 6, 0, 1),
        "enough_to_do": (5, 6, 2, 1),  # after two graphs, by calls that cost something
        "done_sooner": (3, 6, 1, 1),
        "out_of_work_by_then": (3, 5, 0, 1),
        "enough_of_another": (4 + 3, 4 + 3, 1, 1),
        "gpu_takes_longer": (4, 4, 0, 0),
        "host_may_be_slower": (3, 4, 0, 1),
        "session_takes_as_long": (3, 4, 0, 1),
        "somebody_waits": (4, 4, 0, 0),
        "not_captured": (3 + 1, 3, 0, 0),  # tried once
        "stream_that_waits": (4, 4, 0, 0),
        "in_a_graph": (3 + 3, 3 + 3, 0, 1),  # of the session's own, and afterwards
    }


class Bound:
    """An operator in a session, on memory of its own."""

    def __init__(self, case: Case, library: Path) -> None:
        self.case, self.op = case, fused_op(case)
        self.session = open_session(self.op, library)

    def at(self, arrays: list[Array], outputs: list[Array]) -> list[Array]:
        """The outputs of a run on the memory of these arrays."""
        binding = self.session.io_binding()
        for way, name, specs, bound in (
            (binding.bind_input, "i", self.op.inputs, arrays),
            (binding.bind_output, "o", self.op.outputs, outputs),
        ):
            for i, (spec, array) in enumerate(zip(specs, bound, strict=True)):
                way(f"{name}{i}", "cpu", 0, onnx_type(spec.dtype), array.shape, array.ctypes.data)
        for output in outputs:
            output.fill(0)
        self.session.run_with_iobinding(binding)
        return outputs


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return host_library([fused_op(c) for c in CASES], tmp_path_factory.mktemp("replayed"))


@pytest.mark.parametrize("vendor", [False, True], ids=["own", "vendor"])
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_replayed_launches_compute_what_is_in_memory_then(
    case: Case, vendor: bool, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same memory with other numbers, four times; other memory in between; and other sizes."""
    if vendor:
        monkeypatch.setenv("CUDA_HOST_VENDOR", "1")
    bound, rng = Bound(case, library), np.random.default_rng(0)
    first = case.sizes[0]
    memory = [_memory(case, first), _memory(case, first), _memory(case, {n: size + 1 for n, size in first.items()})]
    for place in (0, 0, 1, 0, 2, 0, 1, 1, 2, 0, 2, 1, 2, 2):
        sizes, arrays, outputs = memory[place]
        for array, new in zip(arrays, case.inputs(sizes, rng), strict=True):
            array[...] = new
        with np.errstate(all="ignore"):
            want = interpret(case.plan, arrays)
        assert_close(bound.op, bound.at(arrays, outputs), want, (place, sizes))


def _memory(case: Case, sizes: dict[str, int]) -> tuple[dict[str, int], list[Array], list[Array]]:
    """Sizes, and memory for inputs and outputs of them."""
    arrays = case.inputs(sizes, np.random.default_rng(0))
    outputs = [
        np.zeros_like(w, numpy_dtype(s.dtype))
        for w, s in zip(interpret(case.plan, arrays), fused_op(case).outputs, strict=True)
    ]
    return sizes, arrays, outputs


def test_what_decides_is_all_that_a_call_gives() -> None:
    """Sizes, also those that are read, and the memory of what stages read and write."""
    case = vendors_too("float16")
    (line,) = [line for line in emit(fused_op(case), SM_80).text.splitlines() if "gpu::call_of(" in line]
    told = set(re.findall(r"&h\d+|t\d+\.data|work", line))
    program = case.plan.shape_program
    assert told == {
        "work",
        *(f"&h{i}" for i, op in enumerate(program) if not op.args and op.kind != "const"),
        *(f"t{i}.data" for i in (*case.plan.inputs, *case.plan.outputs)),
    }


def test_sizes_that_are_read_decide_too() -> None:
    b, p = Builder(), Program()
    x = b.input("float32", "b", "d")
    b.inputs.append(-1)
    read = b.op("read", ints=(1,))
    turned = b.op("reshape", b.dims(x), read, ints=(0,))
    last, value = b.alias(x, ("p", "q"), turned), p("Neg", p.load(0))
    for _ in range(4):
        out = b.output("float32", ("p", "q"), turned)
        b.stages.append(Pointwise(operands(last), p.done(), (Store(out, value),), turned))
        last = out
    text = emit(plan_op("Reshaped", b.plan(host_inputs=(1,))), SM_80).text
    assert f"gpu::call_of(stream, {{&h0, &h{read}}}, " in text


FEW = merged("few", [apart(scaled("float16"), f"c{i}") for i in range(3)])
PROVIDERS = merged("providers", [conv("float32"), *(apart(scaled("float16"), f"c{i}") for i in range(5))])


@pytest.mark.parametrize("case", [FEW, PROVIDERS], ids=lambda c: c.name)
def test_few_launches_and_the_providers_own_are_not_replayed(case: Case) -> None:
    """The provider's convolution takes memory that is given to somebody else once it has been launched."""
    assert "gpu::Replay" not in emit(fused_op(case), SM_80).text


def test_launches_with_ranges_are_not_replayed() -> None:
    op = fused_op(CASES[0])
    assert "gpu::Replay" in emit(op, SM_80).text
    assert "gpu::Replay" not in emit(op, SM_80, debug=True).text
