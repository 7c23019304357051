"""`explain` says why something is not fused: the place, the line of the rule, what was there, and what would help."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnxruntime.tools.onnx_model_utils import make_dim_param_fixed

from fusion_cli.match import find_regions, load_rules
from fusion_cli.match.misses import KINDS_PER_RULE
from tests.helpers.cli_helpers import ROOT, call
from tests.helpers.graphs import parse, rejections, simplified
from tests.report.test_report_json import SCHEMA, problems

HEADS = """g (float[2,6,16] x) => (float[2,6,16] y) {
    half = Constant <value = float {0.5}> ()
    t = Transpose <perm = [0,2,1]> (x)
    s = MatMul (x, t)
    scaled = Mul (s, half)
    p = Softmax <axis = AXIS> (scaled)
    y = MatMul (p, x)
}"""
NORM = """g (float[4,8] x) => (float[4,8] y) {
    n = LayerNormalization (x, gamma, beta)
    h = MatMul (n, w)
    y = Relu (h)
}"""
NORM_WEIGHTS = {"gamma": (8,), "beta": (8,), "w": (8, 8)}


def saved(model: onnx.ModelProto, folder: Path) -> Path:
    """The model on disk, its nodes named after what they make."""
    for node in model.graph.node:
        node.name = f"n_{node.output[0]}"
    onnx.save(model, folder / "m.onnx")
    return folder / "m.onnx"


def overridable(model: onnx.ModelProto, ir_version: int = 8) -> onnx.ModelProto:
    """The same with every initializer listed as a graph input."""
    for t in model.graph.initializer:
        model.graph.input.append(onnx.helper.make_tensor_value_info(t.name, t.data_type, t.dims))
    model.ir_version = ir_version
    return model


def explain(path: Path, *options: object) -> dict[str, Any]:
    """The JSON of `explain`, which follows the schema."""
    result = call("explain", path, "--target", "cpu", "--json", *options)
    assert result.exit_code == 0, result.output
    data: dict[str, Any] = json.loads(result.stdout)
    assert set(data) == {"model", "output", "targets", "idioms", "fusions", "rejected", "choice", "notes", "node"}
    parts = {key: SCHEMA["properties"][key] for key in data}
    assert list(problems(data, {"type": "object", "properties": parts, "additionalProperties": False})) == []
    return data


def first(data: dict[str, Any], **wanted: object) -> dict[str, Any]:
    found = [r for r in data["rejected"] if all(r[key] == value for key, value in wanted.items())]
    assert found, [(r["code"], r["rule"], r["node"], r["found"]) for r in data["rejected"]]
    return dict(found[0])


def line_of(source: str) -> str:
    path, _, number = source.rpartition(":")
    return (ROOT / path).read_text("utf-8").splitlines()[int(number) - 1]


# ---- each reason: what was expected, what was found, which line, what helps


def test_a_softmax_over_another_axis_stops_the_whole_attention_and_its_line_is_named(tmp_path: Path) -> None:
    data = explain(saved(parse(HEADS.replace("AXIS", "1")), tmp_path))
    worst = data["rejected"][0]
    assert (worst["code"], worst["node"], worst["found"]) == ("FUS103", "n_p", "axis = -2")
    assert "Softmax" in line_of(worst["source"])
    assert {"n_s", "n_p", "n_y"} <= set(worst["nodes"])
    assert worst["saving_us"] > 0
    attention = first(data, rule="Attention", code="FUS103")
    assert attention["held"] == attention["lines"] - 1
    assert {f["rule"] for f in explain(saved(parse(HEADS.replace("AXIS", "2")), tmp_path), "--force")["fusions"]} & {
        "AttentionHeads"
    }


def test_what_lacks_one_thing_is_nearer_than_what_lacks_more(tmp_path: Path) -> None:
    """An attention over another axis, of which another overload knows the rare Softmax but not the common product."""
    common = " ".join(f"l{i} = MatMul (c{i}, w) c{i + 1} = Relu (l{i})" for i in range(20))
    text = f"""g (float[2,3,6,8] q, float[2,3,8,6] k, float[2,3,6,8] v, float[2,8] c0)
        => (float[2,3,6,8] y, float[2,8] c20) {{
        {common} s = MatMul (q, k) p = Softmax <axis = 1> (s) o = MatMul (p, v)
        t = MatMul (o, k) u = Softmax <axis = -1> (t) y = MatMul (u, v)
    }}"""
    told = [r for r in explain(saved(parse(text, {"w": (8, 8)}), tmp_path))["rejected"] if "n_p" in r["nodes"]]
    assert (told[0]["code"], told[0]["node"], told[0]["expected"]) == ("FUS103", "n_p", "Softmax with axis = -1")
    assert {"n_s", "n_p", "n_o"} <= set(told[0]["nodes"])


RMS = """g (float[4,8] x, float[N] i) => (float[4,8] y, int64[2,1] z) {
    two = Constant <value = float {POWER}> () eps = Constant <value = float {0.00001}> ()
    last = Constant <value_ints = [-1]> ()
    p = Pow (x, two) m = ReduceMean <axes = [-1]> (p) a = Add (m, eps) r = Sqrt (a) d = Div (x, r) y = Mul (d, g)
    k = Shape (i) e = Shape (x) c = Concat <axis = 0> (k, k) z = Unsqueeze (c, last)
}"""


def test_a_rule_that_is_asked_about_comes_before_its_parts_and_says_where_it_holds(tmp_path: Path) -> None:
    path = saved(parse(RMS.replace("POWER", "3.0"), {"g": (8,)}), tmp_path)
    told = explain(path, "--rule", "RMSNorm")
    rules = [r["rule"] for r in told["rejected"]]
    assert rules[0] == "RMSNorm"
    assert rules == sorted(rules, key=lambda r: r != "RMSNorm")
    assert first(told, rule="RMSNorm")["found"].endswith("= 3")
    assert told["idioms"] == {}
    assert not [r for r in told["rejected"] if {"n_k", "n_c", "n_z"} & set(r["nodes"])]  # sizes, not numbers
    path = saved(parse(RMS.replace("POWER", "2.0"), {"g": (8,)}), tmp_path)
    assert explain(path, "--rule", "RMSNorm")["idioms"] == {"RMSNorm": 1}
    assert call("explain", path, "--rule", "RMSNorm").stdout.startswith("RMSNorm: recognised at 1 place\n")


def test_a_weight_that_callers_may_override_is_no_constant_and_the_option_is_named(tmp_path: Path) -> None:
    path = saved(overridable(parse(NORM, NORM_WEIGHTS)), tmp_path)
    data = explain(path)
    miss = first(data, rule="LayerNormLinear", code="FUS106")
    assert miss["expected"] == "is_constant(w)"
    assert "'w', float32[8,8], a graph input" in miss["found"]
    assert "--assume-constant w" in miss["hint"]
    assert line_of(miss["source"]).startswith("# where:")
    assert miss["nodes"] == ["n_n", "n_h", "n_y"]
    assert "--assume-constant" in data["notes"][0]
    told = call("explain", path, "--target", "cpu").stdout
    assert "--assume-constant w" in told
    mended = explain(path, "--assume-constant", "all", "--force")
    assert "LayerNormLinear" in {f["rule"] for f in mended["fusions"]}
    assert mended["notes"] == []


def test_a_constant_of_another_value(tmp_path: Path) -> None:
    rule = """<domain: "fusion.rules", opset_import: ["": 17]>
    Halved (x) => (y)
    {
        half = Constant <value = float {0.5}> ()
        e = Exp (x)
        s = Sin (e)
        y = Mul (s, half)
    }"""
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "halved.rule").write_text(f"# summary: half of sin of exp\n{rule}\n")
    text = "g (float[4,8] x) => (float[4,8] y) { CONSTANT e = Exp (x) s = Sin (e) y = Mul (c, s) }"
    run_time = text.replace("CONSTANT", "").replace("[4,8] x)", "[4,8] x, float c)")
    text = text.replace("CONSTANT", "c = Constant <value = float {0.6}> ()")
    data = explain(saved(parse(text), tmp_path), "--rule-path", tmp_path / "rules", "--rule", "Halved")
    miss = first(data, code="FUS104")
    assert miss["found"].endswith("= 0.6")
    assert "half = 0.5" in miss["expected"]
    assert (miss["held"], miss["lines"], miss["node"]) == (2, 3, "n_y")
    assert miss["source"].endswith("halved.rule:8")
    miss = first(explain(saved(parse(run_time), tmp_path), "--rule-path", tmp_path / "rules"), code="FUS104")
    assert "`c` is a graph input: export the model with it as an initializer" in miss["hint"]


def test_another_function_than_gelu(tmp_path: Path) -> None:
    text = """g (float[4,8] x) => (float[4,8] y) {
        half = Constant <value = float {0.45}> () one = Constant <value = float {1.0}> ()
        root = Constant <value = float {1.41421356}> ()
        d = Div (x, root) e = Erf (d) a = Add (e, one) m = Mul (x, a) y = Mul (m, half)
    }"""
    data = explain(saved(parse(text), tmp_path), "--rule", "GeluErf")
    miss = first(data, code="FUS107", rule="GeluErf")
    assert "another function" in miss["found"]
    assert miss["node"] == "n_y"


def test_a_condition_names_the_part_of_it_that_failed_and_the_dimension_to_fix(tmp_path: Path) -> None:
    rule = """# where: dtype(x) == float32 and divisible(dim(x, -1), 8)
<domain: "fusion.rules", opset_import: ["": 17]>
Wide (x) => (y)
{
    e = Exp (x)
    y = Sin (e)
}"""
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "wide.rule").write_text(rule)
    model = parse("g (float[4,width] x) => (float[4,width] y) { e = Exp (x) y = Sin (e) }")
    miss = first(explain(saved(model, tmp_path), "--rule-path", tmp_path / "rules", "--rule", "Wide"), code="FUS106")
    assert miss["expected"] == "divisible(dim(x, -1), 8)"
    assert "(width)" in miss["hint"]
    assert "onnxruntime.tools.make_dynamic_shape_fixed" in miss["hint"]
    assert miss["source"].endswith("wide.rule:1")
    make_dim_param_fixed(model.graph, "width", 16)
    found = explain(saved(model, tmp_path), "--rule-path", tmp_path / "rules", "--rules", "Wide", "--force")
    assert [f["rule"] for f in found["fusions"]] == ["Wide"]


def test_late_stages_have_hints_too(tmp_path: Path) -> None:
    model = parse("g (double[4,8] x) => (double[4,8] y) { a = Exp (x) b = Sin (a) y = Cos (b) }")
    miss = first(explain(saved(model, tmp_path)), code="FUS203")
    assert (miss["stage"], miss["nodes"]) == ("plan", ["n_a", "n_b", "n_y"])
    assert "float32" in miss["hint"]
    small = parse("g (float[1,8] x) => (float[1,8] y) { a = Abs (x) y = Neg (a) }")
    data = explain(saved(small, tmp_path))
    if not data["fusions"]:
        assert "--force" in first(data, code="FUS301")["hint"]


# ---- ranking: no noise


def test_what_a_fusion_has_already_comes_last_and_is_not_told_unasked(tmp_path: Path) -> None:
    path = saved(parse(NORM, NORM_WEIGHTS), tmp_path)
    data = explain(path, "--force")
    covered = [bool(r["covered_by"]) for r in data["rejected"]]
    assert covered == sorted(covered)
    savings = [r["saving_us"] for r in data["rejected"] if not r["covered_by"]]
    assert savings == sorted(savings, reverse=True)
    told = call("explain", path, "--target", "cpu", "--force").stdout
    assert "covered" not in told.split("covered otherwise")[0]


def test_equal_layers_are_told_once(tmp_path: Path) -> None:
    layer = """t{i} = Transpose <perm = [0,2,1]> (x{i}) s{i} = MatMul (x{i}, t{i})
        p{i} = Softmax <axis = 1> (s{i}) x{j} = MatMul (p{i}, x{i})"""
    body = " ".join(layer.format(i=i, j=i + 1) for i in range(5))
    data = explain(saved(parse(f"g (float[2,6,16] x0) => (float[2,6,16] x5) {{ {body} }}"), tmp_path))
    assert first(data, rule="Attention", code="FUS103")["places"] == 5
    assert len([r for r in data["rejected"] if r["code"] == "FUS103" and r["rule"] == "Attention"]) == 1
    lone = explain(saved(parse(f"g (float[2,6,16] x0) => (float[2,6,16] x5) {{ {body} }}"), tmp_path), "--node", "n_p3")
    assert {r["places"] for r in lone["rejected"]} == {1}
    assert all("n_p3" in r["nodes"] for r in lone["rejected"])


def test_rejections_are_bounded_whatever_the_size() -> None:
    # Softmax over each of many axes and shapes: kinds of misses without end.
    layer = "s{i} = MatMul (x{i}, w) c{i} = Mul (s{i}, k{i}) p{i} = Softmax <axis = 0> (c{i}) x{j} = MatMul (p{i}, w)"
    body = " ".join(layer.format(i=i, j=i + 1) for i in range(300))
    weights: dict[str, tuple[int, ...]] = {"w": (16, 16), **{f"k{i}": (1,) for i in range(300)}}
    model = parse(f"g (float[8,16] x0) => (float[8,16] x300) {{ {body} }}", weights)
    result = find_regions(simplified(model), load_rules())
    counts: dict[str, int] = {}
    for r in rejections(result):
        if r.progress < 1:
            counts[r.rule] = counts.get(r.rule, 0) + 1
    assert max(counts.values(), default=0) <= KINDS_PER_RULE


def test_a_rule_that_is_asked_about_tells_fainter_misses_too(tmp_path: Path) -> None:
    text = """g (float[4,8] x) => (float[4,8] y) {
        axes = Constant <value_ints = [-1]> () eps = Constant <value_float = 0.00001> ()
        n = Constant <value_float = 8.0> () less = Constant <value_float = 7.0> ()
        m = ReduceMean (x, axes) d = Sub (x, m) q = Mul (d, d) v = ReduceMean (q, axes)
        sum = Mul (v, n) unbiased = Div (sum, less) e = Add (unbiased, eps) s = Sqrt (e) y = Div (d, s)
    }"""
    path = saved(parse(text, opset=18), tmp_path)
    told = explain(path, "--rule", "LayerNorm")["rejected"]
    assert any("unbiased" in r["found"] or "n_unbiased" in r["nodes"] for r in told)


# ---- --node


def answer(path: Path, node: str, *options: object) -> dict[str, Any]:
    found = explain(path, "--node", node, *options)["node"]
    assert found["asked"] == node
    return dict(found)


def test_a_node_that_is_fused(tmp_path: Path) -> None:
    path = saved(parse(NORM, NORM_WEIGHTS), tmp_path)
    for name in ("n_h", "h"):  # by its name, and by the value it makes
        found = answer(path, name, "--force")
        assert (found["verdict"], found["node"], found["operator"]) == ("fused", "n_h", "MatMul")
        assert "fused by LayerNormLinear" in found["text"]
    assert found["reads"] == ["LayerNormalization n_n"]
    assert found["feeds"] == ["Relu n_y"]


def test_a_node_of_a_candidate_that_lost(tmp_path: Path) -> None:
    model = parse("g (float[1,8] x) => (float[1,8] y) { t = Transpose (x) a = Abs (t) b = Neg (a) y = Transpose (b) }")
    found = answer(saved(model, tmp_path), "n_a")
    assert (found["verdict"], found["code"]) == ("turned down", "FUS301")


def test_a_node_that_a_rule_came_near(tmp_path: Path) -> None:
    found = answer(saved(parse(HEADS.replace("AXIS", "1")), tmp_path), "n_p")
    assert (found["verdict"], found["code"]) == ("missed", "FUS103")
    assert "axis = -2" in found["text"]


def test_a_node_without_a_name_goes_by_operator_and_output(tmp_path: Path) -> None:
    onnx.save(parse(HEADS.replace("AXIS", "1")), tmp_path / "m.onnx")
    found = answer(tmp_path / "m.onnx", "Softmax->p")
    assert (found["verdict"], found["operator"]) == ("missed", "Softmax")
    assert (found["node"], found["gone"]) == ("Softmax->p", "")
    assert "MatMul->y" in explain(tmp_path / "m.onnx")["rejected"][0]["nodes"]


def test_an_operator_that_no_rule_names(tmp_path: Path) -> None:
    model = parse("g (float[4,8] x) => (float[4,8] y) { y = CumSum (x, axis) }")
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.int64(1), "axis"))
    found = answer(saved(model, tmp_path), "n_y")
    assert (found["verdict"], found["code"]) == ("no rule", "FUS113")
    assert "CumSum" in found["text"]
    assert "Softmax" in found["text"]  # of those that rules know


def test_an_operator_that_no_rule_is_near(tmp_path: Path) -> None:
    model = parse("g (float[4,8] x) => (float[4,8] y) { c = CumSum (x, axis) y = Ceil (c) }")
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.int64(1), "axis"))
    found = answer(saved(model, tmp_path), "n_y")
    assert (found["verdict"], found["code"], found["reads"]) == ("not near", "FUS114", ["CumSum n_c"])


@pytest.mark.parametrize(
    ("body", "node", "code", "became"),
    [
        ("a = Add (w, w) y = Mul (x, a)", "n_a", "FUS120", "the constant"),
        ("a = Exp (x) b = Exp (x) y = Mul (a, b)", "n_b", "FUS121", "Exp n_a"),
        ("i = Identity (x) y = Exp (i)", "n_i", "FUS122", "'x', which it only passed on"),
        ("u = Sin (x) y = Exp (x)", "n_u", "FUS123", ""),
    ],
)
def test_a_node_that_is_gone_after_simplification(tmp_path: Path, body: str, node: str, code: str, became: str) -> None:
    path = saved(parse(f"g (float[4,8] x) => (float[4,8] y) {{ {body} }}", {"w": (8,)}), tmp_path)
    found = answer(path, node)
    assert found["gone"] == code
    assert became in found["became"]
    assert bool(found["node"]) == (code == "FUS121")


def test_a_node_in_the_body_of_an_if(tmp_path: Path) -> None:
    text = """g (bool c, float[4,8] x) => (float[4,8] y) {
        y = If (c) <then_branch = t () => (float[4,8] a) { b = CumSum (x, axis) a = Exp (b) },
                    else_branch = e () => (float[4,8] d) { d = Sin (x) }>
    }"""
    model = parse(text)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.int64(1), "axis"))
    model.graph.node[0].attribute[0].g.node[0].name = "inner"
    found = answer(saved(model, tmp_path), "inner")
    assert found["body_of"] == "If n_y"
    assert found["operator"] == "CumSum"


def test_an_unknown_node_and_a_name_that_is_no_node(tmp_path: Path) -> None:
    path = saved(parse(NORM, NORM_WEIGHTS), tmp_path)
    result = call("explain", path, "--node", "n_hh")
    assert result.exit_code == 1
    assert "did you mean 'n_h'?" in result.stderr
    result = call("explain", path, "--node", "MatMul")
    assert result.exit_code == 1
    assert "MatMul is the operator of n_h" in result.stderr
    result = call("explain", path, "--node", "w")
    assert result.exit_code == 1
    assert "not a node" in result.stderr


def test_text_of_a_node_and_of_a_rule(tmp_path: Path) -> None:
    path = saved(parse(HEADS.replace("AXIS", "1")), tmp_path)
    told = call("explain", path, "--target", "cpu", "--node", "n_p").stdout
    assert told.startswith("Softmax n_p: missed\n")
    assert "and found axis = -2" in told
    assert "rules/" in told
    told = call("explain", path, "--target", "cpu", "--rule", "Attention").stdout
    assert "all else matched" in told
    assert "rules/idioms/" in told
