"""The ways to run a model that the GPU benchmarks compare, each as a function that enqueues one run (needs torch)."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnxruntime as ort
import torch
from onnx import TensorProto
from torch import Tensor, nn

import fusion_cli

_ELEMENT = {
    torch.float32: TensorProto.FLOAT,
    torch.float16: TensorProto.FLOAT16,
    torch.bfloat16: TensorProto.BFLOAT16,
    torch.int64: TensorProto.INT64,
    torch.bool: TensorProto.BOOL,
}


@dataclass(frozen=True)
class Contender:
    """`call` enqueues one run on `stream` and gives the tensors that hold its results once the GPU is done; without a
    stream, on a CPU, it is done when it returns."""

    call: Callable[[], Sequence[Tensor]]
    stream: torch.cuda.Stream | None = None
    uses: object = None
    """Kept while `call` is, which knows only where its memory lies: a session's inputs, or what a graph is of."""


@dataclass(frozen=True)
class Setting:
    """How ONNX Runtime runs a model; `made`: what fusion-cli wrote, with its library."""

    made: str = ""
    cuda_graph: bool = False
    captured: bool = False
    """Whether the caller makes a CUDA graph of a run and replays that, as a program that uses PyTorch's does: ONNX
    Runtime, which keeps the graph otherwise, waits after every replay."""
    prefer_nhwc: bool = False
    optimized: bool = True
    """Whether ONNX Runtime's own optimizations are on."""


SESSIONS: Mapping[str, Setting] = {
    "ORT": Setting(),
    "ORT, graph": Setting(cuda_graph=True),
    "ORT, captured": Setting(captured=True),
    "ORT, NHWC": Setting(prefer_nhwc=True),
    "ORT, NHWC, graph": Setting(prefer_nhwc=True, cuda_graph=True),
    "ORT, NHWC, captured": Setting(prefer_nhwc=True, captured=True),
    **{made: Setting(made) for made in ("fused", "quick")},
    **{f"{made}, graph": Setting(made, cuda_graph=True) for made in ("fused", "quick")},
    **{f"{made}, captured": Setting(made, captured=True) for made in ("fused", "quick")},
}
"""`fused` is what the default command line writes, `quick` the same without looking whether it helps here."""
COMPILED = "torch, compiled"


def has_gpu() -> bool:
    return torch.cuda.is_available() and "CUDAExecutionProvider" in ort.get_available_providers()


def device() -> str:
    """Where everything runs."""
    return "cuda" if has_gpu() else "cpu"


def open_session(path: Path, setting: Setting, stream: torch.cuda.Stream | None) -> ort.InferenceSession:
    """A session on `stream`, on the CPU without one. Raises RuntimeError where a library that should run does not."""
    options = ort.SessionOptions()
    options.log_severity_level = 3
    if not setting.optimized:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    providers: list[Any] = ["CPUExecutionProvider"]
    if stream is not None:
        cuda = {
            "device_id": "0",
            "user_compute_stream": str(stream.cuda_stream),
            "enable_cuda_graph": str(int(setting.cuda_graph)),
            "prefer_nhwc": str(int(setting.prefer_nhwc)),
        }
        providers.insert(0, ("CUDAExecutionProvider", cuda))
    if not setting.made:
        return ort.InferenceSession(path, options, providers)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        session = fusion_cli.session(path, options, providers)
    if missing := [w for w in said if issubclass(w.category, UserWarning)]:
        raise RuntimeError(str(missing[0].message))
    return session


def enqueuing() -> ort.RunOptions:
    """For runs that are enqueued back to back, as in a loop over layers; the caller waits for the GPU."""
    options = ort.RunOptions()
    options.add_run_config_entry("disable_synchronize_execution_providers", "1")
    return options


def bound(
    session: ort.InferenceSession,
    inputs: Mapping[str, Tensor],
    like: Sequence[Tensor],
    stream: torch.cuda.Stream | None = None,
) -> Contender:
    """The session with its inputs, and results like those given, bound to their memory."""
    outputs = [torch.zeros_like(t, memory_format=torch.contiguous_format) for t in like]
    binding, options = session.io_binding(), enqueuing()
    names = [i.name for i in session.get_inputs()]
    for bind, name, tensor in [
        *((binding.bind_input, name, inputs[name]) for name in names),
        *((binding.bind_output, o.name, t) for o, t in zip(session.get_outputs(), outputs, strict=True)),
    ]:
        assert tensor.is_contiguous()
        bind(name, tensor.device.type, 0, _ELEMENT[tensor.dtype], list(tensor.shape), tensor.data_ptr())

    def call() -> Sequence[Tensor]:
        session.run_with_iobinding(binding, options)
        return outputs

    return Contender(call, stream, inputs)


def of_session(path: Path, setting: Setting, inputs: Mapping[str, Tensor], like: Sequence[Tensor]) -> Contender:
    """A model in ONNX Runtime, where its inputs are."""
    stream = torch.cuda.Stream() if next(iter(inputs.values())).is_cuda else None
    contender = bound(open_session(path, setting, stream), inputs, like, stream)
    return captured(contender) if setting.captured else contender


def captured(contender: Contender) -> Contender:
    """The same as a CUDA graph, replayed on its stream."""
    assert contender.stream is not None
    with torch.cuda.stream(contender.stream):  # what libraries set up at their first calls cannot be captured
        for _ in range(3):
            contender.call()
    torch.cuda.synchronize()
    # Memory of the graph's own for cuBLAS, not what `torch.compile` frees before it captures.
    torch._C._cuda_clearCublasWorkspaces()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=contender.stream, capture_error_mode="thread_local"):
        results = contender.call()

    def replay() -> Sequence[Tensor]:
        graph.replay()
        return results

    return Contender(replay, contender.stream, contender)


def of_torch(name: str, module: nn.Module, inputs: Mapping[str, Tensor]) -> Contender:
    """A module in PyTorch: eager, its kernels replayed from a CUDA graph, or compiled with all that it can tune."""
    run: Callable[..., Any] = module
    if name == COMPILED:
        run = torch.compile(module, mode="max-autotune")
    given = tuple(inputs.values())
    stream = torch.cuda.default_stream() if given[0].is_cuda else None
    if name != "torch, graph":
        return Contender(lambda: flat(run(*given)), stream)
    return captured(Contender(lambda: flat(run(*given)), torch.cuda.Stream()))


def flat(found: Tensor | Sequence[Tensor]) -> tuple[Tensor, ...]:
    """A module's results, one or several, as the outputs of its export."""
    return (found,) if isinstance(found, Tensor) else tuple(found)
