"""Regions for tests: cut from any model automatically, and run on their own by ONNX Runtime."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort

from fusion_cli.plan.region import supported_ops
from fusion_cli.plan.shapes import HOST_RULES
from fusion_cli.types import Region

_SMALL = 64


def region_of(nodes: Sequence[ir.Node], shape_nodes: Sequence[ir.Node] = ()) -> Region:
    """The region of these nodes: what they read from outside is input, what is read outside is output."""
    inside = set(nodes) | set(shape_nodes)
    inputs: dict[ir.Value, None] = {}
    constants: dict[ir.Value, None] = {}
    for node in (*nodes, *shape_nodes):
        for value in node.inputs:
            if value is None or value.producer() in inside:
                continue
            (constants if is_literal(value) else inputs)[value] = None
    core = set(nodes)
    outputs = [
        v
        for n in nodes
        for v in n.outputs
        if v.is_graph_output() or any(user not in core for user, _ in v.uses() if user not in set(shape_nodes))
    ]
    return Region("test", tuple(nodes), tuple(shape_nodes), tuple(inputs), tuple(outputs), tuple(constants))


def is_literal(value: ir.Value) -> bool:
    """Small constants that are equal everywhere, or integers (axes, shapes)."""
    if value.const_value is None or value.const_value.size > _SMALL:
        return False
    array = value.const_value.numpy().reshape(-1)
    return array.dtype.kind == "i" or bool(array.size and (array == array[0]).all())


def host_nodes(graph: ir.Graph) -> list[ir.Node]:
    """Nodes that do shape arithmetic only."""
    found: set[ir.Node] = set()
    for node in graph:
        if node.op_type == "Shape" or (
            node.op_type in HOST_RULES
            and len(node.outputs) == 1
            and node.outputs[0].shape is not None
            and len(node.outputs[0].shape) <= 1
            and node.outputs[0].dtype in (ir.DataType.INT64, ir.DataType.BOOL)
            and all(v is not None and (v.producer() in found or is_literal(v)) for v in node.inputs)
        ):
            found.add(node)
    return [n for n in graph if n in found]


def maximal_regions(model: ir.Model, allowed: frozenset[str] | None = None) -> list[Region]:
    """Convex sets of supported nodes, each grown as far as it goes."""
    graph = model.graph
    supported = supported_ops() if allowed is None else allowed
    shape_nodes = host_nodes(graph)
    shapes = set(shape_nodes)
    data_nodes = [n for n in graph if n not in shapes]
    group: dict[ir.Node, int] = {}
    reached: dict[ir.Node, frozenset[int]] = {}
    for node in data_nodes:
        producers = [p for v in node.inputs if v is not None and (p := v.producer()) is not None and p not in shapes]
        upstream: dict[ir.Node, frozenset[int]] = {
            p: reached[p] | ({group[p]} if p in group else frozenset()) for p in producers
        }
        own = {group[p] for p in producers if p in group}
        joinable = [g for g in own if not any(g in upstream[p] for p in producers if group.get(p) != g)]
        if node.op_type in supported and node.domain == "":
            group[node] = max(joinable, default=len(reached))
        reached[node] = frozenset().union(*upstream.values()) - {group.get(node, -1)}
    by_group: dict[int, list[ir.Node]] = {}
    for node, index in group.items():
        by_group.setdefault(index, []).append(node)
    return [region_of(nodes, _shapes_for(nodes, shapes)) for nodes in by_group.values()]


def _shapes_for(nodes: Iterable[ir.Node], shapes: set[ir.Node]) -> list[ir.Node]:
    """The shape arithmetic that the nodes read, as far back as it goes."""
    wanted: dict[ir.Node, None] = {}
    stack = list(nodes)
    while stack:
        for value in stack.pop().inputs:
            producer = None if value is None else value.producer()
            if producer in shapes and producer not in wanted:
                wanted[producer] = None
                stack.append(producer)
    return list(reversed(wanted))


def all_values(model: ir.Model, feeds: Mapping[str, np.ndarray], regions: Sequence[Region]) -> dict[str, np.ndarray]:
    """Every input and output of the regions, computed by ONNX Runtime without optimizations."""
    proto = ir.to_proto(model)
    wanted = {str(v.name) for r in regions for v in (*r.inputs, *r.outputs)}
    known = {i.name for i in proto.graph.input} | {i.name for i in proto.graph.initializer}
    have = {o.name for o in proto.graph.output}
    types = {str(v.name): v.dtype for n in model.graph for v in n.outputs}
    for name in sorted(wanted - known - have):
        proto.graph.output.append(onnx.helper.make_tensor_value_info(name, int(types[name]), None))
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    dtypes = {o.name: o.type for o in (*session.get_outputs(), *session.get_inputs())}
    names = [o.name for o in session.get_outputs()]
    values = {n: _viewed(v, dtypes[n]) for n, v in zip(names, _run(session, names, feeds), strict=True)}
    values |= {n: _viewed(v, dtypes.get(n, "")) for n, v in feeds.items()}
    initializers = (v for v in model.graph.initializers.values() if v.const_value is not None)
    return values | {str(v.name): v.const_value.numpy() for v in initializers}


def _run(session: ort.InferenceSession, names: list[str], feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    binding = session.io_binding()
    for i in session.get_inputs():
        element = onnx.TensorProto.BFLOAT16 if "bfloat16" in i.type else None
        array = np.ascontiguousarray(feeds[i.name])
        if element is None:
            binding.bind_cpu_input(i.name, array)
        else:
            value = ort.OrtValue.ortvalue_from_numpy_with_onnx_type(array.view(np.uint16), element)
            binding.bind_ortvalue_input(i.name, value)
    for name in names:
        binding.bind_output(name)
    session.run_with_iobinding(binding)
    return [v.numpy() for v in binding.get_outputs()]


def _viewed(array: np.ndarray, kind: str) -> np.ndarray:
    return array.view(ml_dtypes.bfloat16) if "bfloat16" in kind and array.dtype != ml_dtypes.bfloat16 else array
