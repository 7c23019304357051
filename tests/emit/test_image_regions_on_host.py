"""Regions of images as ONNX writes them, planned with the channels last and run by the CUDA kernels' own source on the
CPU, against numpy in fp64."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fusion_cli.plan import plan_region
from tests.emit.test_cuda_on_host import compare
from tests.helpers.cuda_case import Case, fused_op
from tests.helpers.cuda_host_library import host_library
from tests.helpers.region_tools import parsed, whole

BODIES = {
    "pixels_of_channels": """g (float16[2, 3, 7, 5] x, float16[18, 3, 3, 3] w, float16[2, 2, 3, 3] v) =>
        (float16[2, 2, a, b] y) {
            c = Conv <pads = [1, 1, 1, 1]> (x, w) d = DepthToSpace <blocksize = 3, mode = "CRD"> (c)
            r = Relu (d) y = Conv (r, v)
        }""",
    "larger_and_joined": """g (float16[2, 6, 5, 7] x, float16[6, 6, 1, 1] v, float16[6, 8, 2, 2] w, float16[8] b,
        float16[2, 8, 10, 14] z, float16[4, 16, 3, 3] k) => (float16[2, 4, h, m] y) {
            c = Conv (x, v) t = ConvTranspose <strides = [2, 2]> (c, w, b)
            j = Concat <axis = 1> (t, z) r = Relu (j) y = Conv (r, k)
        }""",
    "mirrored": """g (float16[2, 3, 5, 7] x, float16[8, 3, 1, 1] w, float16[8] s, float16[8] t,
        float16[2, 8, 3, 3] v) => (float16[2, 2, a, b] y) <int64[8] p = {0, 0, 1, 2, 0, 0, 2, 1}> {
            c = Conv (x, w) i = InstanceNormalization (c, s, t) r = Relu (i)
            d = Pad <mode = "reflect"> (r, p) y = Conv (d, v)
        }""",
    "cut_and_joined": """g (float16[2, 5, 7, 8] x, float16[8, 24] up, float16[8, 1, 3, 3] w, float16[16, 8] down) =>
        (float16[2, 5, 7, 8] y) <int64[2] parts = {16, 8}> {
            u = MatMul (x, up) g, c = Split <axis = -1> (u, parts)
            f = Transpose <perm = [0, 3, 1, 2]> (c) d = Conv <pads = [1, 1, 1, 1], group = 8> (f, w)
            l = Transpose <perm = [0, 2, 3, 1]> (d) j = Concat <axis = -1> (c, l)
            m = Mul (g, j) p = MatMul (m, down) y = Add (p, x)
        }""",
}


def case(name: str) -> Case:
    region = replace(whole(parsed(BODIES[name])), channels_last=True)
    return Case(name, plan_region(region), ({},))


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return host_library([fused_op(case(name)) for name in BODIES], tmp_path_factory.mktemp("images"))


@pytest.mark.parametrize("name", BODIES)
def test_region_of_images_agrees_with_fp64(name: str, library: Path) -> None:
    compare(case(name), library)
