"""The fused model against the original: what is compared, what is skipped, and what is taken back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from fusion_cli.load import load_model
from fusion_cli.measured import OpCheck, OutputCheck, Verification
from fusion_cli.sessions import Array, CannotRun, LocalRunner, open_model
from fusion_cli.sessions.process import Process
from fusion_cli.types import Candidate, FusedOp, Library, Options, Region, TensorSpec
from fusion_cli.verify import rollback
from fusion_cli.verify.ops import Call, check_ops, single_op_model
from fusion_cli.verify.signature import signature_of
from fusion_cli.verify.whole_model import reference_for, verify_model
from tests.helpers.graphs import parse
from tests.helpers.reason_codes import explained
from tests.helpers.timings import timing

X = "float[batch, 4] x"
FUNCTIONS = """<domain: "fusion", opset_import: ["": 17, "fusion": 1]>
Outer_1 (x, w) => (y) {
    b = fusion.Third_3 (x, w)
    y = Relu (b)
}
<domain: "fusion", opset_import: ["": 17]>
Inner_2 (x, w) => (y) { y = Add (x, w) }
<domain: "fusion", opset_import: ["": 17]>
Third_3 (x, w) => (y) { y = Mul (x, w) }
"""
FUSED = (
    """<ir_version: 10, opset_import: ["": 17, "fusion": 1]>
g (float[batch, 4] x) => (float[batch, 4] y) <float[4] w = {1, 2, 3, 4}> {
    [first] a = fusion.Outer_1 (x, w)
    [second] y = fusion.Inner_2 (a, w)
}
"""
    + FUNCTIONS
)


def save(folder: Path, text: str, name: str = "m.onnx") -> Path:
    onnx.save(parse(text), folder / name)
    return folder / name


def op(name: str, targets: tuple[str, ...] = ("cpu",), size: int = 4) -> FusedOp:
    node = ir.Node("", "Relu", [ir.Value(name="x")], name=f"node of {name}")
    candidate = Candidate(Region("Rule", (node,), (), (), ()), None, {}, targets)
    function = ir.Function("fusion", name, graph=ir.Graph([], [], nodes=[]), attributes=[])
    inputs = (TensorSpec("x", "float32", ("batch", size)), TensorSpec("w", "float32", (size,)))
    output = (TensorSpec("y", "float32", ("batch", size)),)
    return FusedOp(name, "Rule", "auto", function, None, inputs, output, (candidate,), (f"{name}_1",), targets)


def fused_model(folder: Path) -> Path:
    model = onnx.parser.parse_model(FUSED)
    onnx.save(model, folder / "fused.onnx")
    return folder / "fused.onnx"


def test_equal_models_agree(tmp_path: Path) -> None:
    a = save(tmp_path, f"g ({X}) => (float[batch, 4] y, float[batch, 4] z) {{ y = Relu (x) z = Exp (x) }}")
    reference = reference_for(a, Options())
    result = verify_model(reference, [partial(open_model, a)])
    assert result.ok
    assert [(o.output, o.error) for o in result.outputs] == [("y", 0.0), ("z", 0.0)]
    assert result.skipped == ""


def test_the_worst_variant_counts(tmp_path: Path) -> None:
    a = save(tmp_path, f"g ({X}) => (float[batch, 4] y) {{ y = Exp (x) }}")
    b = save(tmp_path, f"g ({X}) => (float[batch, 4] y) {{ z = Exp (x) y = Add (z, z) }}", "b.onnx")
    result = verify_model(reference_for(a, Options()), [partial(open_model, b), partial(open_model, a)])
    assert not result.ok
    assert result.outputs[0].error == pytest.approx(1.0)


def test_the_worst_size_counts(tmp_path: Path) -> None:
    a = save(tmp_path, f"g ({X}) => (float[batch, 4] y) {{ y = Exp (x) }}")
    times_rows = "n = Shape <start = 0, end = 1> (x) f = Cast <to = 1> (n) e = Exp (x) y = Mul (e, f)"
    b = save(tmp_path, f"g ({X}) => (float[batch, 4] y) {{ {times_rows} }}", "b.onnx")
    reference = reference_for(a, Options())
    assert [case.feeds["x"].shape[0] for case in reference.cases] == [1, 2]
    (check,) = verify_model(reference, [partial(open_model, b)]).outputs
    assert check.error == pytest.approx(1.0)


def test_an_output_that_is_missing_differs(tmp_path: Path) -> None:
    a = save(tmp_path, f"g ({X}) => (float[batch, 4] y) {{ y = Exp (x) }}")
    b = save(tmp_path, f"g ({X}) => (float[batch, 4] z) {{ z = Exp (x) }}", "b.onnx")
    assert not verify_model(reference_for(a, Options()), [partial(open_model, b)]).ok


def test_a_fused_model_that_does_not_run_is_a_failure_with_the_reason(tmp_path: Path) -> None:
    a = save(tmp_path, f"g ({X}) => (float[batch, 4] y) {{ y = Exp (x) }}")
    b = save(tmp_path, f"g ({X}) => (float[batch, 4] y) {{ y = com.microsoft.NoSuchThing (x) }}", "b.onnx")
    result = verify_model(reference_for(a, Options()), [partial(open_model, b)])
    assert not result.ok
    assert "NoSuchThing" in result.skipped


def test_a_model_that_onnx_runtimes_optimizations_break_is_skipped_with_the_reason(tmp_path: Path) -> None:
    """They merge a Pad into a MaxPool that then pads by more than its kernel, and refuse to run that."""
    text = """g (float[1, 1, 5, 5] x) => (float[1, 1, 7, 9] y)
    <int64[8] pads = {0, 0, 2, 3, 0, 0, 2, 3}, float low = {0}> {
        p = Pad <mode = "constant"> (x, pads, low) y = MaxPool <kernel_shape = [3, 3], pads = [0, 0, 0, 0]> (p) }"""
    path = tmp_path / "pad.onnx"
    onnx.save(parse(text), path)
    reference = reference_for(path, Options())
    result = verify_model(reference, [partial(open_model, path)])
    assert (result.ok, result.outputs) == (True, ())
    assert "optimizations keep the original from running" in result.skipped


def test_an_original_that_does_not_run_is_skipped_with_the_reason(tmp_path: Path) -> None:
    text = "g (bfloat16[2, 2] x) => (bfloat16[2, 2] y) { y = MatMul (x, x) }"
    a = save(tmp_path, text)
    with pytest.raises(CannotRun, match="NOT_IMPLEMENTED"):
        reference_for(a, Options())
    with Process() as process:
        verification, failed = rollback.Trial(a, Options(), process, signature_of(load_model(a))).run(a, [], [])
    assert "NOT_IMPLEMENTED" in verification.skipped
    assert failed == []


def test_bfloat16_goes_in_and_out(tmp_path: Path) -> None:
    a = save(tmp_path, "g (bfloat16[3, 2] x) => (bfloat16[3, 2] y) { y = Identity (x) }")
    feeds = reference_for(a, Options()).feeds
    result = open_model(a).run(feeds)["y"]
    assert result.dtype == feeds["x"].dtype
    np.testing.assert_array_equal(result.view(np.uint16), feeds["x"].view(np.uint16))


def test_single_operator_keeps_constants_and_needed_functions(tmp_path: Path) -> None:
    model = ir.load(fused_model(tmp_path))
    proto = single_op_model(Call(op("Outer_1"), model, model.graph[0]))
    assert [i.name for i in proto.graph.input] == ["x"]
    assert [i.name for i in proto.graph.initializer] == ["w"]
    assert {f.name for f in proto.functions} == {"Outer_1", "Third_3"}
    onnx.checker.check_model(proto)
    x = np.array([[-1.0, 1.0, 2.0, 3.0]], np.float32)
    np.testing.assert_array_equal(open_model(proto.SerializeToString()).run({"x": x})["a"], [[0.0, 2.0, 6.0, 12.0]])


def test_every_operator_is_tried_also_those_called_by_others(tmp_path: Path) -> None:
    path = fused_model(tmp_path)
    ops = [op("Outer_1"), op("Inner_2"), op("Third_3"), op("Inner_2", targets=("sm_80",))]
    feeds = reference_for(path, Options()).feeds
    checks = check_ops(path, ops, [feeds], library=tmp_path, target="cpu", seconds=0.01, opener=without_libraries)
    assert [(c.op, c.error, c.ok) for c in checks] == [("Outer_1", 0, True), ("Inner_2", 0, True), ("Third_3", 0, True)]
    assert all(c.before_us and c.after_us for c in checks)


IN_BODY = (
    """<ir_version: 9, opset_import: ["": 17, "fusion": 1]>
g (bool c, float[batch, 4] x, float[4] w) => (float[batch, 4] y) {
    y = If (c) <
        then_branch = t () => (float[batch, 4] p) { [first] p = fusion.Outer_1 (x, w) },
        else_branch = e () => (float[batch, 4] q) { [second] q = fusion.Inner_2 (x, w) }
    >
}
"""
    + FUNCTIONS
)


def test_operators_in_bodies_are_tried_on_made_up_values(tmp_path: Path) -> None:
    onnx.save(onnx.parser.parse_model(IN_BODY), tmp_path / "fused.onnx")
    seen: list[tuple[int, ...]] = []

    class Watched(LocalRunner):
        def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
            seen.append(feeds["x"].shape)
            found = super().run(feeds)
            return {name: array + 1 for name, array in found.items()} if self.wrong else found

        wrong = False

    def opener(model: Path | bytes, **options: object) -> LocalRunner:
        kernel = bool(options.pop("libraries", None))
        runner = Watched(open_model(model, **options).session)  # type: ignore[arg-type]
        runner.wrong = kernel and b"Inner_2" in bytes(model)
        return runner

    ops = [op("Outer_1"), op("Inner_2"), op("Third_3")]
    checks = check_ops(
        tmp_path / "fused.onnx",
        ops,
        [{}],
        library=tmp_path,
        target="cpu",
        seconds=0.0,
        opener=opener,  # type: ignore[arg-type]
    )
    assert [(c.op, c.ok) for c in checks] == [("Outer_1", True), ("Inner_2", False), ("Third_3", True)]
    assert set(seen) == {(3, 4), (8, 4)}


def test_an_operator_in_a_body_whose_nodes_do_not_run_is_left_out(tmp_path: Path) -> None:
    onnx.save(onnx.parser.parse_model(IN_BODY), tmp_path / "fused.onnx")
    odd = op("Inner_2")
    odd = replace(odd, inputs=(odd.inputs[0], TensorSpec("w", "float32", (5,))))
    path = tmp_path / "fused.onnx"
    assert check_ops(path, [odd], [{}], library=tmp_path, target="cpu", opener=without_libraries) == ()


def test_the_original_is_opened_once_for_all_sizes(tmp_path: Path) -> None:
    path = save(tmp_path, f"g ({X}) => (float[batch, 4] y) {{ y = Relu(x) }}")
    reference = reference_for(path, Options())
    uses: list[object] = []

    def opener(model: Path | bytes, **options: Any) -> LocalRunner:
        if "constants" not in options:
            uses.append(options.get("use"))
        return open_model(model, **options)

    checked = verify_model(reference, [lambda: Doubled(open_model(path))], opener=opener)  # type: ignore[arg-type]
    assert not checked.ok
    assert len(reference.cases) == 2
    assert uses == [None, "reference"]  # ONNX Runtime's own spread is asked for at both sizes


class Doubled:
    """A runner whose numbers are wrong, and that nobody should ask for its time."""

    def __init__(self, runner: LocalRunner) -> None:
        self.runner = runner

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        return {name: array * 2 for name, array in self.runner.run(feeds).items()}


def test_a_whole_step_of_a_quantization_is_rounding_too(tmp_path: Path) -> None:
    """Values halfway between two steps, of a model whose inputs are integers."""
    text = """<ir_version: 9, opset_import: ["": 17]> g (int64[n] ids) => (float[n, 64] y) {
        e = Gather (table, ids) m = Mul (e, scale) q, s, z = DynamicQuantizeLinear (m) y = DequantizeLinear (q, s, z)
    }"""
    table = np.concatenate([[0.0, 255.0], np.arange(62) + 0.5]).astype(np.float32)[None]
    paths = [tmp_path / name for name in ("original.onnx", "rounded.onnx", "wrong.onnx")]
    for path, scale in zip(paths, (1.0, np.nextafter(np.float32(1), np.float32(2)), 1.1), strict=True):
        model = onnx.parser.parse_model(text)
        scales = np.append(np.ones(32), np.full(32, scale)).astype(np.float32)
        model.graph.initializer.extend(
            onnx.numpy_helper.from_array(a, n) for a, n in ((table, "table"), (scales, "scale"))
        )
        onnx.save(model, path)
    original, *others = paths
    reference = reference_for(original, Options())
    rounded, wrong = (verify_model(reference, [partial(open_model, path)]) for path in others)
    assert rounded.outputs[0].error > reference.limit.relative
    assert rounded.ok
    assert not wrong.ok


def test_a_kernel_whose_numbers_differ_is_not_timed(tmp_path: Path) -> None:
    def opener(model: Any, **options: Any) -> Any:
        return Doubled(open_model(model, **options)) if options.pop("libraries", ()) else open_model(model, **options)

    path = fused_model(tmp_path)
    feeds = {"x": np.ones((2, 4), np.float32)}
    (check,) = check_ops(path, [op("Inner_2")], [feeds], library=tmp_path, target="cpu", seconds=1.0, opener=opener)
    assert not check.ok
    assert check.error == pytest.approx(1.0)
    assert (check.before_us, check.note) == (None, "")


@pytest.mark.parametrize(("us", "is_slower"), [(100.0, False), (104.0, False), (110.0, True)])
def test_a_kernel_by_itself_is_slower_only_by_far(
    us: float, is_slower: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest shows in the model that it sits in."""
    monkeypatch.setattr(LocalRunner, "time_against", lambda *_, **__: timing(100.0, us))
    (check,) = check_ops(
        fused_model(tmp_path),
        [op("Inner_2")],
        [{"x": np.ones((2, 4), np.float32)}],
        library=tmp_path,
        target="cpu",
        opener=without_libraries,
    )
    assert (check.ok, check.is_slower) == (True, is_slower)


def test_weights_of_the_model_file_are_read_where_they_are_needed(tmp_path: Path) -> None:
    text = FUSED.replace(" <float[4] w = {1, 2, 3, 4}>", "").replace("4]", "8192]")
    model = onnx.parser.parse_model(text)
    weights = np.linspace(-1, 1, 8192, dtype=np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    onnx.save(model, tmp_path / "fused.onnx")
    opened: list[Path | bytes] = []

    def opener(model: Path | bytes, **options: object) -> LocalRunner:
        opened.append(model)
        return without_libraries(model, **options)

    feeds = {"x": np.ones((2, 8192), np.float32)}
    ops = [op("Outer_1", size=8192)]
    (check,) = check_ops(
        tmp_path / "fused.onnx", ops, [feeds], library=tmp_path, target="cpu", opener=opener, seconds=0.0
    )
    assert check.ok
    whole, *single = opened
    assert isinstance(whole, Path)  # the model itself, which nothing else is to have in memory
    assert not whole.exists()
    assert single
    for source in single:
        assert isinstance(source, bytes)
        (tensor,) = onnx.load_model_from_string(source).graph.initializer
        np.testing.assert_array_equal(onnx.numpy_helper.to_array(tensor), weights)


def without_libraries(model: Path | bytes, **options: object) -> LocalRunner:
    options.pop("libraries", None)
    return open_model(model, **options)  # type: ignore[arg-type]


def test_a_library_that_cannot_be_loaded_fails_every_operator(tmp_path: Path) -> None:
    path = fused_model(tmp_path)
    (tmp_path / "lib.so").write_bytes(b"no library")
    library = Library("cpu", tmp_path / "lib.so", ("Outer_1", "Inner_2"))
    ops = [op("Outer_1"), op("Inner_2")]
    with Process() as process:
        trial = rollback.Trial(path, Options(), process, signature_of(load_model(path)))
        verification, failed = trial.run(path, ops, [library])
    assert [(name, target, r.code) for name, target, r in failed] == [
        ("Outer_1", "cpu", "FUS403"),
        ("Inner_2", "cpu", "FUS403"),
    ]
    assert not any(c.ok for c in verification.ops)


@pytest.mark.parametrize(
    ("check", "code"),
    [
        (OpCheck("A", "cpu", 1e-6, 1e-3, 10.0, 9.0), None),
        (OpCheck("A", "cpu", 1e-6, 1e-3), None),
        (OpCheck("A", "cpu", 0.1, 1e-3, 10.0, 9.0), "FUS401"),
        (OpCheck("A", "cpu", float("nan"), 1e-3), "FUS401"),
        (OpCheck("A", "cpu", 1e-6, 1e-3, 10.0, 10.1), None),
        (OpCheck("A", "cpu", 1e-6, 1e-3, 10.0, 12.0, is_slower=True), "FUS402"),
        (OpCheck("A", "cpu", float("inf"), 1e-3, note="it fell over"), "FUS403"),
    ],
)
def test_reasons_to_take_a_kernel_back(check: OpCheck, code: str | None) -> None:
    reason = rollback.rollback(op("A"), check, never_slower=True)
    assert (reason.code if reason else None) == code
    assert reason is None or (reason.code in explained()["verify"] and reason.node == "node of A")


def test_slow_kernels_stay_when_they_are_asked_for() -> None:
    assert (
        rollback.rollback(op("A"), OpCheck("A", "cpu", 0.0, 1e-3, 10.0, 20.0, is_slower=True), never_slower=False)
        is None
    )


def model_trial(
    monkeypatch: pytest.MonkeyPatch, folder: Path, verification: Verification, options: Options
) -> list[tuple[str, str, str]]:
    """Which operators a trial blames when each holds by itself and the whole model comes out like this."""
    gains = {"A": 1.0, "B": 5.0, "C": 3.0}
    checks = [OpCheck(n, "cpu", g * 1e-5, 1e-3, 10.0 + g, 10.0) for n, g in gains.items()]
    monkeypatch.setattr(rollback, "check_ops", lambda *_, **__: checks)
    monkeypatch.setattr(rollback, "verify_model", lambda *_, **__: verification)
    path = fused_model(folder)
    ops = [op(n) for n in gains]
    with Process() as process:
        trial = rollback.Trial(path, options, process, signature_of(load_model(path)))
        result, failed = trial.run(path, ops, [Library("cpu", folder, tuple(gains))])
    assert result.ops == tuple(checks)
    return [(name, target, reason.code) for name, target, reason in failed]


def test_a_model_whose_numbers_differ_gives_up_the_largest_errors(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    wrong = Verification((OutputCheck("y", 0.5, 1e-3),))
    expected = [("B", "cpu", "FUS401"), ("C", "cpu", "FUS401")]
    assert model_trial(monkeypatch, tmp_path, wrong, Options(force=True)) == expected


def test_a_model_that_holds_gives_up_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fine = Verification((OutputCheck("y", 0.0, 1e-3),))
    assert model_trial(monkeypatch, tmp_path, fine, Options()) == []
