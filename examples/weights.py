"""Exported graphs without their weights, and the weights again.

The repository holds the example graphs as the exporter wrote them, except that each large initializer has lost its
data and says instead, in its metadata, from which uniform distribution and seed to draw it. `restore` draws them, the
same on every call, and writes an ordinary ONNX file.

    python -m examples.weights transformer_ts17 demo-out/transformer_ts17.onnx
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from zlib import crc32

import ml_dtypes
import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, numpy_helper

MODELS = Path(__file__).resolve().parent / "models"
SMALL = 16
"""Initializers of at most this many elements keep their data: shapes, axes and scalars mean something."""
RECIPE = ("low", "high", "seed")

_DTYPES: dict[int, npt.DTypeLike] = {
    TensorProto.FLOAT: np.float32,
    TensorProto.FLOAT16: np.float16,
    TensorProto.BFLOAT16: ml_dtypes.bfloat16,
}


def graph_path(name: str) -> Path:
    """The weightless graph of the example `name`."""
    return MODELS / f"{name}.weightless.onnx"


def strip(model: onnx.ModelProto) -> None:
    """Replace the data of every large floating-point initializer by its range and a seed, in place."""
    for tensor in model.graph.initializer:
        if tensor.data_type in _DTYPES and int(np.prod(tensor.dims)) > SMALL:
            values = numpy_helper.to_array(tensor)
            set_recipe(tensor, low=float(values.min()), high=float(values.max()), seed=crc32(tensor.name.encode()))


def set_recipe(tensor: TensorProto, **recipe: float) -> None:
    """Drop the tensor's data and note how to draw it: uniform on [low, high) from `seed`."""
    bare = TensorProto(name=tensor.name, dims=tensor.dims, data_type=tensor.data_type)
    for key, value in recipe.items():
        bare.metadata_props.add(key=key, value=json.dumps(value))
    tensor.CopyFrom(bare)


def recipe_of(tensor: TensorProto) -> dict[str, Any]:
    """The recipe of a stripped initializer; empty for one that has its data."""
    return {p.key: json.loads(p.value) for p in tensor.metadata_props if p.key in RECIPE}


def draw(tensor: TensorProto) -> npt.NDArray[np.generic]:
    """The values that a stripped initializer stands for."""
    recipe = recipe_of(tensor)
    unit = np.random.default_rng(recipe["seed"]).random(tuple(tensor.dims), dtype=np.float32)
    unit *= recipe["high"] - recipe["low"]
    unit += recipe["low"]
    return unit.astype(_DTYPES[tensor.data_type], copy=False)


def fill(model: onnx.ModelProto) -> onnx.ModelProto:
    """Draw every stripped initializer, in place; the result is an ordinary model."""
    for tensor in model.graph.initializer:
        if recipe_of(tensor):
            values = draw(tensor)
            kept = [p for p in tensor.metadata_props if p.key not in RECIPE]
            del tensor.metadata_props[:]
            tensor.metadata_props.extend(kept)
            tensor.raw_data = values.tobytes()
    return model


def restore(name: str, output: Path) -> Path:
    """Write the example `name` with its weights to `output`."""
    output.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(fill(onnx.load(graph_path(name))), output)
    return output


if __name__ == "__main__":
    if len(sys.argv) != 3:
        names = ", ".join(sorted(p.name.removesuffix(".weightless.onnx") for p in MODELS.glob("*.weightless.onnx")))
        sys.exit(f"usage: python -m examples.weights NAME OUTPUT\nnames: {names}")
    print(restore(sys.argv[1], Path(sys.argv[2])))
