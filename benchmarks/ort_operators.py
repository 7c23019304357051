"""What single ONNX Runtime operators reach on a GPU: the numbers behind `bandwidth_share` in fusion_cli/devices/.

    python -m benchmarks.ort_operators

Needs a GPU, torch and ONNX Runtime's CUDA provider. Prints microseconds per run (median of blocks of ten runs enqueued
back to back; a run costs 10 to 15 us of host time, which small operators do not hide), TFLOP/s and GB/s.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

import numpy as np
import onnxruntime as ort
import torch
from onnx import NodeProto, TensorProto, helper

Shape = Sequence[int]
BLOCKS, RUNS = 9, 10


def node(op: str, inputs: str, output: str, **attributes: object) -> NodeProto:
    return helper.make_node(op, inputs.split(), [output], **attributes)


def measure(name: str, nodes: Sequence[NodeProto], inputs: Mapping[str, Shape], output: Shape, *, flops: float = 0,
            moved: float = 0, opset: int = 17) -> None:  # fmt: skip
    """Time a model of these nodes, fp16, whose output is `y`; print one line."""
    shapes = {**inputs, "y": output}
    values = {n: helper.make_tensor_value_info(n, TensorProto.FLOAT16, list(s)) for n, s in shapes.items()}
    graph = helper.make_graph(list(nodes), name, [values[n] for n in inputs], [values["y"]])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    stream = torch.cuda.Stream()
    options = ort.SessionOptions()
    options.log_severity_level = 4
    providers = [("CUDAExecutionProvider", {"user_compute_stream": str(stream.cuda_stream)}), "CPUExecutionProvider"]
    session = ort.InferenceSession(model.SerializeToString(), options, providers=providers)
    binding = session.io_binding()
    tensors = {n: torch.randn(tuple(s), device="cuda", dtype=torch.float16) * 0.3 for n, s in shapes.items()}
    for key, tensor in tensors.items():
        bind = binding.bind_output if key == "y" else binding.bind_input
        bind(key, "cuda", 0, np.float16, list(tensor.shape), tensor.data_ptr())
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        for _ in range(RUNS):
            session.run_with_iobinding(binding)
        us = statistics.median(block(session, binding, stream) for _ in range(BLOCKS))
    print(f"{name:40} {us:8.1f} us {flops / us / 1e6:6.0f} TFLOP/s {moved / us / 1e3:6.0f} GB/s", flush=True)


def block(session: ort.InferenceSession, binding: ort.IOBinding, stream: torch.cuda.Stream) -> float:
    """Microseconds per run of one block."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record(stream)
    for _ in range(RUNS):
        session.run_with_iobinding(binding)
    end.record(stream)
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) * 1e3 / RUNS


def attention(heads: int, length: int, depth: int) -> None:
    """Attention of one batch, whole and in its parts."""
    tag = f"{heads} heads of {depth}, {length} tokens:"
    rows, scores = [1, heads, length, depth], [1, heads, length, length]
    q, k, kt = {"q": rows}, {"k": rows, "v": rows}, {"kt": [1, heads, depth, length]}
    flops, stored = 4.0 * heads * length * length * depth, 2.0 * heads * length * length
    measure(f"{tag} Attention", [node("Attention", "q k v", "y")], q | k, rows, flops=flops, opset=23)
    parts = [node("MatMul", "q kt", "s"), node("Softmax", "s", "p", axis=-1), node("MatMul", "p v", "y")]
    measure(f"{tag} in three nodes", parts, q | kt | {"v": rows}, rows, flops=flops)
    measure(f"{tag} Q K^T", [node("MatMul", "q kt", "y")], q | kt, scores, flops=flops / 2, moved=stored)
    measure(f"{tag} Softmax", [node("Softmax", "s", "y", axis=-1)], {"s": scores}, scores, moved=2 * stored)
    measure(f"{tag} P V", [node("MatMul", "s v", "y")], {"s": scores, "v": rows}, rows, flops=flops / 2, moved=stored)
    transpose = [node("Transpose", "x", "y", perm=[0, 2, 1, 3])]
    measure(f"{tag} Transpose", transpose, {"x": [1, length, heads, depth]}, rows, moved=4.0 * length * heads * depth)


def linear(m: int, k: int, n: int) -> None:
    """A linear layer's product, and what usually stands around it."""
    rows, size = [m, n], 2.0 * m * n
    product = {"a": [m, k], "b": [k, n]}
    measure(f"MatMul {m}x{k}x{n}", [node("MatMul", "a b", "y")], product, rows, flops=2.0 * m * n * k)
    measure(f"Add of a bias {m}x{n}", [node("Add", "x b", "y")], {"x": rows, "b": [n]}, rows, moved=2 * size)
    silu = [node("Sigmoid", "x", "s"), node("Mul", "x s", "y")]
    measure(f"SiLU {m}x{n}", silu, {"x": rows}, rows, moved=2 * size)
    norm = [node("LayerNormalization", "x g b", "y", axis=-1)]
    measure(f"LayerNormalization {m}x{n}", norm, {"x": rows, "g": [n], "b": [n]}, rows, moved=2 * size)


if __name__ == "__main__":
    attention(32, 2048, 128)
    attention(12, 512, 64)
    linear(2048, 4096, 4096)
    linear(2048, 4096, 16384)
    linear(128, 768, 768)
