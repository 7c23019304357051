"""The reasons that `explain` gives are those of the model's author: each model has one, it is the true obstacle, the
hint works when it is followed, and what has nothing to do with the model is not told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnxruntime.tools.onnx_model_utils import make_dim_param_fixed

from tests.explain.test_explain import answer, explain, first, overridable, saved
from tests.helpers.cli_helpers import call
from tests.helpers.graphs import parse

CONV_RELU = """g (float[1,3,8,8] x, float[4,3,3,3] w) => (float[1,4,6,6] y) {
    c = Conv (x, w) y = Relu (c)
}"""
GELU = """g (float[batch,seq,64] x) => (float[n,m,64] y) {
    half = Constant <value = float {0.5}> () one = Constant <value = float {1.0}> ()
    root = Constant <value = float {1.41421356}> ()
    d = Div (x, root) e = Erf (d) a = Add (e, one) h = Mul (x, half) y = Mul (h, a)
}"""
QDQ = """g (float[1,3,8,8] x) => (float[1,3,8,8] y) {
    scale = Constant <value = float {0.1}> () zero = Constant <value = int8 {0}> ()
    q = QuantizeLinear (x, scale, zero) y = DequantizeLinear (q, scale, zero)
}"""
BRANCH = """g (bool c, float[4,8] x) => (float[4,8] y) {
    y = If (c) <then_branch = t () => (float[4,8] a) { a = Exp (x) },
                else_branch = e () => (float[4,8] d) { d = Sin (x) }>
}"""
TRAINED = """g (float[4,8] x, float[4,8] z) => (float[4,8] y) {
    ratio = Constant <value = float {0.5}> () training = Constant <value = bool {1}> ()
    a = Add (x, z) y = Dropout (a, ratio, training)
}"""
MOVED = """g (float[2,6,16] x, float[2,6,16] z) => (float[2,16,16] y) {
    t = Transpose <perm = [0,2,1]> (x) y = MatMul (t, z)
}"""
SOFTMAX = """g (float[4,6,8] x, float[4,6,8] z) => (float[4,6,8] y) { a = Add (x, z) y = Softmax <axis = 1> (a) }"""
OLD_NORM = """g (float[2,4,8] x, float[2,4,8] z) => (float[2,4,8] y) {
    n = LayerNormalization (x, gamma, beta) q = MatMul (n, wq) k = MatMul (n, wk) v = MatMul (n, wv)
    a = Add (q, k) b = Add (a, v) y = Add (b, n)
}"""
OLD_WEIGHTS = {"gamma": (8,), "beta": (8,), "wq": (8, 8), "wk": (8, 8), "wv": (8, 8)}


def told(path: Path, *options: object) -> str:
    result = call("explain", path, "--target", "cpu", *options)
    assert result.exit_code == 0, result.output
    return result.stdout


def uncovered(data: dict[str, Any]) -> list[dict[str, Any]]:
    return [r for r in data["rejected"] if r["rule"] and not r["covered_by"]]


# ---- every model has a reason


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        (CONV_RELU, "FUS106", "`w` is a graph input: export the model with it as an initializer"),
        (QDQ, "FUS113", "fuse the float model"),
        (BRANCH, "FUS113", "1 If"),
        (TRAINED, "FUS114", "export the model for inference"),
        (MOVED, "FUS114", "1 MatMul, 1 Transpose"),
    ],
)
def test_a_model_in_which_nothing_is_fused_is_told_why(tmp_path: Path, text: str, code: str, said: str) -> None:
    path = saved(parse(text), tmp_path)
    data = explain(path)
    assert data["fusions"] == []
    assert code in [r["code"] for r in data["rejected"]]
    assert f"- {code}" in told(path)
    assert said in told(path)


def test_nodes_that_nothing_was_said_of_are_counted_by_operator_and_never_twice(tmp_path: Path) -> None:
    body = " ".join(f"t{i} = CumSum (x, axis) u{i} = Sin (t{i}) x{i} = Transpose (u{i})" for i in range(3))
    model = parse(f"g (float[4,8] x) => (float[8,4] x0, float[8,4] x1, float[8,4] x2) {{ {body} }}")
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.int64(1), "axis"))
    model.graph.node[3].input[0], model.graph.node[6].input[0] = "u0", "u1"  # or they are one
    data = explain(saved(model, tmp_path))
    counted = {(r["code"], r["found"]): r["places"] for r in data["rejected"] if not r["rule"]}
    assert counted == {("FUS113", "CumSum"): 3, ("FUS114", "Sin"): 3, ("FUS114", "Transpose"): 3}
    assert explain(saved(parse(CONV_RELU), tmp_path))["rejected"][-1]["rule"]  # Conv and Relu are spoken of


def test_what_would_save_nothing_is_told_where_there_is_nothing_else(tmp_path: Path) -> None:
    # ONNX Runtime fuses these two itself.
    path = saved(parse("g (float[3,4] x, float[4,3] w) => (float[3,3] y) { h = Gemm (x, w) y = Relu (h) }"), tmp_path)
    assert first(explain(path), rule="LinearActivation")["saving_us"] == 0
    assert "export the model with it as an initializer" in told(path)


# ---- regions that end early


def test_a_graph_output_may_give_its_sizes_other_names(tmp_path: Path) -> None:
    data = explain(saved(parse(GELU, opset=13), tmp_path), "--force")
    assert [len(f["nodes"]) for f in data["fusions"]] == [5]


def test_a_softmax_over_another_axis_ends_a_region_of_rows(tmp_path: Path) -> None:
    miss = first(explain(saved(parse(SOFTMAX), tmp_path)), rule="RowwiseRegion", code="FUS103")
    assert (miss["node"], miss["nodes"]) == ("n_y", ["n_a", "n_y"])
    assert (miss["expected"], miss["found"]) == ("Softmax with axis = -1", "axis = -2")
    assert "FUS103" not in {
        r["code"] for r in explain(saved(parse(SOFTMAX.replace("= 1>", "= 2>")), tmp_path))["rejected"]
    }


def test_sizes_that_are_not_known_to_be_equal_end_a_region_and_fixing_them_helps(tmp_path: Path) -> None:
    model = parse("g (float[n,8] x, float[m,8] z) => (float[k,8] y) { a = Exp (x) y = Add (a, z) }")
    miss = first(explain(saved(model, tmp_path)), code="FUS109")
    assert (miss["rule"], miss["node"], miss["nodes"]) == ("PointwiseRegion", "n_y", ["n_a", "n_y"])
    assert "onnxruntime.tools.make_dynamic_shape_fixed" in miss["hint"]
    make_dim_param_fixed(model.graph, "n", 4)
    make_dim_param_fixed(model.graph, "m", 4)
    make_dim_param_fixed(model.graph, "k", 4)
    data = explain(saved(model, tmp_path), "--force")
    assert [f["nodes"] for f in data["fusions"]] == [["n_a", "n_y"]]
    other = parse("g (float[4,8] x, float[1,8] z) => (float[4,8] y) { a = Exp (z) y = Add (a, x) }")
    assert "FUS109" not in {r["code"] for r in explain(saved(other, tmp_path))["rejected"]}


def test_sizes_of_equal_layers_are_told_once_whatever_they_are_called(tmp_path: Path) -> None:
    text = """g (float[n,8] x, float[m,8] z, float[k,8] w) => (float[a,8] y, float[b,8] v) {
        p = Exp (x) y = Add (p, z) q = Exp (z) v = Add (q, w)
    }"""
    told = [r for r in explain(saved(parse(text), tmp_path))["rejected"] if r["code"] == "FUS109"]
    assert [(r["rule"], r["places"]) for r in told] == [("PointwiseRegion", 2)]


@pytest.mark.parametrize(
    ("sizes", "found", "hint"),
    [
        ("int64[4] sizes", "[", "onnxruntime.tools.make_dynamic_shape_fixed"),
        ("int64[rank] sizes", "of unknown shape", "shapes are unknown from Reshape n_r on"),
    ],
)
def test_attention_through_a_reshape_that_may_keep_the_axis_of_keys_is_told(
    sizes: str, found: str, hint: str, tmp_path: Path
) -> None:
    model = parse(
        f"""g (float[n,4,s,16] q, float[n,4,16,t] k, float[n,4,t,16] v, {sizes}) => (float[n,4,s,16] y) {{
            a = MatMul (q, k) r = Reshape (a, sizes) p = Softmax <axis = -1> (r)
            s0 = Shape (a) w = Reshape (p, s0) y = MatMul (w, v)
        }}"""
    )
    miss = first(explain(saved(model, tmp_path)), code="FUS109")
    assert (miss["rule"], miss["node"]) == ("Attention", "n_r")
    assert miss["expected"] == "a reshape that keeps the last axis of 'a', [n,4,s,t]"
    assert miss["found"].startswith(found)
    assert hint in miss["hint"]


# ---- operators and shapes that are not known


def test_an_operator_older_than_its_opset_is_told_once(tmp_path: Path) -> None:
    data = explain(saved(parse(OLD_NORM, OLD_WEIGHTS, opset=14), tmp_path))
    miss = first(data, code="FUS115")
    assert miss["found"] == "LayerNormalization, which ONNX has from opset 17 on, not in 14"
    assert miss["hint"] == "export the model with opset 17 or newer"
    assert len([r for r in uncovered(data) if r["code"] == "FUS115"]) == 1
    assert "FUS115" not in {r["code"] for r in explain(saved(parse(OLD_NORM, OLD_WEIGHTS), tmp_path))["rejected"]}


def test_a_domain_that_is_not_imported_can_be(tmp_path: Path) -> None:
    text = """g (float[2,4,8] x, float[2,4,8] z) => (float[2,4,8] y) {
        r = Add (x, z) n = com.microsoft.SkipLayerNormalization (r, x, gamma, beta) y = Add (n, z)
    }"""
    model = parse(text, {"gamma": (8,), "beta": (8,)})
    kept = [o for o in model.opset_import if not o.domain]
    del model.opset_import[:]
    model.opset_import.extend(kept)
    miss = first(explain(saved(model, tmp_path)), code="FUS115")
    assert "imports no 'com.microsoft'" in miss["found"]
    assert miss["hint"] == "append onnx.helper.make_opsetid('com.microsoft', 1) to the model's opset_import"
    model.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    assert "FUS115" not in {r["code"] for r in explain(saved(model, tmp_path))["rejected"]}


def test_an_operator_that_no_opset_has(tmp_path: Path) -> None:
    text = "g (float[2,8] x, float[2,8] z) => (float[2,8] y) { r = Add (x, z) y = SimplifiedLayerNormalization (r, w) }"
    miss = first(explain(saved(parse(text, {"w": (8,)}), tmp_path)), code="FUS115")
    assert miss["found"] == "SimplifiedLayerNormalization, but it is ONNX Runtime's own"
    assert "before ONNX Runtime's optimizer" in miss["hint"]


def test_where_shapes_get_lost_is_named_and_declaring_the_shape_there_helps(tmp_path: Path) -> None:
    text = """g (float[4,8] x) => (float[4,8] y) {
        q = com.microsoft.Nobody (x) a = Exp (q) h = MatMul (a, w) y = Relu (h)
    }"""
    model = parse(text, {"w": (8, 8)})
    miss = first(explain(saved(model, tmp_path)), code="FUS112")
    assert "shapes are unknown from Nobody n_q on" in miss["hint"]
    assert "symbolic_shape_infer" in miss["hint"]
    assert "shapes are unknown from Nobody n_q on" in answer(saved(model, tmp_path), "n_h")["text"]
    model.graph.value_info.append(onnx.helper.make_tensor_value_info("q", 1, [4, 8]))
    assert "LinearActivation" in {f["rule"] for f in explain(saved(model, tmp_path), "--force")["fusions"]}


def test_a_shape_that_only_its_author_knows_is_to_be_declared(tmp_path: Path) -> None:
    """ONNX Runtime's shape inference fails on a model with an operator of a domain that it does not know."""
    model = parse(
        "g (float[4,8] x) => (float[4,8] y) { q = own.Nobody (x) a = Exp (q) h = MatMul (a, w) y = Relu (h) }",
        {"w": (8, 8)},
    )
    model.opset_import.append(onnx.helper.make_opsetid("own", 1))
    miss = first(explain(saved(model, tmp_path)), code="FUS112")
    assert "declare the type and shape of `q` in the model's value_info" in miss["hint"]
    model.graph.value_info.append(onnx.helper.make_tensor_value_info("q", 1, [4, 8]))
    assert "LinearActivation" in {f["rule"] for f in explain(saved(model, tmp_path), "--force")["fusions"]}


def test_an_input_without_a_shape_is_named(tmp_path: Path) -> None:
    model = parse("g (float[4,8] x, float[4,8] z) => (float[4,8] y) { a = Add (x, z) y = Exp (a) }")
    model.graph.input[1].type.tensor_type.ClearField("shape")
    told_of = [r["hint"] for r in explain(saved(model, tmp_path))["rejected"] if r["code"] in ("FUS112", "FUS201")]
    assert "declare the type and the rank of `z` in the model" in told_of


def test_an_axis_of_a_value_of_unknown_rank_is_told_in_words(tmp_path: Path) -> None:
    text = """g (float[2,6,16] x) => (float[2,6,16] y) {
        q = com.microsoft.Nobody (x) t = Transpose <perm = [0,2,1]> (q) s = MatMul (q, t)
        p = Softmax <axis = 2> (s) y = MatMul (p, q)
    }"""
    miss = first(explain(saved(parse(text), tmp_path)), rule="Attention", code="FUS103")
    assert miss["found"] == "an axis of 's', whose rank is not known"
    assert "shapes are unknown from Nobody n_q on" in miss["hint"]


def test_an_operator_of_onnx_runtimes_optimizer_has_no_kernel(tmp_path: Path) -> None:
    text = """g (float[4,8] x) => (float[4,8] y) {
        h = com.microsoft.FusedGemm <activation = "Tanh"> (x, w, b) y = Relu (h)
    }"""
    model = parse(text, {"b": (8,), "w": (8, 8)})
    model.graph.value_info.append(onnx.helper.make_tensor_value_info("h", 1, [4, 8]))
    miss = first(explain(saved(model, tmp_path)), code="FUS202")
    assert miss["hint"] == "fuse the model as it was exported, before ONNX Runtime's optimizer"


# ---- no jargon, no repetition, no noise


def test_texts_speak_of_the_model(tmp_path: Path) -> None:
    text = """g (float[2,6,16] x) => (float[2,6,6] y) {
        t = Transpose <perm = [0,2,1]> (x) s = MatMul (x, t) m = ReduceMax <axes = [-1]> (s) d = Sub (s, m)
        e = Exp (d) l = Constant <value_ints = [-1]> () z = ReduceSum (e, l) y = Sub (e, z)
    }"""
    data = explain(saved(parse(text), tmp_path), "--rule", "Attention")
    texts = [r[key] for r in data["rejected"] for key in ("expected", "found", "hint")]
    assert texts
    assert not [t for t in texts if "pattern." in t]
    assert any("(in the rule: " in t for t in texts)


def test_the_same_condition_of_several_layers_is_told_once(tmp_path: Path) -> None:
    text = """g (float[4,8] x, float[8,8] v, float[8,16] w) => (float[4,16] y) {
        h = MatMul (x, v) r = Relu (h) n = Neg (r) k = MatMul (n, w) s = Sigmoid (k) y = Abs (s)
    }"""
    found = [r for r in uncovered(explain(saved(parse(text), tmp_path))) if r["rule"] == "LinearActivation"]
    assert [(r["code"], r["places"]) for r in found] == [("FUS106", 2)]


def test_a_convolution_with_overridable_weights_and_one_with_computed_ones(tmp_path: Path) -> None:
    path = saved(overridable(parse(CONV_RELU.replace(", float[4,3,3,3] w", ""), {"w": (4, 3, 3, 3)})), tmp_path)
    assert "--assume-constant w" in first(explain(path), rule="ConvBatchNormRelu")["hint"]
    mended = explain(path, "--assume-constant", "w", "--force")
    assert [f["rule"] for f in mended["fusions"]] == ["ConvBatchNormRelu"]
    computed = CONV_RELU.replace("c = Conv (x, w)", "e = Exp (w) c = Conv (x, e)")
    assert "computed at run time" in first(explain(saved(parse(computed), tmp_path)), rule="ConvBatchNormRelu")["found"]


@pytest.mark.parametrize(
    ("text", "weights", "rules"),
    [
        (  # keys and values put together are no rotary embedding
            """g (float[2,4,8] k, float[2,4,8] v) => (float[2,2,4,8] y) {
                axes = Constant <value_ints = [0]> () a = Unsqueeze (k, axes) b = Unsqueeze (v, axes)
                y = Concat <axis = 0> (a, b)
            }""",
            {},
            {"Joined"},
        ),
        (  # a product of halves with anything is no gated unit
            """g (float[2,4,8] x, float[2,4,4] c) => (float[2,4,4] y) {
                sizes = Constant <value_ints = [4, 4]> () a, b = Split <axis = -1> (x, sizes)
                p = Mul (a, c) y = Sub (p, b)
            }""",
            {},
            {"Bilinear"},
        ),
        (  # a gate that is no activation of a linear layer is none of those that are
            """g (float[2,4,8] x) => (float[2,4,8] y) {
                a = MatMul (x, v) s = Sin (a) b = MatMul (x, w) y = Mul (s, b)
            }""",
            {"v": (8, 8), "w": (8, 8)},
            {"ReGLU", "GLU"},
        ),
        (  # nine parts of a linear layer are no queries, keys and values
            """g (float[2,8] x) => (float[2,8] y) {
                h = MatMul (x, w) sizes = Constant <value_ints = [8, 8, 8, 8]> ()
                a, b, c, d = Split <axis = -1> (h, sizes) p = Add (a, b) q = Sub (c, d) y = Add (p, q)
            }""",
            {"w": (8, 32)},
            {"PackedQKV"},
        ),
    ],
)
def test_what_only_looks_like_a_part_of_a_rule_is_not_told(
    tmp_path: Path, text: str, weights: dict[str, tuple[int, ...]], rules: set[str]
) -> None:
    data = explain(saved(parse(text, weights), tmp_path))
    assert not rules & {r["rule"] for r in data["rejected"]}


# ---- --node


def test_a_linear_layer_is_told_what_follows_it(tmp_path: Path) -> None:
    moved = "g (float[4,8] x) => (float[8,4] y) { h = MatMul (x, w) y = Transpose (h) }"
    found = answer(saved(parse(moved, {"w": (8, 8)}), tmp_path), "n_h")
    assert (found["verdict"], found["code"]) == ("missed", "FUS101")
    assert "Pointwise that reads 'h'" in found["text"]
    assert "'h' goes to Transpose" in found["text"]
    text = "g (float[4,8] x, float[3,4,8] z) => (float[3,4,8] y) { h = MatMul (x, w) y = Add (h, z) }"
    found = answer(saved(parse(text, {"w": (8, 8)}), tmp_path), "n_h")
    assert "'h', [4,8], goes to Add of [3,4,8]" in found["text"]
    # Unasked, a linear layer that is followed by something else misses nothing.
    rejected = explain(saved(parse(moved, {"w": (8, 8)}), tmp_path))["rejected"]
    assert "LinearActivation" not in {r["rule"] for r in rejected}


def test_a_lone_scale_is_not_taken_for_a_part_of_anything(tmp_path: Path) -> None:
    text = """g (float[2,6,16] x, float[2,16,6] z) => (float[2,6,6] y) {
        three = Constant <value = float {3.0}> () s = Mul (x, three) y = MatMul (s, z)
    }"""
    found = answer(saved(parse(text), tmp_path), "n_s")
    assert (found["verdict"], found["code"]) == ("not near", "FUS114")


def test_a_node_that_is_understood_says_as_what(tmp_path: Path) -> None:
    text = "g (float[4,8] x) => (float[8,4] y) { h = Gelu (x) y = Transpose (h) }"
    assert "it is part of GeluErf" in answer(saved(parse(text, opset=20), tmp_path), "n_h")["text"]


def test_a_node_that_computes_a_shape_is_nothing_to_fuse(tmp_path: Path) -> None:
    text = """g (float[n,8] x, float[m] z) => (float[n,8] y, int64[2] s) {
        s = Shape (x) y = Exp (x)
    }"""
    assert "computes sizes" in answer(saved(parse(text), tmp_path), "n_s")["text"]


def test_the_hint_comes_with_the_answer(tmp_path: Path) -> None:
    assert "export the model for inference" in answer(saved(parse(TRAINED), tmp_path), "n_y")["text"]
