"""Single operators, run by ONNX Runtime on small arrays: whether they take these inputs, and what comes out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx
from onnx import numpy_helper

from fusion_cli.sessions import Array, CannotRun, open_model

MODEL_IR_VERSION = 10
Key = tuple[object, ...]


class NoKernel(Exception):
    """ONNX Runtime knows the operator, but has no code for it on the CPU."""


class Executor:
    """Runs operators one at a time and remembers what they did with inputs of these types and shapes."""

    def __init__(self, opsets: Mapping[str, int]) -> None:
        self.opsets = {"": 17, **opsets}
        self.refusals: dict[tuple[str, str], str] = {}
        """What was said last where an operator did not take its inputs, by domain and operator."""
        self._known: dict[Key, tuple[Array, ...] | None] = {}
        self._without: set[tuple[str, str]] = set()

    def run(
        self, domain: str, op: str, inputs: Sequence[Array | None], attributes: Mapping[str, Any], outputs: int
    ) -> tuple[Array, ...] | None:
        """The outputs, or None where the operator does not take these inputs. Raises NoKernel.

        Values of floating point are those of some earlier run: only types and shapes can be relied on.
        """
        if (domain, op) in self._without:
            raise NoKernel(op)
        key = (domain, op, outputs, repr(sorted(attributes.items())), *map(content_key, inputs))
        if key not in self._known:
            self._known[key] = self._run(domain, op, inputs, attributes, outputs)
        return self._known[key]

    def _run(
        self, domain: str, op: str, inputs: Sequence[Array | None], attributes: Mapping[str, Any], outputs: int
    ) -> tuple[Array, ...] | None:
        names = ["" if v is None else f"i{i}" for i, v in enumerate(inputs)]
        results = [f"o{i}" for i in range(outputs)]
        arrays = {n: v for n, v in zip(names, inputs, strict=True) if v is not None}
        # Integers are shapes, axes and indices: many operators want them constant.
        constants = [numpy_helper.from_array(v, n) for n, v in arrays.items() if v.dtype.kind == "i"]
        node = onnx.helper.make_node(op, names, results, domain=domain, **attributes)
        fed = {n: v for n, v in arrays.items() if v.dtype.kind != "i"}
        if not domain and not self._plausible(op, node, arrays):
            return None
        graph = onnx.helper.make_graph(
            [node],
            "one",
            [value_info(n, v) for n, v in fed.items()],
            [onnx.helper.make_empty_tensor_value_info(n) for n in results],
            constants,
        )
        imports = [onnx.helper.make_opsetid(d, v) for d, v in ({domain: 1} | self.opsets).items()]
        model = onnx.helper.make_model(graph, opset_imports=imports, ir_version=MODEL_IR_VERSION)
        try:
            # Threads and optimizations would take ten times as long as the operator.
            found = open_model(model.SerializeToString(), use="reference", threads=1).run(fed)
        except CannotRun as error:
            if "NOT_IMPLEMENTED" in str(error):
                self._without.add((domain, op))
                raise NoKernel(op) from error
            self.refusals[domain, op] = str(error)
            return None
        return tuple(found[n] for n in results)

    def _plausible(self, op: str, node: onnx.NodeProto, arrays: Mapping[str, Array]) -> bool:
        """Whether ONNX's shape inference agrees: it says no a hundred times faster than a session."""
        opset = self.opsets[""]
        if not onnx.defs.has(op, max_inclusive_version=opset):
            return True
        types = {n: value_info(n, v).type for n, v in arrays.items()}
        data = {n: numpy_helper.from_array(v) for n, v in arrays.items() if v.dtype.kind == "i"}
        schema, imports = onnx.defs.get_schema(op, opset), [onnx.helper.make_opsetid("", opset)]
        try:
            onnx.shape_inference.infer_node_outputs(schema, node, types, data, opset_imports=imports)
        except (onnx.shape_inference.InferenceError, onnx.checker.ValidationError, RuntimeError, ValueError) as error:
            self.refusals.setdefault(("", op), str(error))
            return False
        return True


def value_info(name: str, array: Array) -> onnx.ValueInfoProto:
    """What a model says of a value that is such an array."""
    return onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)


def content_key(array: Array | None) -> object:
    """Equal for arrays of one type and shape, and, if they are integers, one content."""
    if array is None:
        return None
    content = array.tobytes() if array.dtype.kind in "ib" and array.size <= 64 else b""
    return (array.dtype, array.shape, content)
