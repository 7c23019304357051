"""The recognition benchmark: what is counted for whom, what a tool's output is found to be, and the page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from click.testing import CliRunner

from benchmarks import peers, recognition
from benchmarks.idioms import TRAPS, in_operators
from benchmarks.in_file import in_file, present
from benchmarks.recognition_model import TOOLS, Trial
from benchmarks.recognition_page import Tally, facts, page, shortfalls
from tests.helpers.graphs import parse

WEIGHTS = {"w": (8, 8), "w3": (8, 2, 4), "g": (8,), "beta": (8,)}
ERF = """r = Constant <value = float {1.41421356}> () one = Constant <value = float {1.0}> ()
    half = Constant <value = float {0.5}> () a = Div (h, r) e = Erf (a) f = Add (e, one) p = Mul (h, f)
    y = Mul (p, half)"""
MLP = f"n = LayerNormalization (x, g, beta) h = MatMul (n, w) {ERF}"


def graph(body: str, opset: int = 17) -> onnx.ModelProto:
    return parse(f"g (float[b, s, 8] x) => (float[b, s, 8] y) {{ {body} }}", WEIGHTS, opset)


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("y = Gelu (x)", {"gelu_erf": 1}),
        ('y = Gelu <approximate = "tanh"> (x)', {"gelu_tanh": 1}),
        ("y = com.microsoft.BiasSplitGelu (x, g)", {"gelu_erf": 1, "geglu": 1}),
        ("y = com.microsoft.QuickGelu <alpha = 1.0> (x)", {"silu": 1}),
        ("y = com.microsoft.QuickGelu (x)", {"quickgelu": 1}),
        ("y = com.microsoft.GroupNorm <groups = 2, activation = 1> (x, g, beta)", {"groupnorm": 1, "silu": 1}),
        ("y = com.microsoft.GroupNorm <groups = 2, activation = 0> (x, g, beta)", {"groupnorm": 1}),
        ("y, m, v, s = com.microsoft.SkipLayerNormalization (x, x, g, beta)", {"layernorm": 1}),
        ("y = com.microsoft.Attention <num_heads = 2> (x, w, g)", {"attention": 1, "linear": 3}),
        ("y = com.microsoft.GroupQueryAttention <do_rotary = 1> (x, x, x)", {"attention": 1, "rope": 2}),
        ("t = Transpose (w) y = MatMul (x, t)", {"linear": 1}),
        ("y = com.microsoft.FusedMatMul (x, w)", {"linear": 1}),
        ('y = Einsum <equation = "bsi,ihd->bshd"> (x, w3)', {"linear": 1}),
        ("y = MatMul (x, x)", {}),
        ("y = Mul (x, g)", {}),
    ],
)
def test_what_an_operator_stands_for(body: str, found: dict[str, int]) -> None:
    assert dict(+in_operators(graph(body))) == found


def test_operators_in_branches_count() -> None:
    yes, no = (f"{name} () => (float[b, s, 8] {name}o) {{ {name}o = Gelu (x) }}" for name in ("t", "e"))
    body = f"c = Constant <value = bool {{1}}> () y = If (c) <then_branch = {yes}, else_branch = {no}>"
    assert in_operators(graph(body, 20))["gelu_erf"] == 2


@pytest.mark.parametrize(
    ("body", "idiom", "held"),
    [
        ("s = Softmax (x) t = Mul (s, x) y = MatMul (t, x)", "attention", 1),
        ("y = Softmax (x)", "attention", 0),
        ("s = Sqrt (x) half = Constant <value = float {-0.5}> () y = Pow (s, half)", "layernorm", 2),
        ("two = Constant <value = float {2.0}> () y = Pow (x, two)", "layernorm", 0),
        (ERF.replace("h,", "x,"), "gelu_erf", 1),
        ("n = Neg (x) y = Concat <axis = -1> (n, x)", "rope", 1),
        ("n = Neg (x) y = Add (n, x)", "rope", 0),
        ("n = MatMul (x, w) y = MatMul (n, w)", "linear", 2),
    ],
)
def test_what_a_file_can_hold(body: str, idiom: str, held: int) -> None:
    assert in_file(graph(body))[idiom] == held


def test_truth_is_an_upper_bound_unless_the_file_can_be_counted() -> None:
    bounds = {"silu": 3, "linear": 9}
    assert present({"silu": 5}, bounds, "silu") == 3
    assert present({"silu": 2}, bounds, "silu") == 2
    assert present({"linear": 1}, bounds, "linear") == 9
    assert present({"swiglu": 4}, bounds, "swiglu") == 4, "nothing in the file bounds it"


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """A corpus of one model: a norm, a linear layer and a GELU."""
    model = graph(MLP)
    onnx.save(model, tmp_path / "m.onnx")
    x = np.random.default_rng(0).normal(size=(2, 3, 8)).astype(np.float32)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    np.savez(tmp_path / "m.npz", in__x=x, out__y=session.run(None, {"x": x})[0])
    truth = {"layernorm": 1, "linear": 1, "gelu_erf": 1}
    entry = {"id": "m", "arch": "m", "exporter": "ts", "opset": 17, "dtype": "f32", "truth": truth}
    (tmp_path / "index.json").write_text(json.dumps([entry]))
    return tmp_path


def test_one_run_says_what_every_tool_recognises(corpus: Path) -> None:
    arguments = [str(corpus), "--results", str(corpus / "r.jsonl")]
    run = CliRunner().invoke(recognition.main, [*arguments, "--json", str(corpus / "r.json")])
    assert run.exit_code == 0, run.output
    for idiom in ("layernorm", "gelu_erf", "linear"):
        assert f"| {idiom} | ts17 |" + " 1/1 (100%) |" * len(TOOLS) in run.output
    assert json.loads((corpus / "r.json").read_text())["outcomes"] == {tool: {"ok": 1} for tool in TOOLS}
    before = (corpus / "r.jsonl").read_text()
    again = CliRunner().invoke(recognition.main, [*arguments, "--markdown", str(corpus / "docs" / "r.md")])
    assert (corpus / "r.jsonl").read_text() == before, "what is done is not done again"
    assert (corpus / "docs" / "r.md").read_text() in again.output


def test_what_becomes_of_an_output(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = Trial(corpus / "m.onnx", 1e-3)

    def status(left: onnx.ModelProto | bytes) -> str:
        def leave(model: Path, output: Path) -> dict[str, int]:
            output.write_bytes(left if isinstance(left, bytes) else left.SerializeToString())
            return {"layernorm": 1}

        monkeypatch.setattr("benchmarks.recognition_model.onnx_runtime", leave)
        result = trial.peer("ONNX Runtime", corpus / "left.onnx")
        assert result["idioms"] == {"layernorm": 1}, "what was recognised counts whatever became of the output"
        assert str(corpus) not in result["detail"]
        return str(result["status"])

    assert status(onnx.load(corpus / "m.onnx")) == "ok"
    assert status(graph("y = Identity (x)")) == "wrong"
    assert status(b"no model") == "invalid"
    # The GroupNorm of ONNX Runtime has no CPU kernel.
    assert status(graph("y = com.microsoft.GroupNorm <groups = 2, activation = 0> (x, g, beta)")) == "unsupported"
    assert status(graph("sh = Constant <value = int64[1] {7}> () y = Reshape (x, sh)")) == "error"


def test_what_a_tool_raises_is_its_result(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(model: Path, output: Path) -> dict[str, int]:
        raise TypeError("not iterable")

    monkeypatch.setattr("benchmarks.recognition_model.onnxscript_fusions", fail)
    result = Trial(corpus / "m.onnx", 1e-3).peer("onnxscript", corpus / "left.onnx")
    assert result == {"status": "error", "detail": "TypeError: not iterable"}


def test_of_equal_model_types_the_first_that_is_right_is_taken(corpus: Path) -> None:
    asked: list[str] = []

    def only_the_third(path: Path) -> bool:
        asked.append(path.suffixes[0])
        return len(asked) == 3

    output = corpus / "best.onnx"
    found = peers.transformer_optimizer(corpus / "m.onnx", output, only_the_third)
    assert found["layernorm"] == found["gelu_erf"] == 1
    assert asked == [".bert", ".gpt2", ".bart"]
    assert output.is_file()


def test_a_type_that_cannot_be_computed_in_keeps_the_exporters_operators(tmp_path: Path) -> None:
    body = "n = LayerNormalization (x, g, beta) y = MatMul (n, w)"
    model = graph(body)
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.elem_type = onnx.TensorProto.BFLOAT16
    for tensor in model.graph.initializer:
        count = int(np.prod(tensor.dims))
        tensor.CopyFrom(onnx.helper.make_tensor(tensor.name, onnx.TensorProto.BFLOAT16, tensor.dims, [1.0] * count))
    onnx.save(model, tmp_path / "m.onnx")
    assert dict(peers.onnx_runtime(tmp_path / "m.onnx", tmp_path / "o.onnx")) == {"layernorm": 1, "linear": 1}


def tally(results: list[dict[str, Any]], arch: str = "mlp_silu") -> Tally:
    truth = {"silu": 3, "attention": 1}
    entries = [{"id": "a", "arch": arch, "exporter": "ts", "opset": 17, "dtype": "f32", "truth": truth}]
    return Tally(entries, [{"id": "a", "status": "ok", "detail": "", **r} for r in results], {"a": {"silu": 2}})


def test_a_tool_that_leaves_nothing_recognises_nothing() -> None:
    made = tally([{"mode": "fusion-cli", "idioms": {"silu": 2, "attention": 1}}, {"mode": "ORT", "status": "crash"}])
    assert "| silu | ts17 | 2/2 (100%) [3] | 0/2 (0%) [3] |" in page(made)
    assert "| a | ORT | crash |" in page(made)
    assert "| mlp_silu | silu | ts17 | 3 → 2 | not explained |" in page(made)
    assert shortfalls(made) == []
    assert facts(made)["outcomes"] == {"fusion-cli": {"ok": 1}, "ORT": {"crash": 1}}


@pytest.mark.parametrize(
    ("result", "said"),
    [
        ({"idioms": {"silu": 2}}, ["attention ts17: 0 of 1"]),
        ({"idioms": {"silu": 1, "attention": 1}}, ["silu ts17: 1 of 2"]),
        ({"idioms": {"silu": 2, "attention": 1}, "status": "wrong", "worst": 0.5}, ["a: wrong"]),
    ],
)
def test_where_we_fall_short_of_the_goal(result: dict[str, Any], said: list[str]) -> None:
    assert shortfalls(tally([{"mode": "fusion-cli", **result}])) == said
    assert shortfalls(tally([{"mode": "onnxscript", **result}])) == [], "others have no goal"


def test_a_trap_taken_for_what_it_is_not_is_named() -> None:
    arch = "mlp_sigmoid"
    assert TRAPS[arch]["silu"] == 0
    found = {"silu": 2, "attention": 1}
    made = tally([{"mode": "fusion-cli", "idioms": found}, {"mode": "onnxscript", "idioms": found}], arch)
    assert shortfalls(made) == ["a: silu reported 2 times"]
    assert "| a | onnxscript | silu | 2 reported, at most 0 |" in page(made)
