"""A user's own template: where it is found, and what it sees of the operator."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from fusion_cli.codegen import expr
from fusion_cli.codegen.text import comment
from fusion_cli.codes import emit as codes
from fusion_cli.errors import TemplateError, Unsupported
from fusion_cli.types import FusedOp, Target, TensorSpec

SUFFIX = {"cpu": ".cc", "cuda": ".cu"}
_INFERRED = re.compile(r"_d\d+")
"""What shape inference calls a size that nothing else has a name for."""


def find_template(kernel: str, target: Target, folders: Sequence[Path]) -> str:
    """The file name of a rule's template for a target, below one of the rules' folders.

    Raises Unsupported where there is none for this target, TemplateError for a name that could be a path.
    """
    if not kernel.replace("_", "").replace("-", "").isalnum():
        raise TemplateError(f"{kernel!r} is not a template name", hint="letters, digits, - and _")
    name = f"{kernel}{SUFFIX[target.kind]}.jinja"
    if not any((folder / name).is_file() for folder in folders):
        raise Unsupported(codes.NO_TEMPLATE, f"a template {name}", "none in the folder of the rule")
    return name


def variables_of(op: FusedOp) -> dict[str, Any]:
    """What a template sees beside the variables that all sources have; docs/rules.md describes them."""
    nodes = [
        {
            "op_type": comment(node.op_type),
            "attributes": {comment(a.name): _attribute(a.value) for a in node.attributes.values() if not a.is_ref()},
            "inputs": [None if v is None else comment(v.name or "") for v in node.inputs],
            "outputs": [comment(v.name or "") for v in node.outputs],
        }
        for node in op.function
    ]
    return {
        "input_specs": [_spec(s) for s in op.inputs],
        "output_specs": [_spec(s) for s in op.outputs],
        "output_dims": partial(_output_dims, op),
        "body": nodes,
        "literal": expr.literal,
    }


def _spec(spec: TensorSpec) -> dict[str, Any]:
    shape = tuple(comment(d) if isinstance(d, str) else d for d in spec.shape)
    return {"dtype": spec.dtype, "shape": shape, "type": expr.storage(spec.dtype)}


def _output_dims(op: FusedOp, slot: int) -> str:
    """A C++ expression for the dimensions of an output: numbers, and sizes of inputs by the symbols they share."""
    places = {d: f"run.dims({i})[{k}]" for i, s in enumerate(op.inputs) for k, d in enumerate(s.shape)}
    sizes = []
    for axis, dim in enumerate(op.outputs[slot].shape):
        if not isinstance(dim, int) and (dim is None or dim not in places):
            expected = f"a size of output {slot} at axis {axis} that is a number or an input's"
            is_named = dim is not None and not _INFERRED.fullmatch(dim)
            raise Unsupported(codes.OUTPUT_SIZE, expected, f"'{dim}'" if is_named else "one that is not known")
        sizes.append(str(dim) if isinstance(dim, int) else places[dim])
    return f"fusion::Ints{{{', '.join(sizes)}}}"


def _attribute(value: object) -> object:
    """An attribute as a template may print it: numbers, number tuples, small tensors as number lists, safe text."""
    if isinstance(value, bool | int | float):
        return value
    if isinstance(value, str | bytes):
        return comment(value if isinstance(value, str) else value.decode("ascii", "replace"))
    if isinstance(value, tuple | list):
        return [_attribute(v) for v in value]
    numpy = getattr(value, "numpy", None)
    if numpy is None:
        return None
    array = numpy()
    return array.tolist() if array.size <= 1024 else None
