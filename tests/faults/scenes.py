"""What is interrupted: an output that takes the place of another, and whole runs of `optimize`, each in a folder that
holds the model, perhaps what an earlier run has written, the cache of kernels, the user's configuration, and what is
none of ours."""

from __future__ import annotations

import os
import re
import shutil
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import onnx
from onnx import helper, numpy_helper

from fusion_cli import runtime
from fusion_cli.cli import main
from fusion_cli.save import commit, staging
from tests.helpers.graphs import parse

CPU = ["CPUExecutionProvider"]
_OURS = re.compile(r"out\.onnx(-[0-9a-f]{16}\.data)?$|out\.fusion/|cache/|config/")
_OTHERS = ("out.onnx.notes", ".out.onnx-mine", "out.onnx-mine.data", ".out.fusion-mine", "theirs/out.onnx", "out.ort")
MODEL = """g (float[n, 64] x) => (float[n, 64] y) { a = Add (x, w) s = Sigmoid (a) y = Mul (a, s) }"""
OLD, NEW = 1.0, 2.0
"""The weights of what was there before and of what takes its place."""


@dataclass(frozen=True)
class Scene:
    """A run that writes `out.onnx` in a folder."""

    options: tuple[str, ...] = ()
    """Of `optimize`."""
    is_first: bool = False
    """Whether nothing is there: no earlier output, no cache, no configuration."""
    only_switch: bool = False
    """Whether the output is ready and takes its place, and nothing else is done."""
    weights: float = NEW
    """Of the model."""

    def prepare(self, folder: Path) -> None:
        """Fill a new folder."""
        (folder / "theirs").mkdir(parents=True)
        for name in _OTHERS:
            (folder / name).write_text("not ours")
        if not self.is_first:
            write(folder / "old.onnx", OLD)
            optimize(folder, "old.onnx", "out.onnx", "--no-verify")
        write(folder / "model.onnx", self.weights)
        if self.only_switch:
            (folder / "new").mkdir()
            optimize(folder, "model.onnx", "new/out.onnx", "--no-verify")

    def run(self, folder: Path) -> int:
        """The exit code."""
        if not self.only_switch:
            return optimize(folder, "model.onnx", "out.onnx", *self.options)
        with staging(folder / "out.onnx", folder / "model.onnx") as stage:
            stage.bundle.rmdir()
            shutil.copytree(folder / "new", stage.folder, dirs_exist_ok=True)
            commit(stage)
        return 0


SCENES = {
    "switch": Scene(only_switch=True),
    "switch first": Scene(only_switch=True, is_first=True),
    "switch same": Scene(only_switch=True, weights=OLD),
    "first": Scene(("--no-verify",), is_first=True),
    "again": Scene(("--no-verify",)),
    "verified": Scene(),
}


def write(path: Path, value: float) -> None:
    """A model whose weights are in a file beside it."""
    model = parse(MODEL, {"w": (64,)})
    tensor = model.graph.initializer[0]
    tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) * 0 + value, "w"))
    helper.set_model_props(model, {"notes": "n" * 5000})
    onnx.save(model, path, save_as_external_data=True, location=f"{path.name}.weights", size_threshold=0)


def optimize(folder: Path, model: str, output: str, *options: str) -> int:
    """The command, with the cache and the configuration in the folder; its exit code."""
    given = ["-o", str(folder / output), "--target", "cpu", "--force", "--jobs", "1", "-q", *options]
    with places(folder):
        try:
            main(["optimize", str(folder / model), *given])
        except SystemExit as end:
            return end.code if isinstance(end.code, int) else 0
    return 0


@contextmanager
def places(folder: Path) -> Iterator[None]:
    """The cache and the configuration in a folder."""
    own = {"FUSION_CLI_CACHE": str(folder / "cache"), "XDG_CONFIG_HOME": str(folder / "config")}
    with patch.dict(os.environ, own):
        yield


def content(folder: Path) -> Mapping[str, bytes]:
    """What every file holds, and every link and every folder that is empty, as nothing."""
    found = [p for p in folder.rglob("*") if p.is_symlink() or not p.is_dir() or not any(p.iterdir())]
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else b"" for p in found}


def fault(folder: Path, before: Mapping[str, bytes], *, trust: bool = False) -> str:
    """What is wrong with a folder of this content before, apart from what a run may have left behind; "" where its
    output is the old one or the new one whole, with its weights and its kernels. `trust`: these may not be sealed."""
    found = content(folder)
    changed = [n for n, data in before.items() if not _OURS.match(n) and found.get(n) != data]
    if changed:
        return f"changed: {changed}"
    if "out.onnx" not in found:
        return "the output is gone" if "out.onnx" in before else ""
    with warnings.catch_warnings(), places(folder):
        warnings.simplefilter("error")
        try:
            (weights,) = onnx.load(folder / "out.onnx").graph.initializer
            library = runtime.find_library(folder / "out.onnx", CPU, CPU, trust=trust)
        except Exception as error:
            return f"the output cannot be used: {error}"
    if library is None or set(numpy_helper.to_array(weights)) not in ({OLD}, {NEW}):
        return "the output is neither the old nor the new one"
    return ""


def left(folder: Path) -> set[str]:
    """What is there, by name."""
    return set(content(folder))
