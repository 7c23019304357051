"""Regions for tests: cut from any model automatically, and run on their own by ONNX Runtime."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import onnx_ir.passes.common as passes
import onnxruntime as ort
from onnx_shape_inference import infer_symbolic_shapes

from fusion_cli.errors import Unsupported
from fusion_cli.plan import Plan, plan_region, supported_ops
from fusion_cli.plan.lower_shapes import HOST_RULES
from fusion_cli.types import Region
from tests.helpers.plan_interpreter import interpret

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
        if node.op_type in supported and node.domain == "" and _has_plan(node, shapes):
            group[node] = max(joinable, default=len(reached))
        reached[node] = frozenset().union(*upstream.values()) - {group.get(node, -1)}
    by_group: dict[int, list[ir.Node]] = {}
    for node, index in group.items():
        by_group.setdefault(index, []).append(node)
    return [region_of(nodes, _shapes_for(nodes, shapes)) for nodes in by_group.values()]


def _has_plan(node: ir.Node, shapes: set[ir.Node]) -> bool:
    """Whether a node that picks elements picks them by what a shape program knows: no Gather of a table's rows."""
    if node.op_type not in ("Gather", "Slice", "Split", "Tile"):
        return True
    try:
        plan_region(region_of([node], _shapes_for([node], shapes)))
    except Unsupported:
        return False
    return True


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
    for value in model.graph.initializers.values():
        stored = value.const_value
        if isinstance(stored, ir.ExternalTensor):  # a session takes no model in memory whose weights are in a file
            value.const_value = ir.Tensor(stored.numpy().copy(), dtype=stored.dtype, name=stored.name)
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


def parsed(text: str, opset: int = 20, inferred: bool = True) -> ir.Model:
    """A model from ONNX text (graph only), with its shapes inferred."""
    proto = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": {opset}, "com.microsoft": 1]> {text}')
    model = ir.from_proto(proto)
    passes.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
    if inferred:
        infer_symbolic_shapes(model, warn_on_missing=False)
    return model


def whole(model: ir.Model) -> Region:
    """All nodes of a model's graph as one region, its inputs and outputs in the graph's order."""
    shapes = host_nodes(model.graph)
    found = region_of([n for n in model.graph if n not in set(shapes)], shapes)
    return replace(found, outputs=tuple(model.graph.outputs))


def check_region(
    region: Region, values: Mapping[str, np.ndarray], tolerance: float, compute: type = np.float64, least: float = 1e-30
) -> Plan:
    """Plan the region, interpret the plan on `values`, and compare its outputs with them (see `largest_error`)."""
    plan = plan_region(region)
    outputs = interpret(plan, [values[str(v.name)] for v in region.inputs], compute)
    for value, found in zip(region.outputs, outputs, strict=True):
        expected = values[str(value.name)]
        assert found.shape == expected.shape, value.name
        assert found.dtype == expected.dtype, value.name
        assert largest_error(found, expected, least) <= tolerance, value.name
    return plan


def largest_error(found: np.ndarray, expected: np.ndarray, least: float = 1e-30) -> float:
    """Largest difference over the largest magnitude, or over `least`: that of the numbers which cancel out where all
    are small. Infinite where NaN or infinities do not match."""
    a, b = found.astype(np.float64), expected.astype(np.float64)
    finite = np.isfinite(b)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True) or not np.isfinite(a[finite]).all():
        return float("inf")
    difference = np.abs(a[finite] - b[finite]).max(initial=0.0)
    return float(difference / max(np.abs(b[finite]).max(initial=0.0), least))


def kinds(plan: Plan) -> list[type]:
    return [type(s) for s in plan.stages]


def check_body(body: str, outputs: str, shapes: Mapping[str, Sequence[int]], rng: np.random.Generator) -> Plan:
    """The plan of nodes as text, on random numbers for those of the inputs that they read."""
    read = {n: s for n, s in shapes.items() if re.search(rf"[(,] ?{n}\b", body)}
    inputs = ", ".join(f"float[{', '.join(map(str, s))}] {n}" for n, s in read.items())
    arrays = {n: rng.standard_normal(tuple(s)).astype(np.float32) for n, s in read.items()}
    return check_model(f"g ({inputs}) => ({outputs}) {{ {body} }}", arrays)


def check_model(text: str, feeds: Mapping[str, np.ndarray], tolerance: float = 1e-5, opset: int = 20) -> Plan:
    """Plan a whole model given as text and compare it with ONNX Runtime."""
    model = parsed(text, opset)
    region = whole(model)
    return check_region(region, all_values(model, feeds, [region]), tolerance)
