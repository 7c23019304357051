"""One case of the GPU benchmark, in a process of its own: placement, numbers, times; one JSON object to a file.

python -m benchmarks.gpu_case EXAMPLE FOLDER RESULT.json
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import onnx
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import contenders, reference
from benchmarks.contenders import Contender
from benchmarks.gpu_cases import CASES, FACTS, Case
from examples import weights
from examples.layers import ConvStack, TransformerLayer, randomize
from fusion_cli.files import file_sha256
from fusion_cli.runtime.manifest import FILENAME
from fusion_cli.verify import largest_error

BANDWIDTH = 4.3e12
"""Bytes per second that an H200 reaches."""
PEAK = {"float16": 790e12, "float32": 395e12}
"""Operations per second that its tensor cores reach; float32 matrices are multiplied as TF32."""
ROUNDS = 15
BLOCK_SECONDS = 0.02


def main(case: Case, folder: Path, result_path: Path) -> None:
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True
    original = weights.restore(case.example, folder / "original.onnx")
    fused = restore_fused(folder)
    torch.manual_seed(0)
    x = torch.randn(case.shape, device="cuda").to(getattr(torch, case.dtype))
    exact = reference.run(onnx.load(original), {"x": x})["y"]
    like = exact.to(x.dtype)
    module = torch_module(case).to("cuda", x.dtype)
    failures: dict[str, str] = {}
    runners: dict[str, Contender] = {}
    for name, make in builders(case, original, fused, module, x, like).items():
        try:
            runners[name] = make()
        except Exception as error:  # one way of running that fails must not hide the others
            failures[name] = f"{type(error).__name__}: {error}".splitlines()[0][:500]
    result = {
        "example": case.example,
        "shape": list(case.shape),
        "dtype": case.dtype,
        "device": torch.cuda.get_device_name(),
        **json.loads((folder / FACTS).read_text()),
        "calls": dict(contenders.fused_operators(fused)),
        # Timed first: the runs that are checked then come after hundreds of others.
        "ms": times(runners),
        "errors": errors(runners, exact),
        "floor_ms": floor_ms(case, module, x, like),
        "failures": failures,
    }
    try:
        on, elsewhere = contenders.placement(fused, x, folder)
        result |= {"placement": {op: dict(c) for op, c in on.items()}, "elsewhere": dict(elsewhere)}
    except Exception as error:
        failures["placement"] = f"{type(error).__name__}: {error}".splitlines()[0][:500]
    result_path.write_text(json.dumps(result))


def restore_fused(folder: Path) -> Path:
    """The packed fused model with its weights drawn again, and a manifest that knows the file so made."""
    fused, manifest = folder / "fused.onnx", folder / "fused.fusion" / FILENAME
    onnx.save(weights.fill(onnx.load(folder / "fused.weightless.onnx")), fused)
    content = json.loads(manifest.read_text())
    manifest.write_text(json.dumps(content | {"model_sha256": file_sha256(fused)}))
    return fused


def torch_module(case: Case, *, decomposed: bool = False) -> nn.Module:
    """The example's module, with random weights."""
    if not case.width:
        return randomize(ConvStack())
    return randomize(TransformerLayer(case.width, case.heads, 4 * case.width, decomposed=decomposed))


def builders(
    case: Case, original: Path, fused: Path, module: nn.Module, x: Tensor, like: Tensor
) -> dict[str, Callable[[], Contender]]:
    """The contenders by name, each built only when called."""
    made: dict[str, Callable[[], Contender]] = {
        "fused": lambda: contenders.bound(contenders.fused_session(fused), x, like),
        "fused, graph": lambda: contenders.bound(contenders.fused_session(fused, cuda_graph=True), x, like),
        "ORT": lambda: contenders.bound(contenders.stock_session(original), x, like),
        "ORT, graph": lambda: contenders.bound(contenders.stock_session(original, cuda_graph=True), x, like),
        "torch": lambda: contenders.eager(module, x),
        "torch.compile": lambda: contenders.eager(torch.compile(module), x),
        "torch, graph": lambda: contenders.captured(module, x),
    }
    if case.width:
        made["ORT transformers"] = lambda: contenders.bound(
            contenders.stock_session(contenders.transformer_optimized(original, case.width, case.heads)), x, like
        )
    return made


def errors(runners: Mapping[str, Contender], exact: Tensor) -> dict[str, float]:
    """Relative error of each ONNX Runtime contender in a fresh run (PyTorch's weights are others)."""
    reference_array = exact.cpu().numpy()
    found = {}
    for name, runner in runners.items():
        if not name.startswith("torch"):
            runner.output.zero_()
            torch.cuda.synchronize()
            runner.call()
            torch.cuda.synchronize()
            found[name] = largest_error(reference_array, runner.output.cpu().numpy())
    return found


def times(runners: Mapping[str, Contender]) -> dict[str, float]:
    """Median milliseconds per run. Contenders take turns, so that a change of the machine's speed hits all alike."""
    repeats = {n: max(3, int(BLOCK_SECONDS / max(block(r.call, 5), 1e-6))) for n, r in runners.items()}
    samples: dict[str, list[float]] = {name: [] for name in runners}
    for _ in range(ROUNDS):
        for name, runner in runners.items():
            samples[name].append(block(runner.call, repeats[name]))
    return {name: 1e3 * statistics.median(s) for name, s in samples.items()}


def block(call: Callable[[], object], repeats: int) -> float:
    """Seconds per run of `repeats` runs enqueued back to back."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / repeats


def floor_ms(case: Case, module: nn.Module, x: Tensor, y: Tensor) -> float:
    """Milliseconds no implementation can beat: arithmetic at peak rate, or weights, input and output moved once."""
    # Written out, and on no device: the counter then sees every product, and nothing runs.
    plain = torch_module(case, decomposed=True).to("meta")
    with FlopCounterMode(display=False) as counter:
        plain(torch.empty(case.shape, device="meta"))
    moved: int = sum(t.numel() * t.element_size() for t in [*module.parameters(), *module.buffers(), x, y])
    arithmetic: float = counter.get_total_flops() / PEAK[case.dtype]
    return 1e3 * max(arithmetic, moved / BANDWIDTH)


if __name__ == "__main__":
    name, folder, result_file = sys.argv[1:]
    with torch.inference_mode():
        main(next(c for c in CASES if c.example == name), Path(folder), Path(result_file))
