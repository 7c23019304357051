"""Lays a fused model out for Triton's ONNX Runtime backend: python triton_repository.py MODEL REPOSITORY NAME [TARGET]

REPOSITORY/NAME/config.pbtxt, REPOSITORY/NAME/1/model.onnx, with its weights, and REPOSITORY/NAME/1/model.fusion/. The
library is named by its path on this machine; give the server's in its place where that is another.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import onnx

TYPES = {
    1: "TYPE_FP32",
    2: "TYPE_UINT8",
    3: "TYPE_INT8",
    6: "TYPE_INT32",
    7: "TYPE_INT64",
    9: "TYPE_BOOL",
    10: "TYPE_FP16",
}
"""Triton's names of ONNX's element types."""


def lay_out(model: Path, repository: Path, name: str, target: str = "cpu") -> Path:
    """Copy the model and its bundle, and write the configuration that has the server load its kernels for `target`;
    returns that."""
    version = repository / name / "1"
    version.mkdir(parents=True)
    bundle = model.with_suffix(".fusion")
    shutil.copyfile(model, version / "model.onnx")
    shutil.copytree(bundle, version / "model.fusion")
    for weights in json.loads((bundle / "manifest.json").read_text())["data"]:
        shutil.copyfile(model.with_name(weights), version / weights)
    graph = onnx.load(model, load_external_data=False).graph
    weights = {w.name for w in graph.initializer}
    library = (version / "model.fusion" / "lib" / f"{target}.so").resolve()
    kind = "KIND_CPU" if target in ("cpu", "amx") else "KIND_GPU"
    lines = [
        f'name: "{name}"',
        'backend: "onnxruntime"',
        "max_batch_size: 0",
        *(port("input", value) for value in graph.input if value.name not in weights),
        *(port("output", value) for value in graph.output),
        f"instance_group [ {{ kind: {kind} }} ]",
        f'model_operations {{ op_library_filename: "{library}" }}',
    ]
    config = repository / name / "config.pbtxt"
    config.write_text("\n".join(lines) + "\n")
    return config


def port(kind: str, value: onnx.ValueInfoProto) -> str:
    tensor = value.type.tensor_type
    dims = [d.dim_value if d.HasField("dim_value") else -1 for d in tensor.shape.dim]
    return f'{kind} [ {{ name: "{value.name}" data_type: {TYPES[tensor.elem_type]} dims: {dims} }} ]'


if __name__ == "__main__":
    lay_out(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
