"""Export the example models from PyTorch into `examples/models`, weights left out (needs torch and onnxscript).

    python -m examples.export [NAME ...]

Not needed to run anything: the graphs it writes are part of the repository.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import onnx
import torch
from torch import Tensor, nn

from examples.layers import ConvStack, SnakeBlock, TransformerLayer, randomize
from examples.weights import graph_path, strip


@dataclass(frozen=True)
class Example:
    """A module, how it is exported, and the shape and dynamic dimensions of its one input."""

    build: Callable[[], nn.Module]
    exporter: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    dynamic: dict[int, str]


def transformer(exporter: str, width: int, heads: int, dtype: torch.dtype) -> Example:
    def build() -> nn.Module:
        return TransformerLayer(width, heads, 4 * width, decomposed=exporter == "ts17")

    return Example(build, exporter, dtype, (2, 8, width), {0: "batch", 1: "seq"})


EXAMPLES = {
    "transformer_ts17": transformer("ts17", 768, 12, torch.float32),
    "transformer_dyn23": transformer("dyn23", 768, 12, torch.float32),
    "transformer_ts17_fp16_d768": transformer("ts17", 768, 12, torch.float16),
    "transformer_dyn23_fp16_d768": transformer("dyn23", 768, 12, torch.float16),
    "transformer_ts17_fp16_d4096": transformer("ts17", 4096, 32, torch.float16),
    "transformer_dyn23_fp16_d4096": transformer("dyn23", 4096, 32, torch.float16),
    "conv_stack": Example(ConvStack, "ts17", torch.float32, (2, 3, 64, 64), {0: "batch", 2: "height", 3: "width"}),
    "snake_block": Example(SnakeBlock, "ts17", torch.float32, (2, 1, 64), {0: "batch", 2: "time"}),
}


def export(example: Example, path: Path) -> None:
    """Export one example, weights included, to `path`."""
    torch.manual_seed(0)
    module = randomize(example.build()).to(example.dtype)
    x: Tensor = torch.randn(example.shape).to(example.dtype)
    if example.exporter == "dyn23":
        dims = {axis: torch.export.Dim(name) for axis, name in example.dynamic.items()}
        torch.onnx.export(
            module, (x,), path, dynamo=True, opset_version=23, input_names=["x"], output_names=["y"],
            dynamic_shapes=(dims,), external_data=False, verbose=False,
        )  # fmt: skip
    else:
        torch.onnx.export(
            module, (x,), path, dynamo=False, opset_version=17, input_names=["x"], output_names=["y"],
            dynamic_axes={"x": example.dynamic},
            # Evaluation mode would merge each batch normalization into its convolution before the file is written.
            training=torch.onnx.TrainingMode.PRESERVE,
        )  # fmt: skip


def forget_source(model: onnx.ModelProto) -> None:
    """Drop doc strings and stack traces: they name files of the machine that exported."""
    for node in model.graph.node:
        node.ClearField("doc_string")
        del node.metadata_props[:]
    for value in [*model.graph.input, *model.graph.output, *model.graph.value_info]:
        del value.metadata_props[:]
    model.graph.ClearField("doc_string")
    del model.graph.metadata_props[:]
    del model.metadata_props[:]


def main(names: list[str]) -> None:
    for name in names or list(EXAMPLES):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.onnx"
            export(EXAMPLES[name], path)
            model = onnx.load(path)
        strip(model)
        forget_source(model)
        target = graph_path(name)
        target.parent.mkdir(exist_ok=True)
        onnx.save(model, target)
        print(f"{target.name}: {len(model.graph.node)} nodes, {target.stat().st_size} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
