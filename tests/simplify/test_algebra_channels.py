"""Channels of zeros up to whole blocks: where they come, where they do not, and what decides that."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import fusion_cli
from fusion_cli.report import Report
from fusion_cli.simplify import Simplified, simplify
from tests.helpers.algebra_models import assert_same_results
from tests.helpers.graphs import parse, read_in

WEIGHTS = {
    "w8": (8, 3, 1, 1),
    "r8": (5, 8, 1, 1),
    "m8": (8, 8, 1, 1),
    "d8": (8, 1, 3, 3),
    "g8": (8, 4, 1, 1),
    "s8": (8, 1, 1),
    "w6": (6, 3, 1, 1),
    "r6": (5, 6, 1, 1),
    "w16": (16, 3, 1, 1),
    "r16": (5, 16, 1, 1),
    "w20": (20, 3, 1, 1),
    "r20": (5, 20, 1, 1),
    "d16": (16, 1, 1, 1),
    "r1": (5, 1, 1, 1),
    "i8": (2, 5, 1, 8),
}
NUMBERS = {"half": 0.5, "large": 1e30, "infinite": np.inf}
CONV = "c = Conv (x, w8)"


def model_of(body: str, outputs: str = "float[a, b, d, e] y", inputs: str = "float[2, 3, 5, 8] x") -> onnx.ModelProto:
    model = parse(f"g ({inputs}) => ({outputs}) {{ {body} }}", read_in(body, WEIGHTS))
    numbers = {k: np.float32(v) for k, v in read_in(body, NUMBERS).items()}
    model.graph.initializer.extend(onnx.numpy_helper.from_array(np.asarray(v), k) for k, v in numbers.items())
    return model


def padded(model: onnx.ModelProto) -> Simplified:
    found = simplify(ir.from_proto(model), partial(ir.from_proto, model), blocks=True)
    assert_same_results(model, found)
    return found


def channels(found: Simplified) -> Mapping[str, object]:
    return {str(v.name): v.shape[1] for node in found.model.graph for v in node.outputs if v.shape}


PADDED = {
    "a residual": (f"{CONV} m = Conv (c, m8) a = Add (m, c) r = Relu (a) y = Conv (r, r8)", {"c", "m", "a", "r"}),
    "a number": (f"{CONV} k = Tanh (c) m = Mul (half, k) y = Conv (m, r8)", {"c", "k", "m"}),
    "one at a time": (f"{CONV} k = Conv <group = 8> (c, d8) r = Relu (k) y = Conv (r, r8)", {"c", "k", "r"}),
    "a pool of more": (
        "c = Conv (x, w20) p = MaxPool <kernel_shape = [2, 2]> (c) y = Conv (p, r20)",
        {"c", "p"},
    ),
    "layer after layer": (
        f"{CONV} r = Relu (c) m = Conv (r, m8) n = Relu (m) y = Conv (n, r8)",
        {"c", "r", "m", "n"},
    ),
}


@pytest.mark.parametrize("case", PADDED)
def test_channels_are_whole_blocks(case: str) -> None:
    body, values = PADDED[case]
    found = padded(model_of(body))
    assert {r.rule for r in found.algebra} == {"PadChannels"}
    assert {k: v % 16 for k, v in channels(found).items() if k != "y"} == dict.fromkeys(values, 0)
    assert channels(found)["y"] == 5


LEFT = {
    "whole blocks": "c = Conv (x, w16) y = Conv (c, r16)",
    "fours that the runtime pads": "c = Conv (x, w20) r = Relu (c) y = Conv (r, r20)",
    "too many zeros": "c = Conv (x, w6) r = Relu (c) y = Conv (r, r6)",
    "nothing that reads them": f"{CONV} y = Relu (c)",
    "another operator": f"{CONV} e = Softmax <axis = 1> (c) y = Conv (e, r8)",
    "another reader": f"{CONV} m = ReduceMean <axes = [1]> (c) o = Conv (c, r8) y = Add (o, m)",
    "numbers by channel": f"{CONV} r = Relu (c) m = Mul (r, s8) n = Sigmoid (m) y = Conv (n, r8)",
    "a number that makes an infinity": f"{CONV} a = Mul (c, half) b = Add (a, large) y = Conv (b, r8)",
    "an infinity": f"{CONV} b = Clip (c, infinite) y = Conv (b, r8)",
    "another slope": f"{CONV} b = LeakyRelu <alpha = 1e30> (c) y = Conv (b, r8)",
    "groups": f"{CONV} r = Relu (c) k = Conv <group = 2> (r, g8) y = Conv (k, r8)",
    "channels from one": "c = Conv (x, w8) m = ReduceMean <axes = [1]> (x) a = Add (c, m) y = Conv (a, r8)",
    "a weight": "c = Conv (x, w8) t = Relu (c) y = Conv (i8, t)",
}


@pytest.mark.parametrize("case", LEFT)
def test_channels_that_are_left(case: str) -> None:
    body = LEFT[case]
    inputs = "float[5, 3, 1, 1] x" if case == "a weight" else "float[2, 3, 5, 8] x"
    found = simplify(ir.from_proto(m := model_of(body, inputs=inputs)), partial(ir.from_proto, m), blocks=True)
    assert "PadChannels" not in {r.rule for r in found.algebra}


def test_channels_that_others_see_are_left() -> None:
    body = f"{CONV} r = Relu (c) y = Conv (r, r8)"
    assert not padded(model_of(body, "float[a, b, d, e] y, float[f, g, h, i] r")).algebra
    assert not padded(model_of(body, inputs="float[2, 3, 5, 8] x, float[8, 3, 1, 1] w8")).algebra


def test_a_body_reads_channels_of_zeros_too() -> None:
    found = padded(
        model_of(
            f"{CONV} k = ReduceSum <keepdims = 0> (x) i = Cast <to = 9> (k) y = If (i) "
            "<then_branch = f () => (float[a, b, d, e] o) { o = Conv (c, r8) }, "
            "else_branch = g () => (float[f, h, j, l] o) { s = Relu (c) o = Conv (s, m8) }>"
        )
    )
    assert channels(found)["c"] == 16


def test_the_clean_up_leaves_them_where_it_is_not_asked() -> None:
    model = model_of(PADDED["a residual"][0])
    assert not simplify(ir.from_proto(model), partial(ir.from_proto, model)).algebra


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / "image.onnx"
    onnx.save(model_of(PADDED["a residual"][0]), path)
    return path


def on_machine(monkeypatch: pytest.MonkeyPatch, folder: Path, flags: str) -> None:
    (folder / "cpuinfo").write_text(f"flags : sse2 {flags} fma\n")
    monkeypatch.setattr("fusion_cli.targets._CPU_INFO", folder / "cpuinfo")


def rules(report: Report) -> set[str]:
    return {r.rule for r in report.algebra}


@pytest.mark.parametrize(
    ("flags", "targets", "is_padded"),
    [
        ("avx2 avx512f", ["cpu"], True),
        ("avx2", ["cpu"], False),
        ("avx2 avx512f", ["portable"], False),
        ("avx2 avx512f", ["cpu", "sm_90a"], False),
    ],
)
def test_only_for_a_cpu_that_takes_blocks(
    image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: str, targets: list[str], is_padded: bool
) -> None:
    on_machine(monkeypatch, tmp_path, flags)
    assert (rules(fusion_cli.optimize(image, None, targets=targets)) == {"PadChannels"}) is is_padded


@pytest.mark.parametrize(("first", "then"), [("avx512f", "avx2"), ("avx2", "avx512f")])
def test_any_machine_pads_as_was_decided(
    image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str, then: str
) -> None:
    paths = [tmp_path / folder / "out.onnx" for folder in ("a", "b")]
    for path in paths:
        path.parent.mkdir()
    on_machine(monkeypatch, tmp_path, first)
    written = fusion_cli.optimize(image, paths[0], targets=["cpu"], verify=False)
    on_machine(monkeypatch, tmp_path, then)
    again = fusion_cli.optimize(image, paths[1], decisions=paths[0].with_suffix(".fusion") / "report.json")
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert rules(written) == rules(again) == ({"PadChannels"} if first == "avx512f" else set())


PADDED_BEFORE = {"p": (20, 18, 3, 1), "q": (16, 18, 1, 3), "f": (16, 18, 1, 1), "l": (8, 18, 3, 1), "g": (18, 9, 3, 1)}


def read_channels(body: str, opset: int = 17, inputs: str = "float[2, 18, 5, 8] x") -> list[str]:
    weights = {k: v for k, v in read_in(body, PADDED_BEFORE).items() if f" {k}" not in inputs}
    found = padded(parse(f"g ({inputs}) => (float[a, b, d, e] y) {{ {body} }}", weights, opset))
    return [n.op_type for n in found.model.graph]


def test_channels_that_something_else_makes_are_padded_once() -> None:
    body = (
        "e = Exp (x) c = Conv <pads = [1, 0, 1, 0]> (e, p) k = Conv <pads = [0, 1, 0, 1]> (e, q) "
        "y = Concat <axis = 1> (c, k)"
    )
    assert read_channels(body) == ["Exp", "Pad", "Conv", "Conv", "Concat"]


@pytest.mark.parametrize(
    "body",
    ["y = Conv (x, f)", "y = Conv (x, l)", "y = Conv <group = 2> (x, g)"],
    ids=["each read once", "few are made", "groups"],
)
def test_channels_that_something_else_makes_and_are_left(body: str) -> None:
    assert read_channels(body) == ["Conv"]


def test_channels_are_padded_where_pads_have_inputs_and_weights_are_constant() -> None:
    body = "y = Conv (x, p)"
    assert read_channels(body, opset=11) == ["Pad", "Conv"]
    assert read_channels(body, opset=10) == ["Conv"]
    assert read_channels(body, inputs="float[2, 18, 5, 8] x, float[20, 18, 3, 1] p") == ["Conv"]
