"""Every reason code can be given: what no other test provokes is provoked here."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from fusion_cli.emit import emit
from fusion_cli.errors import Unsupported
from fusion_cli.match import find_regions, load_rules
from fusion_cli.plan import plan_region
from fusion_cli.score import Baseline, load_profile, score_region
from fusion_cli.types import Target
from tests.helpers.cuda_case import fused_op
from tests.helpers.cuda_row_plans import pointwise
from tests.helpers.graphs import parse, rejections, simplified
from tests.helpers.reason_codes import explained
from tests.helpers.region_tools import parsed, region_of, whole

TESTS = Path(__file__).parents[1]
HEADER = '<domain: "fusion.rules", opset_import: ["": 23, "pattern": 1]>'
CPU = Target("cpu", "cpu")


def test_every_code_is_in_a_test() -> None:
    text = "".join(p.read_text("utf-8") for p in TESTS.rglob("*.py"))
    codes = {c for stage in explained().values() for c in stage}
    assert sorted(codes - set(re.findall(r"FUS\d{3}", text))) == []


@pytest.mark.parametrize(
    ("code", "rule", "body"),
    [
        ("FUS102", "R (x, a) => (y) { e = Exp (x) s = Sin (e) y = Sum (s, a) }", "e = Exp (x) z = Sin (e) y = Sum (z)"),
        ("FUS105", "R (x) => (y) { e = Exp (x) s = Sin (e) y = Sub (s, e) }", "e = Exp (x) z = Sin (e) y = Sub (z, x)"),
        ("FUS110", "R (x, s) => (y) { t = Transpose (x) y = Reshape (t, s) }", "t = Transpose (x) y = Reshape (t,s)"),
        ("FUS111", "R (x, z) => (y) { e = Exp (x) y = Mul (e, z) }", "e = Exp (x) c = CumSum (e, axis) y = Mul (e, c)"),
        ("FUS112", "R (x) => (y) { e = Exp (x) y = Sin (e) }", "q = com.microsoft.Nobody (x) e = Exp (q) y = Sin (e)"),
    ],
)  # fmt: skip
def test_reasons_of_the_matcher(code: str, rule: str, body: str, tmp_path: Path) -> None:
    (tmp_path / "r.rule").write_text(
        f"# summary: for a test\n{HEADER}\n{rule.replace(' { ', chr(10) + '{' + chr(10))}\n"
    )
    model = parse(f"g (float[4,8] x, int64 axis, int64[2] s) => (float[4,8] y) {{ {body} }}")
    found = rejections(find_regions(simplified(model), load_rules(["R"], [tmp_path])))
    told = [r for r in found if r.rule == "R"]
    assert code in [r.code for r in told]
    assert all(re.search(r"r\.rule:\d+$", r.source) for r in told)


def test_operators_that_a_function_of_this_opset_cannot_hold() -> None:
    text = "g (float[4,8] x, float[4,8] z) => (float[4,8] y) { r = Add (x, z) y = LayerNormalization (r, w) }"
    found = rejections(find_regions(simplified(parse(text, {"w": (8,)}, opset=16)), load_rules(["ResidualNorm"])))
    assert "FUS115" in [r.code for r in found]


@pytest.mark.parametrize(
    ("code", "text", "opset"),
    [
        ("FUS204", "g (float[n,4] x, float[2] s) => (float[n,4] y) {y = GroupNormalization<num_groups=2>(x,s,s)}", 18),
        ("FUS205", "g (float[n] x) => (float[n] y) { y = Mod <fmod = 1> (x, x) }", 20),
        ("FUS207", "g (float[n] x, float[1] s) => (float[a] y) { t = Cast <to = 7> (s) y = Reshape (x, t) }", 20),
        ("FUS208", "g (float[n,a,b] x, float[c,d] w) => (float[n,a,b] y) { y = LayerNormalization<axis=1>(x, w) }", 20),
        ("FUS210", "g (float[n,8] x, float[8] w) => (float[n,8] y, float[n,1] m) {y, m = LayerNormalization(x,w)}", 20),
    ],
)  # fmt: skip
def test_reasons_of_the_planner(code: str, text: str, opset: int) -> None:
    model = parsed(text, opset=opset)
    with pytest.raises(Unsupported, match=code):
        plan_region(region_of(list(model.graph)))


def test_values_that_are_unknown_or_come_from_nowhere() -> None:
    model = parsed("g (float[n] x) => (float[n] y) { a = Exp (x) y = Sin (a) }")
    region = whole(model)
    with pytest.raises(Unsupported, match="FUS211"):
        plan_region(replace(region, nodes=region.nodes[1:], inputs=()))
    model.graph.inputs[0].shape = None
    with pytest.raises(Unsupported, match="FUS201"):
        plan_region(region)


def test_sizes_that_do_not_follow_from_the_inputs() -> None:
    text = "g (float[n, 8] x, int64[2] s) => (float[a, b] y) { t = Mul (s, s) u = Exp (x) y = Reshape (u, t) }"
    model = parsed(text)
    region = whole(model)
    with pytest.raises(Unsupported, match="FUS304"):
        score_region(region, plan_region(region), Baseline(model.graph, load_profile(CPU)), [{"n": 4}])


def test_reasons_of_targets() -> None:
    case = pointwise("float32")
    op = fused_op(case)
    with pytest.raises(Unsupported, match="FUS504"):
        emit(replace(op, plan=None), CPU)
    (stage,) = case.plan.stages
    nonsense = replace(stage, program=tuple(replace(i, op="Nonsense") if i.op == "Erf" else i for i in stage.program))
    with pytest.raises(Unsupported, match="FUS502"):
        emit(replace(op, plan=replace(case.plan, stages=(nonsense,))), CPU)
    deep = tuple(replace(t, shape=(1,) * 9) for t in case.plan.tensors)
    with pytest.raises(Unsupported, match="FUS503"):
        emit(replace(op, plan=replace(case.plan, tensors=deep)), Target("sm_90a", "cuda", "sm_90a"))
