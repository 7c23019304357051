"""The CUDA kernels without a GPU: their own source, run block by block on the CPU, against numpy in fp64."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.cuda_case import Case, assert_close, fused_op
from tests.helpers.cuda_host_library import host_library
from tests.helpers.cuda_plans import all_cases
from tests.helpers.emit_helpers import open_session, run
from tests.helpers.plan_interpreter import interpret

_MOST = 2_000_000
"""Elements of work that take a second here."""

# ONNX Runtime's CPU provider has no convolution of 16-bit floats.
CASES = [c for c in all_cases() if c.name != "conv_float16"]
PRODUCTS = [c for c in CASES if c.name.startswith(("linear", "batched", "chain"))]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Case, bool], Path]:
    made: dict[tuple[bool, bool], Path] = {}

    def get(case: Case, vendor: bool) -> Path:
        kind = "float32" in case.name, vendor
        if kind not in made:
            cases = [c for c in (PRODUCTS if vendor else CASES) if ("float32" in c.name) == kind[0]]
            made[kind] = host_library([fused_op(c) for c in cases], tmp_path_factory.mktemp("host"), vendor=vendor)
        return made[kind]

    return get


def compare(case: Case, library: Path) -> None:
    op = fused_op(case)
    session = open_session(op, library)
    for sizes in case.sizes:
        if math.prod(sizes.values()) > _MOST:
            continue
        inputs = case.inputs(sizes, np.random.default_rng(0))
        with np.errstate(all="ignore"):
            want = interpret(case.plan, inputs)
        assert_close(op, run(session, *inputs), want, sizes)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_kernel_agrees_with_fp64(case: Case, library: Callable[[Case, bool], Path]) -> None:
    compare(case, library(case, False))


@pytest.mark.parametrize("case", PRODUCTS, ids=lambda c: c.name)
def test_product_by_the_vendor_agrees_with_fp64(case: Case, library: Callable[[Case, bool], Path]) -> None:
    compare(case, library(case, True))
