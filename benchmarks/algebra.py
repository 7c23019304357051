"""What exact algebra alone is worth in ONNX Runtime on a CPU: models as exporters for text recognition write them.

    python -m benchmarks.algebra [--runs N] [--threads N]

Four graphs with random weights, written as paddle2onnx and tf2onnx do: convolutions without bias, their batch norms as
Mul and Add, HardSwish as Add, Clip, Mul and Div, images normalised with channels last. Medians of interleaved runs.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import click
import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import fusion_cli


class Net:
    """A graph as it grows. Each method adds nodes to what `self.value` names, and leaves it at their result."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.rng = np.random.default_rng(1)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.value, self.shape = "x", shape

    def op(self, operator: str, *operands: str | np.ndarray, **attributes: object) -> None:
        names = [v if isinstance(v, str) else self.weight(v) for v in operands]
        result = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, names, [result], **attributes))
        self.value = result

    def weight(self, array: np.ndarray) -> str:
        self.weights.append(numpy_helper.from_array(array, f"w{len(self.weights)}"))
        return self.weights[-1].name

    def conv(self, read: int, made: int, kernel: int, stride: int = 1, groups: int = 1, then: str = "") -> None:
        """A convolution without bias, its batch norm as Mul and Add, and an activation."""
        weight = self.rng.normal(size=(made, read // groups, kernel, kernel)) / (kernel * (read / groups) ** 0.5)
        pads, strides = [kernel // 2] * 4, [stride] * 2
        self.op("Conv", self.value, weight.astype(np.float32), pads=pads, strides=strides, group=groups)
        self.affine((1, made, 1, 1))
        self.activate(then)

    def affine(self, shape: tuple[int, ...]) -> None:
        self.op("Mul", self.value, self.rng.uniform(0.5, 1.5, shape).astype(np.float32))
        self.op("Add", self.value, self.rng.normal(size=shape).astype(np.float32))

    def activate(self, kind: str) -> None:
        if kind == "HardSwish":
            x = self.value
            self.op("Add", x, np.float32(3))
            self.op("Clip", self.value, np.float32(0), np.float32(6))
            self.op("Mul", x, self.value)
            self.op("Div", self.value, np.float32(6))
        elif kind:
            self.op(kind, self.value)

    def squeeze_excite(self, count: int) -> None:
        x = self.value
        self.op("GlobalAveragePool", x)
        for read, made, then in ((count, count // 4, "Relu"), (count // 4, count, "HardSigmoid")):
            weight = self.rng.normal(size=(made, read, 1, 1)) / read**0.5
            self.op("Conv", self.value, weight.astype(np.float32))
            self.op("Add", self.value, self.rng.normal(size=(1, made, 1, 1)).astype(np.float32))
            self.activate(then)
        self.op("Mul", x, self.value)

    def inverted(self, count: int, wide: int, kernel: int, excite: bool) -> None:
        """A block of MobileNetV3."""
        x = self.value
        self.conv(count, wide, 1, then="HardSwish")
        self.conv(wide, wide, kernel, groups=wide, then="HardSwish")
        if excite:
            self.squeeze_excite(wide)
        self.conv(wide, count, 1)
        self.op("Add", x, self.value)

    def model(self) -> onnx.ModelProto:
        source = helper.make_tensor_value_info("x", TensorProto.FLOAT, self.shape)
        result = helper.make_tensor_value_info(self.value, TensorProto.FLOAT, None)
        graph = helper.make_graph(self.nodes, "g", [source], [result], self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)


def detector() -> Net:
    net = Net((1, 3, 160, 160))
    net.conv(3, 16, 3, 2, then="HardSwish")
    for count, wide, kernel in ((16, 32, 3), (24, 72, 5), (40, 120, 5)):
        net.conv(16 if count == 16 else {24: 16, 40: 24}[count], count, 3, 2, then="HardSwish")
        net.inverted(count, wide, kernel, excite=count > 16)
        net.inverted(count, wide, kernel, excite=count > 16)
    net.conv(40, 96, 1)
    net.op("Resize", net.value, "", np.array([1, 1, 2, 2], np.float32), mode="nearest")
    net.conv(96, 24, 3, then="Relu")
    for made, then in ((24, "Relu"), (1, "Sigmoid")):
        weight = net.rng.normal(size=(24, made, 2, 2)) / 5
        net.op("ConvTranspose", net.value, weight.astype(np.float32), strides=[2, 2])
        net.affine((1, made, 1, 1))
        net.activate(then)
    return net


def recogniser() -> Net:
    """With learnable affine blocks, which are one number each, around the activations."""
    net = Net((1, 3, 48, 320))
    net.conv(3, 16, 3, 2)
    count = 16
    for made, stride in ((32, 1), (64, 2), (64, 1), (128, 2), (128, 1), (240, 1)):
        for read, wide, kernel, groups in ((count, count, 3, count), (count, made, 1, 1)):
            net.conv(read, wide, kernel, stride if kernel == 3 else 1, groups)
            net.affine((1,))
            net.activate("HardSwish")
            net.affine((1,))
        count = made
    net.op("AveragePool", net.value, kernel_shape=[3, 2], strides=[3, 2])
    net.op("ReduceMean", net.value, axes=[2], keepdims=0)
    net.op("Transpose", net.value, perm=[0, 2, 1])
    net.op("MatMul", net.value, (net.rng.normal(size=(240, 97)) / 15).astype(np.float32))
    net.op("Add", net.value, net.rng.normal(size=97).astype(np.float32))
    net.op("Softmax", net.value)
    return net


def classifier() -> Net:
    net = Net((1, 3, 48, 192))
    net.conv(3, 8, 3, 2, then="HardSwish")
    for read, count, wide, kernel in ((8, 8, 16, 3), (8, 16, 40, 3), (16, 24, 64, 5), (24, 32, 96, 5)):
        net.conv(read, count, 3, 2, then="HardSwish")
        net.inverted(count, wide, kernel, excite=True)
        net.inverted(count, wide, kernel, excite=count > 8)
    net.conv(32, 200, 1, then="HardSwish")
    net.op("GlobalAveragePool", net.value)
    net.op("Flatten", net.value)
    net.op("Gemm", net.value, (net.rng.normal(size=(200, 2)) / 14).astype(np.float32))
    return net


def nsfw() -> Net:
    """A residual network that reads images with channels last."""
    net = Net((1, 112, 112, 3))
    net.op("Sub", net.value, np.array([104, 117, 123], np.float32))
    net.op("Mul", net.value, np.array([0.02, 0.018, 0.017], np.float32))
    net.op("Add", net.value, np.array([0.1, 0.2, 0.3], np.float32))
    net.op("Transpose", net.value, perm=[0, 3, 1, 2])
    net.conv(3, 64, 7, 2, then="Relu")
    net.op("MaxPool", net.value, kernel_shape=[3, 3], strides=[2, 2])
    count = 64
    for width, stride in ((32, 1), (64, 2), (128, 2), (256, 2)):
        for first in (True, False):
            x, read = net.value, count
            net.conv(read, width, 1, stride if first else 1, then="Relu")
            net.conv(width, width, 3, then="Relu")
            net.conv(width, width * 4, 1)
            inner, count = net.value, width * 4
            if first:
                net.value = x
                net.conv(read, count, 1, stride)
                x = net.value
            net.op("Add", inner, x)
            net.activate("Relu")
    net.op("GlobalAveragePool", net.value)
    net.op("Flatten", net.value)
    net.op("Gemm", net.value, (net.rng.normal(size=(count, 2)) / 32).astype(np.float32))
    net.op("Softmax", net.value)
    return net


MODELS: Mapping[str, Callable[[], Net]] = {f.__name__: f for f in (detector, recogniser, classifier, nsfw)}


@click.command(help=(__doc__ or "").split("\n\n")[0])
@click.option("--runs", default=100, show_default=True)
@click.option("--threads", default=1, show_default=True)
def main(runs: int, threads: int) -> None:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    for name, build in MODELS.items():
        net = build()
        feeds = {"x": net.rng.normal(size=net.shape).astype(np.float32)}
        with tempfile.TemporaryDirectory() as folder:
            before, after = Path(folder) / "before.onnx", Path(folder) / "after.onnx"
            onnx.save(net.model(), before)
            report = fusion_cli.optimize(before, after, targets=("portable",), opt_level=0)
            sessions = [onnxruntime.InferenceSession(p, options) for p in (before, after)]
        seconds: list[list[float]] = [[], []]
        for _ in range(runs):
            for session, times in zip(sessions, seconds, strict=True):
                start = time.perf_counter()
                session.run(None, feeds)
                times.append(time.perf_counter() - start)
        old, new = (statistics.median(times) * 1e3 for times in seconds)
        nodes = f"{report.summary.nodes_before} -> {report.summary.nodes_after} nodes"
        rules = ", ".join(f"{r.places} {r.rule}" for r in report.algebra)
        click.echo(f"{name}: {old:.2f} ms -> {new:.2f} ms ({old / new:.2f}x), {nodes}; {rules}")


if __name__ == "__main__":
    main()
