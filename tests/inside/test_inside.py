"""The examples of fusion inside other tools, each where its tool is installed."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

import fusion_cli
from tests.helpers.cli_helpers import ROOT, write_model

OPTIONS = {"targets": ["cpu"], "force": True}


def run_fused(path: Path, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    """The outputs with kernels; what would keep these from running is an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return fusion_cli.session(path, providers=["CPUExecutionProvider"]).run(None, feeds)


def test_a_pass_of_olive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workflows = pytest.importorskip("olive.workflows", reason="olive-ai is not installed")
    model = write_model(tmp_path / "m.onnx")
    config = {
        "input_model": {"type": "ONNXModel", "model_path": str(model)},
        "passes": {"fuse": {"type": "KernelFusion", **OPTIONS}},
        "output_dir": str(tmp_path / "out"),
        "cache_dir": str(tmp_path / "cache"),
    }
    monkeypatch.chdir(ROOT)
    workflows.run(config, package_config=str(ROOT / "examples" / "inside" / "olive_package.json"))
    (fused,) = (tmp_path / "out").rglob("*.onnx")
    (manifest,) = (tmp_path / "out").rglob("manifest.json")
    assert json.loads(manifest.read_text())["functions"]
    x = np.ones((1, 5, 32), np.float32)
    expected = ort.InferenceSession(model).run(None, {"x": x})
    np.testing.assert_allclose(run_fused(fused, {"x": x})[0], expected[0], rtol=1e-3, atol=1e-3)


def test_a_model_of_optimum(tmp_path: Path) -> None:
    pytest.importorskip("optimum.onnxruntime", reason="optimum-onnx is not installed")
    torch = pytest.importorskip("torch", reason="torch is not installed")
    from optimum.onnxruntime import ORTModelForFeatureExtraction
    from transformers import BertConfig, BertModel

    from examples.inside.optimum_model import fused

    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    BertModel(BertConfig(vocab_size=100, **sizes)).save_pretrained(tmp_path / "bert")
    ORTModelForFeatureExtraction.from_pretrained(tmp_path / "bert", export=True).save_pretrained(tmp_path / "onnx")
    model = fused(tmp_path / "onnx", **OPTIONS)
    ids = torch.arange(12).reshape(2, 6)
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "token_type_ids": torch.zeros_like(ids)}
    stock = ORTModelForFeatureExtraction.from_pretrained(tmp_path / "onnx", file_name="model.onnx")
    torch.testing.assert_close(model(**inputs)[0], stock(**inputs)[0], rtol=1e-3, atol=1e-3)
    assert json.loads((tmp_path / "onnx" / "fused.fusion" / "manifest.json").read_text())["functions"]


def test_what_torch_exports(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    from examples.inside.torch_export import export

    layers, x = torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), torch.randn(2, 16, 64)
    export(layers, x, tmp_path / "fused.onnx", **OPTIONS)
    (name,) = (v.name for v in ort.InferenceSession(tmp_path / "fused.onnx").get_inputs())
    (found,) = run_fused(tmp_path / "fused.onnx", {name: x.numpy()})
    with torch.no_grad():
        np.testing.assert_allclose(found, layers.eval()(x).numpy(), rtol=1e-3, atol=1e-3)
