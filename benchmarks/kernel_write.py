"""Build the kernels of a case of kernel_cases.py as `fusion-cli optimize --force` does; one JSON line per mode.

Run by `benchmarks.kernels` in a process of its own, of which several run at a time. `own` multiplies matrices by our
own kernels also where the vendor's are known to be faster.

    python -m benchmarks.kernel_write FOLDER/CASE.onnx TOLERANCE kernels|own ...
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx

import fusion_cli
from benchmarks.gpu_write import made_path
from benchmarks.kernel_cases import PRODUCTS, case_of
from fusion_cli.errors import FusionError
from fusion_cli.load import DOMAIN

MODES = ("kernels", "own")
ORIGINAL = "ORT"
"""The name of ONNX Runtime's own run of a case, which is timed beside them."""
_OWN = "-DFUSION_VENDOR_FROM=1e300"
"""As templates/include/linear.cuh says: the vendor's are asked for products of at least so many multiplications."""


def main(path: Path, modes: Sequence[str]) -> None:
    onnx.save(case_of(path.stem).model(), path)
    for mode in modes:
        if mode == "own":
            # Read by nvcc itself; what it compiles so must not be taken for what others compile.
            os.environ |= {"NVCC_PREPEND_FLAGS": _OWN, "FUSION_CLI_CACHE": str(path.parent / "own-cache")}
        print(json.dumps(write(path, mode) | {"mode": mode}), flush=True)


def write(path: Path, mode: str) -> dict[str, Any]:
    """One mode's outcome: `status` ok, skipped or error, and why."""
    if mode == "own" and case_of(path.stem).family not in PRODUCTS:
        return {"status": "skipped", "detail": "no vendor's kernel is used"}
    made = made_path(path, mode)
    try:
        report = fusion_cli.optimize(path, made, force=True, verify=False, jobs=1)
    except FusionError as problem:
        return {"status": "error", "detail": str(problem)}
    left = [n.op_type for n in onnx.load(made).graph.node if n.domain != DOMAIN]
    if left or not report.libraries:
        return {"status": "error", "detail": f"not fused: {', '.join(left) or 'no library was built'}"}
    return {"status": "ok", "fusions": [f.rule for f in report.fusions]}


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[3:])
