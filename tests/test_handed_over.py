"""Images that fusions of convolutions hand to one another: with the channels last where all of them keep those so."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest

import fusion_cli
from fusion_cli.analyse import Analysis, analyse
from fusion_cli.clock import Clock
from fusion_cli.types import Candidate, Options
from tests.helpers.graphs import RNG, parse
from tests.helpers.region_tools import largest_error

WEIGHTS: dict[str, tuple[int, ...]] = {
    "w1": (6, 6, 3, 3), "w2": (6, 6, 3, 3), "w3": (6, 6, 3, 3), "w4": (6, 6, 3, 3), "u": (6, 6, 3), "v": (6, 6, 3),
}  # fmt: skip
# Neither fusion takes the sum over channels, so that there are two, and the image goes from one to the other.
IMAGES = """g (float[n, 6, 8, 8] x) => (float[n, 6, 8, 8] y) {{
    axis = Constant <value = int64 {{1}}> ()
    a = Conv <pads = [1, 1, 1, 1]> (x, w1) b = Relu (a) c = Conv <pads = [1, 1, 1, 1]> (b, w2)
    p = GlobalAveragePool (c) q = CumSum (p, axis) e = Add (c, q)
    d = Conv <pads = [1, 1, 1, 1]> (e, w3) f = Relu (d) y = Conv <pads = [1, 1, 1, 1]> (f, w4) {more}
}}"""
SEQUENCES = """g (float[n, 6, 20] x) => (float[n, 6, 20] y) {
    axis = Constant <value = int64 {1}> ()
    a = Conv <pads = [1, 1]> (x, u) b = Relu (a) c = Conv <pads = [1, 1]> (b, v)
    p = GlobalAveragePool (c) q = CumSum (p, axis) e = Add (c, q)
    d = Conv <pads = [1, 1]> (e, u) f = Relu (d) y = Conv <pads = [1, 1]> (f, v)
}"""
WITHOUT = IMAGES.format(more="")


def written(text: str, path: Path) -> Path:
    onnx.save(parse(text, {n: s for n, s in WEIGHTS.items() if f"{n})" in text}), path)
    return path


def analysed(text: str, path: Path) -> Analysis:
    options = Options(targets=("sm_90a",), force=True)
    return analyse(written(text, path / "model.onnx"), options, Clock(options))


def turned(found: Analysis) -> list[ir.Node]:
    return [n for n in found.model.graph if n.op_type == "Transpose"]


@pytest.mark.parametrize("text", [WITHOUT, SEQUENCES], ids=["images", "sequences"])
def test_what_fusions_hand_on_is_turned_in_both(text: str, tmp_path: Path) -> None:
    found = analysed(text, tmp_path)
    first, second = sorted(found.chosen, key=lambda c: "x" not in [v.name for v in c.region.inputs])
    end, begin = turned(found)
    assert (end, begin) == (first.region.nodes[-1], second.region.nodes[0])
    assert end.outputs[0] in first.region.outputs
    assert begin.inputs[0] is end.outputs[0]
    assert end.outputs[0] in second.region.inputs
    assert not any(v.name == "c" for v in (*first.region.outputs, *second.region.inputs))


def test_one_kernel_less_at_each_end_is_what_is_predicted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    large = WITHOUT.replace("6, 8, 8]", "6, 1024, 1024]")  # so that the host is not what takes the time
    handed = analysed(large, tmp_path)
    monkeypatch.setattr("fusion_cli.analyse.hand_over", lambda chosen, *_: chosen)
    plain = analysed(large, tmp_path)
    assert not turned(plain)

    def kernels(found: Analysis) -> int:
        return sum(c.scores["sm_90a"].launches_after for c in found.chosen)

    def stages(found: Analysis) -> int:
        return sum(len(c.plan.stages) for c in found.chosen if c.plan is not None)

    assert kernels(handed) == kernels(plain) - 2
    assert stages(handed) == stages(plain) - 2
    for one, other in zip(plain.forecasts, handed.forecasts, strict=True):
        assert other.before == one.before  # ONNX Runtime would take the Transposes out again
        assert other.after.total < one.after.total
    saved = sum(p.scores["sm_90a"].after_us - h.scores["sm_90a"].after_us for p, h in both(plain, handed))
    assert saved > 0
    assert all(h.scores["sm_90a"].before == p.scores["sm_90a"].before for p, h in both(plain, handed))
    assert all(h.scores["sm_90a"].bytes_after < p.scores["sm_90a"].bytes_after for p, h in both(plain, handed))


def both(plain: Analysis, handed: Analysis) -> list[tuple[Candidate, Candidate]]:
    return list(zip(plain.chosen, handed.chosen, strict=True))


@pytest.mark.parametrize(
    "text",
    [
        IMAGES.format(more="z = CumSum (c, axis)").replace("] y)", "] y, float[n, 6, 8, 8] z)"),
        IMAGES.format(more="s = Softmax <axis = -1> (c) z = Mul (s, s)").replace("] y)", "] y, float[n, 6, 8, 8] z)"),
        WITHOUT.replace("=> (", "=> (float[n, 6, 8, 8] c, "),
        WITHOUT.replace("Add (c, q)", "Add (x, q)"),
    ],
    ids=["others read it too", "a fusion of another kind does", "the model gives it out", "nothing is handed on"],
)
def test_what_others_need_stays_as_it_is(text: str, tmp_path: Path) -> None:
    assert not turned(analysed(text, tmp_path))


def test_what_costs_more_is_undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fusion_cli.handed_over._ROUNDING_US", -float("inf"))
    found = analysed(WITHOUT, tmp_path)
    assert not turned(found)
    add = next(n for n in found.model.graph if n.op_type == "Add")
    assert "c" in [v.name for v in add.inputs if v is not None]
    assert any(v.name == "c" for c in found.chosen for v in c.region.outputs)


@pytest.mark.parametrize("text", [WITHOUT, SEQUENCES], ids=["images", "sequences"])
def test_the_model_that_is_written_computes_the_same(text: str, tmp_path: Path) -> None:
    original, output = written(text, tmp_path / "model.onnx"), tmp_path / "fused.onnx"
    report = fusion_cli.optimize(original, output, targets=("cpu",), force=True)
    assert report.verification is not None
    names = [n.op_type for n in onnx.load(output).graph.node]
    assert len(names) == 3
    assert sum(n.startswith("Convolutions") for n in names) == 2
    shape = {"x": (3, 6, 8, 8) if text == WITHOUT else (3, 6, 20)}
    feeds = {"x": RNG.standard_normal(shape["x"]).astype(np.float32)}
    (want,) = ort.InferenceSession(original).run(None, feeds)
    (got,) = fusion_cli.session(output).run(None, feeds)
    assert largest_error(got, want) <= 1e-5
    (stock,) = ort.InferenceSession(output).run(None, feeds)  # its functions, without kernels
    assert largest_error(stock, want) <= 1e-5
