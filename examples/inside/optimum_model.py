"""A model of optimum's that runs fused: python optimum_model.py EXPORTED, a folder with model.onnx and config.json"""

from __future__ import annotations

import sys
from pathlib import Path

from optimum.onnxruntime import ORTModelForFeatureExtraction
from transformers import AutoConfig

import fusion_cli


def fused(folder: Path, **options: object) -> ORTModelForFeatureExtraction:
    """Fuse folder/model.onnx into folder/fused.onnx, and open that as optimum does."""
    fusion_cli.optimize(folder / "model.onnx", folder / "fused.onnx", **options)  # type: ignore[arg-type]
    session = fusion_cli.session(folder / "fused.onnx", providers=["CPUExecutionProvider"])
    return ORTModelForFeatureExtraction(config=AutoConfig.from_pretrained(folder), session=session)


if __name__ == "__main__":
    fused(Path(sys.argv[1]))
