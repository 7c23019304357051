"""What a model is made of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import onnx_ir as ir

from fusion_cli.errors import FusionError
from fusion_cli.load import data_locations, is_fused, load_model
from fusion_cli.match import find_regions, load_rules
from fusion_cli.runtime.manifest import read_manifest
from fusion_cli.simplify import simplify
from fusion_cli.sizes.parsing import written
from fusion_cli.verify.signature import signature_of


@dataclass(frozen=True)
class Facts:
    """A model in numbers. `inputs` and `outputs` are types by name, such as "float32 [batch, 128]"; `weights` are bytes
    by element type; `bodies` the nodes inside control flow."""

    path: str
    file_bytes: int
    data_files: tuple[str, ...]
    producer: str
    ir_version: int
    opsets: Mapping[str, int]
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    nodes: int
    bodies: int
    operators: Mapping[str, int]
    initializers: int
    parameters: int
    weights: Mapping[str, int]
    functions: tuple[str, ...]
    kernels: tuple[str, ...] = ()
    """The targets that a model of ours has libraries for."""
    idioms: Mapping[str, int] = field(default_factory=dict)
    """What rules recognise, fused or not; of a fused model nothing is said."""


def facts_of(path: Path, idioms: bool = True) -> Facts:
    """The facts of the model at `path`. Raises FusionError where it cannot be read."""
    model = load_model(path)
    signature, graph = signature_of(model), model.graph
    tensors = [v.const_value for v in graph.initializers.values() if v.const_value is not None]
    weights: Counter[str] = Counter()
    for tensor in tensors:
        weights[_named(tensor.dtype)] += 0 if tensor.dtype.is_string() else tensor.nbytes
    producer = f"{model.producer_name or 'unknown'} {model.producer_version or ''}".strip()
    return Facts(
        path=str(path),
        file_bytes=path.stat().st_size,
        data_files=tuple(sorted(data_locations(path))),
        producer=producer,
        ir_version=model.ir_version,
        opsets={domain or "ai.onnx": version for domain, version in sorted(graph.opset_imports.items())},
        inputs=_types(v for v in graph.inputs if v.name not in graph.initializers),
        outputs=_types(graph.outputs),
        nodes=signature.nodes,
        bodies=signature.nodes - len(graph),
        operators=dict(sorted(signature.operators.items(), key=lambda item: (-item[1], item[0]))),
        initializers=len(tensors),
        parameters=sum(t.size for t in tensors),
        weights=dict(sorted(weights.items())),
        functions=tuple(sorted(f.name for f in model.functions.values())),
        kernels=_kernels(path),
        idioms=_idioms(path, model) if idioms else {},
    )


def _types(values: Iterable[ir.Value]) -> dict[str, str]:
    return {v.name or "": f"{_named(v.dtype)} {_shape(v)}" for v in values}


def _named(dtype: ir.DataType | None) -> str:
    return "?" if dtype is None else dtype.name.lower() if dtype.is_string() else dtype.numpy().name


def _shape(value: ir.Value) -> str:
    if value.shape is None:
        return "of unknown rank"
    dims = (str(d) if isinstance(d, int) else written(d.value) if d.value else "?" for d in value.shape)
    return f"[{', '.join(dims)}]"


def _kernels(path: Path) -> tuple[str, ...]:
    try:
        return tuple(library.target for library in read_manifest(path.with_suffix(".fusion")).libraries)
    except FusionError:
        return ()


def _idioms(path: Path, model: ir.Model) -> dict[str, int]:
    if is_fused(model):
        return {}
    simple = simplify(model, lambda: load_model(path), True, False).model
    return dict(sorted(find_regions(simple, load_rules()).idioms.items(), key=lambda item: -item[1]))
