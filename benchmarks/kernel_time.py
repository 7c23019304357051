"""Time the kernels of a family's cases beside their yardsticks; one JSON line per case.

Run by `benchmarks.kernels` in a process of its own, beside which nothing else should run.

    python -m benchmarks.kernel_time FOLDER/FAMILY.onnx TOLERANCE CASE [CASE ...]
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks import gpu_clock
from benchmarks.contenders import Contender, Setting, device, flat, has_gpu, of_session
from benchmarks.gpu_case import machine
from benchmarks.gpu_write import made_path
from benchmarks.kernel_cases import KernelCase, case_of, is_weight
from benchmarks.kernel_write import MODES, ORIGINAL
from benchmarks.kernel_yardsticks import exact, yardsticks
from benchmarks.runs import TOLERANCE
from fusion_cli.verify import largest_error


def main(folder: Path, cases: Sequence[str]) -> None:
    if has_gpu():
        torch.backends.cuda.preferred_blas_library("cublaslt")
    with torch.no_grad():
        for id in cases:
            print(json.dumps(measure(case_of(id), folder / f"{id}.onnx") | {"mode": id}), flush=True)


def measure(case: KernelCase, path: Path) -> dict[str, Any]:
    """A case's outcome: `status` ok, wrong or error, why, microseconds and kernels of ours and of the yardsticks (those
    of the smallest also where what they read is `near`), the error, and whether two runs give the same bits."""
    inputs = inputs_of(case)
    want = exact(case, inputs)
    us: dict[str, tuple[float, float]] = {}
    near: dict[str, float] = {}
    facts: dict[str, Any] = {}
    failures: dict[str, str] = {}
    for name, make in contenders(case, path, inputs, want):
        try:
            contender = make()
            us[name] = gpu_clock.kernel_us(contender)
            if case.unit == "us":
                near[name] = gpu_clock.kernel_us(contender, near=True)[0]
            if name in MODES:
                facts[name] = {"error": error_of(contender, want), "repeatable": gpu_clock.is_repeatable(contender)}
        except Exception as problem:  # one that fails must not hide the others
            failures[name] = f"{type(problem).__name__}: {problem}".splitlines()[0][:300]
    result = {"us": us, "near": near, "made": facts, "failures": failures, "machine": machine(device())}
    if "kernels" not in facts:
        return {"status": "error", "detail": failures.get("kernels", "no kernels were built"), **result}
    good = all(f["error"] <= TOLERANCE["f16"] and f["repeatable"] for f in facts.values())
    return {"status": "ok" if good else "wrong", "detail": "", **result}


def error_of(contender: Contender, want: Sequence[Tensor]) -> float:
    """The largest error of a run's results, over the largest magnitude of what they are to be."""
    pairs = zip(want, gpu_clock.fresh(contender), strict=True)
    return max(largest_error(a.cpu().numpy(), b.cpu().float().numpy()) for a, b in pairs)


def inputs_of(case: KernelCase) -> dict[str, Tensor]:
    """A case's inputs, the same each time, on the GPU if there is one."""
    torch.manual_seed(0)
    return {name: values_of(case, name).to(device()) for name in case.inputs}


def values_of(case: KernelCase, name: str) -> Tensor:
    """An input's values, those of a weight as the model has them."""
    if not is_weight(name):
        return torch.randn(case.shape(name)).half()
    return torch.from_numpy(case.weight(name))


def contenders(
    case: KernelCase, path: Path, inputs: Mapping[str, Tensor], want: Sequence[Tensor]
) -> Iterator[tuple[str, Callable[[], Contender]]]:
    """Ours, as they were built, the nodes in ONNX Runtime, and the yardsticks, by name."""
    like = [t.half() for t in want]
    for mode in MODES:
        made = made_path(path, mode)
        if made.is_file():
            yield mode, partial(of_session, made, Setting(mode), inputs, like)
    yield ORIGINAL, partial(of_session, path, Setting(), inputs, like)
    stream = torch.cuda.Stream() if has_gpu() else None
    for name, call in yardsticks(case, inputs).items():
        yield name, partial(Contender, lambda call=call: flat(call()), stream)


if __name__ == "__main__":
    main(Path(sys.argv[1]).parent, sys.argv[3:])
