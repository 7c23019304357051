"""From a PyTorch module to a fused model, without a file between: python torch_export.py OUT.onnx"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

import fusion_cli


def export(module: torch.nn.Module, example: torch.Tensor, output: Path, **options: object) -> None:
    """Export a module of one input whose first size is open, and fuse what comes out."""
    shapes = ({0: torch.export.Dim("batch")},)
    program = torch.onnx.export(module.eval(), (example,), dynamo=True, dynamic_shapes=shapes, verbose=False)
    assert program is not None
    fusion_cli.optimize(program.model_proto, output, **options)  # type: ignore[arg-type]


if __name__ == "__main__":
    layers = torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    export(layers, torch.randn(2, 16, 64), Path(sys.argv[1]))
