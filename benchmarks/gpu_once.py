"""Run a model once between the marks that a profiler starts and ends at, after some runs that it does not see; prints
the machine as a line of JSON.

    python -m benchmarks.gpu_once FOLDER/ID.onnx unoptimized|fused|quick

and of a case of `benchmarks.kernels`

    python -m benchmarks.gpu_once FOLDER/CASE.onnx kernels|own
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

from benchmarks.contenders import Contender, Setting, device, has_gpu, of_session
from benchmarks.gpu_case import Case, machine
from benchmarks.gpu_clock import fresh
from benchmarks.gpu_write import made_path
from benchmarks.kernel_cases import case_of
from benchmarks.kernel_time import inputs_of
from benchmarks.kernel_write import MODES
from benchmarks.kernel_yardsticks import exact


def main(path: Path, way: str) -> None:
    print(json.dumps(machine(device())), flush=True)
    contender = of_kernel(path, way) if way in MODES else of_model(path, way)
    fresh(contender)
    if has_gpu():
        torch.cuda.cudart().cudaProfilerStart()
    contender.call()
    if has_gpu():
        torch.cuda.synchronize()
        torch.cuda.cudart().cudaProfilerStop()


def of_model(path: Path, way: str) -> Contender:
    case = Case(path)
    if way == "unoptimized":
        return of_session(path, Setting(optimized=False), case.example.inputs, case.like)
    return of_session(made_path(path, way), Setting(made=way), case.example.inputs, case.like)


def of_kernel(path: Path, way: str) -> Contender:
    case = case_of(path.stem)
    inputs = inputs_of(case)
    like = [t.half() for t in exact(case, inputs)]
    return of_session(made_path(path, way), Setting(way), inputs, like)


if __name__ == "__main__":
    with torch.no_grad():
        main(Path(sys.argv[1]), sys.argv[2])
