"""Run a model once between the marks that a profiler starts and ends at, after some runs that it does not see; prints
the machine as a line of JSON.

python -m benchmarks.gpu_once FOLDER/ID.onnx unoptimized|fused|quick
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

from benchmarks.contenders import Setting, of_session
from benchmarks.gpu_case import Case, machine
from benchmarks.gpu_clock import fresh
from benchmarks.gpu_write import made_path


def main(path: Path, way: str) -> None:
    case = Case(path)
    print(json.dumps(machine(case.device)), flush=True)
    setting = Setting(optimized=False) if way == "unoptimized" else Setting(made=way)
    contender = of_session(
        path if way == "unoptimized" else made_path(path, way), setting, case.example.inputs, case.like
    )
    fresh(contender)
    if case.device == "cuda":
        torch.cuda.cudart().cudaProfilerStart()
    contender.call()
    if case.device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.cudart().cudaProfilerStop()


if __name__ == "__main__":
    with torch.no_grad():
        main(Path(sys.argv[1]), sys.argv[2])
