"""The ways to run a model that the GPU benchmark compares, each as a function that enqueues one run (needs torch)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import torch
from torch import Tensor

import fusion_cli

Call = Callable[[], object]


@dataclass(frozen=True)
class Contender:
    """`call` enqueues one run on the GPU; `output` holds the result once the GPU is done."""

    call: Call
    output: Tensor


def providers(*, cuda_graph: bool = False) -> list[Any]:
    """ONNX Runtime's CUDA provider, with the CPU's for what is left."""
    return [("CUDAExecutionProvider", {"enable_cuda_graph": str(int(cuda_graph))}), "CPUExecutionProvider"]


def quiet(**settings: Any) -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.log_severity_level = 3
    for key, value in settings.items():
        setattr(options, key, value)
    return options


def fused_session(path: Path, *, cuda_graph: bool = False, **settings: Any) -> ort.InferenceSession:
    """The fused model with its library."""
    return fusion_cli.session(path, providers(cuda_graph=cuda_graph), sess_options=quiet(**settings))


def stock_session(path: Path, *, cuda_graph: bool = False) -> ort.InferenceSession:
    """A model as ONNX Runtime runs it, with all its own optimizations."""
    return ort.InferenceSession(path, quiet(), providers=providers(cuda_graph=cuda_graph))


def transformer_optimized(path: Path, width: int, heads: int) -> Path:
    """The model as ONNX Runtime's offline transformer optimizer rewrites it, in a file beside it."""
    from onnxruntime.transformers.optimizer import optimize_model

    target = path.with_name("transformer_optimized.onnx")
    optimized = optimize_model(str(path), "bert", num_heads=heads, hidden_size=width, opt_level=0, use_gpu=True)
    optimized.save_model_to_file(str(target))
    return target


def bound(session: ort.InferenceSession, x: Tensor, like: Tensor) -> Contender:
    """The session with input and output bound to GPU memory, warmed up (and captured, if it uses a CUDA graph)."""
    output = torch.zeros_like(like)
    binding, options = session.io_binding(), ort.RunOptions()
    # Runs are enqueued back to back, as in a loop over layers; the caller waits for the GPU.
    options.add_run_config_entry("disable_synchronize_execution_providers", "1")
    for bind, tensor, name in (
        (binding.bind_input, x, session.get_inputs()[0].name),
        (binding.bind_output, output, session.get_outputs()[0].name),
    ):
        bind(name, "cuda", 0, np.dtype(str(tensor.dtype).removeprefix("torch.")), list(tensor.shape), tensor.data_ptr())

    def call() -> None:
        session.run_with_iobinding(binding, options)

    return warm(Contender(call, output))


def warm(contender: Contender) -> Contender:
    torch.cuda.synchronize()
    for _ in range(3):
        contender.call()
    torch.cuda.synchronize()
    return contender


def eager(module: Callable[[Tensor], Tensor], x: Tensor) -> Contender:
    return warm(Contender(lambda: module(x), module(x)))


def captured(module: Callable[[Tensor], Tensor], x: Tensor) -> Contender:
    """PyTorch's eager kernels replayed from a CUDA graph."""
    for _ in range(3):
        module(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = module(x)
    return warm(Contender(graph.replay, output))


def placement(path: Path, x: Tensor, folder: Path) -> tuple[dict[str, Counter[str]], Counter[str]]:
    """Where the fused model's nodes ran, from ONNX Runtime's own profile of one run.

    Returns runs of each fused operator by provider, and the other operators that ran outside the CUDA provider.
    """
    session = fused_session(path, enable_profiling=True, profile_file_prefix=str(folder / "profile"))
    session.run(None, {session.get_inputs()[0].name: x.cpu().numpy()})
    events = json.loads(Path(session.end_profiling()).read_text())
    fused: dict[str, Counter[str]] = {}
    elsewhere: Counter[str] = Counter()
    operators = fused_operators(path)
    for event in events:
        provider, op = event["args"].get("provider"), event["args"].get("op_name")
        if not provider or not event["name"].endswith("_kernel_time"):
            continue
        if op in operators:
            fused.setdefault(op, Counter())[provider] += 1
        elif provider != "CUDAExecutionProvider":
            elsewhere[op] += 1
    return fused, elsewhere


def fused_operators(path: Path) -> Counter[str]:
    """How often the model calls each operator that the compiler made."""
    import onnx

    model = onnx.load(path, load_external_data=False)
    made = {f.name for f in model.functions if f.domain == "fusion"}
    return Counter(n.op_type for n in model.graph.node if n.domain == "fusion" and n.op_type in made)
