"""An output that is replaced by a run that is killed before one of its changes to the file system, for each of them.

As a script, with a folder that holds `before`: the output (or none) and, in `before/new`, what is to take its place.
Each number gets a copy, in which a child is killed before the change of that number; the copy is judged, and once more
after the next run. Prints what is wrong with it, and at last the number of a child that came through.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import warnings
from itertools import count
from pathlib import Path

import onnx

from fusion_cli import runtime
from fusion_cli.save import commit, staging

CHANGES = {"os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate"}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


def die_before(number: int) -> None:
    """Kill this process before its change of that number."""
    changes = count()

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITING
        if (event in CHANGES or writes) and next(changes) == number:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def replace(folder: Path, number: int) -> bool:
    """Whether the output of `folder` was replaced by a run that was not killed."""
    child = os.fork()
    if child == 0:
        die_before(number)
        with staging(folder / "out.onnx", folder / "model.onnx") as stage:
            shutil.copytree(folder / "new", stage.folder, dirs_exist_ok=True)
            commit(stage)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0


def content(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def fault(model: Path, old: bytes | None, new: bytes) -> str:
    """What is wrong with an output; "" if it is the old or the new one, with its weights and its kernels."""
    found = model.read_bytes() if model.exists() else None
    if found not in (old, new):
        return "neither the old model nor the new one"
    if found is None:
        return ""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            onnx.load(model)
            library = runtime.find_library(model, ["CPUExecutionProvider"], ["CPUExecutionProvider"])
        except Exception as error:
            return str(error)
    return "" if library is not None else "without its library"


def main(folder: Path) -> None:
    before = folder / "before"
    old, new = content(before), content(before / "new")
    after = {n: data for n, data in old.items() if n.startswith("new") or not n.startswith("out.")} | new
    for number in count():
        copy = folder / str(number)
        shutil.copytree(before, copy)
        done = replace(copy, number)
        if said := fault(copy / "out.onnx", old.get("out.onnx"), new["out.onnx"]):
            print(f"killed before change {number}: {said}")
        with staging(copy / "out.onnx", copy / "model.onnx"):
            pass
        if content(copy) not in ((after,) if done else (old, after)):
            print(f"killed before change {number}: the next run leaves {sorted(content(copy))}")
        if done:
            print(number)
            return


if __name__ == "__main__":
    main(Path(sys.argv[1]))
