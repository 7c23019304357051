"""`rules test`: what it makes of rules that hold, and what it says of those that do not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from fusion_cli.rulekit.components import as_written, orders
from fusion_cli.rulekit.execute import Executor
from fusion_cli.rulekit.realise import realise
from fusion_cli.rulekit.sketch import Sketcher
from fusion_cli.rulekit.trial import Limits, Outcome, failures, rules_to_try, try_rules
from tests.helpers.cli_helpers import ROOT, call, needs_compiler

HEAD = '<domain: "fusion.rules", opset_import: ["": 23, "pattern": 1, "com.microsoft": 1]>'
MATCH_ONLY = Limits(kernels=0)


def write(folder: Path, body: str, signature: str = "R (x) => (y)", keys: str = "", name: str = "mine.rule") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"# summary: r\n{keys}{HEAD}\n{signature}\n{{\n{body}\n}}\n")
    return path


def tried(path: Path, limits: Limits = MATCH_ONLY, keep: Path | None = None) -> list[Outcome]:
    rules, known = rules_to_try([str(path)])
    return list(try_rules(rules, known, limits, keep=keep))


@needs_compiler
def test_a_fusion_is_found_compiled_and_compared(tmp_path: Path) -> None:
    path = write(tmp_path, "    h = pattern.Linear (x)\n    a = Mul (h, g)\n    y = Sigmoid (a)", "R (x, g) => (y)")
    (found,) = tried(path, Limits(graphs=2, orders=4, kernels=1))
    assert (found.status, found.kernel, found.line) == ("ok", "ok", 3)
    assert found.error is not None
    assert 0 <= found.error < 1e-5
    assert found.orders > found.graphs == 2


@needs_compiler
def test_a_kernel_with_other_numbers_is_a_failure(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples" / "custom_rule", tmp_path, dirs_exist_ok=True)
    template = tmp_path / "decay.cc.jinja"
    text = template.read_text()
    assert "std::exp(" in text
    template.write_text(text.replace("std::exp(", "std::exp2("))
    (found,) = tried(tmp_path / "decay.rule", Limits(graphs=1, orders=1, kernels=1))
    assert found.status == "failed"
    assert "numbers differ" in found.detail


def test_a_rule_that_is_not_found_says_where_and_keeps_the_graph(tmp_path: Path) -> None:
    path = write(tmp_path, "    a = Tanh (x)\n    y = Exp (a)", keys="# where: consumers(a) == 7\n")
    (found,) = tried(path, keep=tmp_path / "kept")
    assert found.status == "failed"
    assert "FUS106" in found.detail
    assert "consumers(a) == 7" in found.detail
    (kept,) = (tmp_path / "kept").glob("R-*.onnx")
    assert [n.op_type for n in onnx.load(kept).graph.node] == ["Tanh", "Exp"]


def test_conditions_that_no_graph_meets(tmp_path: Path) -> None:
    path = write(tmp_path, "    a = Tanh (x)\n    y = Exp (a)", keys="# where: rank(x) == 3 and rank(a) == 2\n")
    (found,) = tried(path)
    assert (found.status, found.graphs) == ("no graph", 0)
    assert found.detail == "no shapes that were tried meet `rank(a) == 2`"


@pytest.mark.parametrize(
    ("body", "signature", "keys", "said"),
    [
        (
            "    y = Relu (x)",
            "R (x) => (y)",
            "# where: rank(x) == 2 and rank(x) == 3\n",
            "`rank(x) == 2`, `rank(x) == 3`",
        ),
        ("    y = Transpose <perm = [0, 0]> (x)", "R (x) => (y)", "", "Transpose takes none of the inputs"),
        ('    y = Gelu <approximate = "tahn"> (x)', "R (x) => (y)", "", "Unsupported approximation_algorithm: tahn"),
        ('    y = Einsum <equation = "ab,bc,cd->ad"> (x, w)', "R (x, w) => (y)", "", "Einsum takes none of the inputs"),
    ],
)
def test_what_keeps_a_rule_from_any_graph_is_named(
    tmp_path: Path, body: str, signature: str, keys: str, said: str
) -> None:
    (found,) = tried(write(tmp_path, body, signature, keys))
    assert found.status == "no graph"
    assert said in found.detail


def test_an_operator_set_that_onnx_runtime_does_not_know_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, "    y = MatMul (x, w)", "R (x, w) => (y)", "# where: is_constant(w)\n")
    path.write_text(path.read_text().replace('"": 23', f'"": {onnx.defs.onnx_opset_version()}'))
    (found,) = tried(path)
    assert found.status == "ok" or "opset versions" in found.detail


@pytest.mark.parametrize(
    "body",
    [
        '    y = Einsum <equation = "i j, j k -> i k"> (x, w)',
        "    y = Conv <group = 1> (x, w)",
        "    y = ThresholdedRelu <alpha = 1.0> (x)",
        "    y = CumSum <exclusive = 0> (x, w)",
    ],
)
def test_defaults_count_and_equations_are_written_freely(tmp_path: Path, body: str) -> None:
    signature = "R (x, w) => (y)" if "w)" in body else "R (x) => (y)"
    (found,) = tried(write(tmp_path, body, signature), keep=tmp_path / "kept")
    assert found.status in ("ok", "matched")
    (kept,) = (tmp_path / "kept").glob("R-*.onnx")
    model = onnx.load(kept)
    for attribute in [*model.graph.node[0].attribute]:
        if attribute.name in ("group", "alpha", "exclusive"):
            model.graph.node[0].attribute.remove(attribute)
    onnx.save(model, tmp_path / "plain.onnx")
    result = call("explain", tmp_path / "plain.onnx", "--rule-path", tmp_path, "--rules", "R", "--json", "--force")
    assert result.exit_code == 0, result.stderr
    report = json.loads(result.stdout)
    assert not [r for r in report["rejected"] if r["code"] == "FUS103"]


def test_matched_without_a_kernel_is_told_apart(tmp_path: Path) -> None:
    path = write(tmp_path, "    a = Tanh (x)\n    y = CumSum (a, i)", "R (x, i) => (y)")
    found = tried(path, Limits(kernels=1))
    assert [(o.status, o.kernel) for o in found] == [("matched", "FUS202")]
    assert failures(found) == found


def test_operators_that_only_onnx_runtime_knows_are_matched(tmp_path: Path) -> None:
    path = write(tmp_path, "    a = com.microsoft.QAttention (x, rest)\n    y = Tanh (a)", "R (x, rest) => (y)")
    (found,) = tried(path)
    assert (found.status, found.graphs) == ("ok", 1)


def test_definitions_by_value_are_tried_in_many_arrangements(tmp_path: Path) -> None:
    body = """    half = Constant <value_float = 0.5> ()
    one = Constant <value_float = 1.0> ()
    t = Tanh (x)
    a = Add (t, one)
    m = Mul (x, a)
    y = Mul (m, half)"""
    path = write(tmp_path, body, keys="# match: values\n", name="idioms/mine.rule")
    (found,) = tried(path)
    assert found.status == "ok"
    assert found.graphs >= 6


def test_arrangements_compute_the_definition() -> None:
    from fusion_cli.rulekit.arrangements import arrangements
    from fusion_cli.rulekit.components import Component, model_of

    rules, _ = rules_to_try(["GeluErf", "GeluTanh", "HardSwish", "Mish", "QuickGelu", "Silu", "Softplus"])
    x = np.linspace(-6, 6, 24, dtype=np.float32)
    for rule in rules:
        (pattern,) = rule.patterns
        results = []
        for graph in arrangements(pattern, Executor({"": 24})):
            model = model_of([Component("c_", graph, as_written(graph))])
            session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
            shape = graph.values["x"].shape
            feed = np.resize(x, shape)
            results.append(np.resize(session.run(None, {"c_x": feed})[0].ravel()[:12], 12))
        assert len(results) >= 3, rule.name
        for result in results:
            np.testing.assert_allclose(result, results[0], rtol=1e-4, atol=1e-5, err_msg=rule.name)


def test_every_overload_of_an_idiom_comes_up_at_a_call() -> None:
    rules, known = rules_to_try(["Linear"])
    (linear,) = rules
    sketcher = Sketcher({r.name: r for r in known.idioms})
    pattern = next(p for p in linear.patterns if p.calls[0].is_pattern)
    called = known.find(pattern.calls[0].op)
    assert called is not None
    seen = {sketcher.sketch(pattern, v).choices[0] for v in sketcher.variations(pattern)}
    assert seen == {f"{called.name} {i}" for i in range(1, len(called.patterns) + 1)}


def test_operands_come_in_every_order(tmp_path: Path) -> None:
    path = write(tmp_path, "    a = Mul (x, b)\n    y = Add (a, c)", "R (x, b, c) => (y)")
    (rule,), known = rules_to_try([str(path)])
    (pattern,) = rule.patterns
    graph = realise(Sketcher({r.name: r for r in known.idioms}).sketch(pattern, {}), Executor({"": 23}))
    assert graph is not None
    assert set(orders(graph, 8)) == {((a, 1 - a), (b, 1 - b)) for a in (0, 1) for b in (0, 1)}
    assert len(orders(graph, 3)) == 3


@pytest.mark.parametrize("where", ["rank(x) == 4", "rank(x) == 2", "dtype(x) == int8", "dim(x, -1) == 4"])
def test_shapes_are_found_for_conditions(tmp_path: Path, where: str) -> None:
    path = write(tmp_path, "    a = Identity (x)\n    y = Cast <to = 1> (a)", keys=f"# where: {where}\n")
    text = path.read_text().replace("    a = Identity (x)\n", "").replace("(a)", "(x)")
    path.write_text(text.replace("Cast <to = 1>", "Cast <to = 1>" if "int8" in where else "Relu"))
    (found,) = tried(path)
    assert found.graphs == 1


def test_the_command_prints_a_table_and_json(tmp_path: Path) -> None:
    good = write(tmp_path, "    a = Tanh (x)\n    y = Exp (a)", "Good (x) => (y)", name="good.rule")
    bad = write(
        tmp_path, "    a = Tanh (x)\n    y = Exp (a)", "Bad (x) => (y)", "# where: consumers(a) > 1\n", "bad.rule"
    )
    result = call("rules", "test", good, bad, "--kernels", 0)
    assert result.exit_code == 1
    assert f"{bad}:4: Bad 1: failed: not found in 1 of 1" in result.stdout
    assert "2 overloads, 2 graphs: 1 failed" in result.stdout
    result = call("rules", "test", good, "--kernels", 0, "--json")
    assert result.exit_code == 0
    (found,) = json.loads(result.stdout)
    assert (found["rule"], found["overload"], found["status"], found["path"]) == ("Good", 1, "ok", str(good))


def test_rules_by_name_and_what_does_not_exist(tmp_path: Path) -> None:
    write(tmp_path, "    a = Tanh (x)\n    y = Exp (a)", "Mine (x) => (y)")
    result = call("rules", "test", "Mine", "--rule-path", tmp_path, "--kernels", 0, "--json")
    assert [o["rule"] for o in json.loads(result.stdout)] == ["Mine"]
    result = call("rules", "test", "LinearActivatoin")
    assert result.exit_code == 1
    assert "did you mean 'LinearActivation'?" in result.stderr
    result = call("rules", "test", tmp_path / "none.rule")
    assert "no such rule file or folder" in result.stderr


def test_a_matcher_that_minds_the_order_of_operands_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, "    a = Tanh (x)\n    y = Mul (a, b)", "R (x, b) => (y)")
    monkeypatch.setattr("fusion_cli.language.pattern.COMMUTATIVE", frozenset())
    (found,) = tried(path)
    assert (found.status, found.orders) == ("failed", 2)
    assert "not found in 1 of 2" in found.detail


def test_scalar_inputs_stay_scalars() -> None:
    (result,) = Executor({"": 23}).run("", "Tanh", [np.zeros((), np.float32)], {}, 1) or ()
    assert result.shape == ()
