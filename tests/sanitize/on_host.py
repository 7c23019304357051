"""Do CUDA kernels read or write what is nobody's? Runs their tests without a GPU under AddressSanitizer.

    python -m tests.sanitize.on_host [PYTEST ARGUMENT ...]

Needs g++ and its libasan. By default every kernel at every size that tests have, in some ten minutes; unlike
compute-sanitizer's memcheck it knows nothing of shared memory.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from fusion_cli.build import find_compiler
from tests.helpers.cuda_host_library import MORE_FLAGS
from tests.helpers.emit_helpers import CPU

FLAGS = "-fsanitize=address --param asan-stack=0 -g1"
"""Stacks are the fibers' that threads of a block run on, which it cannot follow."""
OPTIONS = "detect_leaks=0:alloc_dealloc_mismatch=0:new_delete_type_mismatch=0:detect_stack_use_after_return=0"
"""What is not of kernels: Python and ONNX Runtime keep what they like."""
TESTS = ("tests/emit/test_cuda_on_host.py",)


def libasan() -> Path | None:
    """The sanitizer's library, if the compiler has one."""
    compiler = find_compiler(CPU)
    if compiler is None:
        return None
    found = subprocess.run([compiler.path, "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    path = Path(found.stdout.strip())
    return path if path.is_absolute() else None


def environment(library: Path) -> dict[str, str]:
    """Where the kernels that tests build are watched. Python loads them: the sanitizer has to be there before."""
    return {**os.environ, MORE_FLAGS: FLAGS, "ASAN_OPTIONS": OPTIONS, "LD_PRELOAD": str(library)}


def main(arguments: Sequence[str]) -> int:
    library = libasan()
    if library is None:
        print("there is no libasan: it comes with g++", file=sys.stderr)
        return 2
    tests = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", *(arguments or TESTS)]
    return subprocess.run(tests, env=environment(library), check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
