"""Operators that a CUDA session would leave to the CPU are not made."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

import fusion_cli
from fusion_cli.errors import Unsupported
from fusion_cli.plan import plan_region
from fusion_cli.score.placement import require_gpu
from tests.helpers.graphs import parse
from tests.helpers.region_tools import parsed, region_of

SCALED = "s = Shape (x) f = Cast <to=1> (s) e = Exp (f) h = Sin (e)"


@pytest.mark.parametrize(
    ("nodes", "last"),
    [
        (f"{SCALED} r = Relu (x) y = Mul (r, h)", ("Exp", "Sin")),
        (f"{SCALED} r = Relu (x) t = Mul (x, h) y = Add (r, t)", ("Exp", "Sin", "Mul")),
        ("c = Size (x) f = Cast <to=1> (c) m = Neg (f) e = Exp (m) h = Sin (e) y = Mul (x, h)", ("Exp", "Sin")),
    ],
    ids=["of a shape", "of a shape and an input", "of a size"],
)
def test_what_works_on_numbers_of_the_host_is_not_fused_for_gpus(nodes: str, last: tuple[str, ...]) -> None:
    model = parsed(f"g (float[n, 2] x) => (float[n, 2] y) {{ {nodes} }}")
    region = region_of([n for n in model.graph if n.op_type in last])
    with pytest.raises(Unsupported, match="FUS305"):
        require_gpu(region, plan_region(region))


@pytest.mark.parametrize(
    ("nodes", "last"),
    [
        (f"{SCALED} r = Relu (x) y = Mul (r, h)", ("Exp", "Sin", "Mul")),
        ("e = Exp (x) h = Sin (e) y = Neg (h)", ("Exp", "Sin")),
    ],
    ids=["beside numbers of the GPU", "of a graph's input"],
)
def test_what_works_on_numbers_of_the_gpu_is(nodes: str, last: tuple[str, ...]) -> None:
    model = parsed(f"g (float[n, 2] x) => (float[n, 2] y) {{ {nodes} }}")
    region = region_of([n for n in model.graph if n.op_type in last])
    require_gpu(region, plan_region(region))


@pytest.mark.parametrize(("elements", "on_host"), [(100, True), (101, False)], ids=["a small constant", "a large one"])
def test_a_large_constant_keeps_what_reads_it_on_the_gpu(elements: int, on_host: bool) -> None:
    """ONNX Runtime's own limit."""
    values = ", ".join(map(str, range(elements)))
    model = parsed(
        f"g (float[n, 2] x) => (float[{elements}, 2] y) <float[{elements}, 1] c = {{{values}}}> "
        f"{{ {SCALED} m = Mul (h, c) y = Neg (m) }}"
    )
    region = region_of([n for n in model.graph if n.op_type in ("Mul", "Neg")])
    if on_host:
        with pytest.raises(Unsupported, match="h, computed on the host"):
            require_gpu(region, plan_region(region))
    else:
        require_gpu(region, plan_region(region))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_numbers_of_16_bits_keep_what_reads_them_on_the_gpu(dtype: str) -> None:
    to = onnx.TensorProto.DataType.Value(dtype.upper())
    model = parsed(
        f"g (float[n, 2] x) => ({dtype}[2] y) {{ s = Shape (x) f = Cast <to={to}> (s) e = Exp (f) y = Neg (e) }}"
    )
    region = region_of([n for n in model.graph if n.op_type in ("Exp", "Neg")])
    require_gpu(region, plan_region(region))


def test_what_reads_a_shape_on_the_host_itself_is() -> None:
    text = "g (float[n, 2] x, float[a, b] z) => (float[a, b] y) { s = Shape (z) e = Exp (x) y = Reshape (e, s) }"
    region = region_of([n for n in parsed(text).graph if n.op_type != "Shape"])
    plan = plan_region(region)
    assert plan.host_inputs
    require_gpu(region, plan)


def test_the_report_says_so_even_where_everything_is_forced(tmp_path: Path) -> None:
    onnx.save(parse(f"g (float[n, 2] x) => (float[2] y) {{ {SCALED} y = Neg (h) }}"), tmp_path / "m.onnx")
    asked = {"targets": ["sm_90a", "portable"], "force": True, "verify": False}
    report = fusion_cli.optimize(tmp_path / "m.onnx", tmp_path / "out.onnx", **asked, dry_run=True)
    told = [r for r in report.rejected if r.code == "FUS305"]
    assert {r.target for r in told} == {"sm_90a"}
    assert all("computed on the host" in r.found for r in told)
