"""The fusions that ONNX Runtime's own optimizer makes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from fusion_cli.devices.profile import DeviceProfile
from fusion_cli.sizes.dims import dims_of

# Fusions of chains: the operators in dataflow order, with alternatives; "?" marks what may be absent. Which ones ONNX
# Runtime makes was read off the graphs that 1.31 optimizes exported models to: a norm that squares by Mul instead of
# Pow, or divides by Reciprocal, is left as it is.
_CHAINS: tuple[tuple[str, str], ...] = (
    ("LayerNormalization", "ReduceMean Sub Pow ReduceMean Add Sqrt Div Mul? Add?"),
    ("SimplifiedLayerNormalization", "Pow ReduceMean Add Sqrt Div Mul Mul?"),
    ("FastGelu", "Pow Mul Add Mul Tanh Add Mul Mul"),
    ("Gelu", "Div|Mul Erf Add Mul Mul"),
    ("QuickGelu", "Mul Sigmoid Mul"),
    ("QuickGelu", "Sigmoid Mul"),
    ("HardSwish", "HardSigmoid Mul"),
)
_NOT_ON = {"FastGelu": ("cpu",), "SkipLayerNormalization": ("cpu",), "HardSwish": ("cuda",)}
"""Kinds of devices without a fusion. The residual and the norm after it are written so that they stay apart on CPUs."""
_GATES = frozenset({"QuickGelu", "HardSwish"})
_GELUS = frozenset({"Gelu", "FastGelu"})
_CPU_ACTIVATIONS = frozenset({"Relu", "Clip", "Sigmoid", "Tanh", "LeakyRelu", "HardSigmoid", "HardSwish"})
_NOT_AFTER_ADD = frozenset({"Clip", "LeakyRelu"})
"""Activations of a Conv that adds nothing else to its result."""
_ALPHA_OF_HARD_SWISH = 1 / 6


@dataclass(eq=False)
class Kernel:
    """Nodes that ONNX Runtime runs as one kernel, and the operator it runs."""

    op: str
    nodes: list[ir.Node] = field(default_factory=list)


def edges(nodes: Sequence[ir.Node]) -> tuple[set[ir.Value], set[ir.Value]]:
    """The values that go into these nodes, and those that others need of them."""
    inside = set(nodes)
    read = {v for n in nodes for v in n.inputs if v is not None and v.producer() not in inside}
    written = {
        v for n in nodes for v in n.outputs if v.is_graph_output() or any(user not in inside for user, _ in v.uses())
    }
    return read, written


def fused_kernels(nodes: Sequence[ir.Node], profile: DeviceProfile) -> list[Kernel]:
    """The nodes, in order, grouped the way ONNX Runtime's own optimizer groups them on this device."""
    taken: dict[ir.Node, Kernel] = {}
    inside = set(nodes)
    for name, chain in _CHAINS:
        for node in () if profile.kind in _NOT_ON.get(name, ()) else nodes:
            found = _chain(node, chain.split(), taken, inside)
            if found and (name not in _GATES or _is_of_one_value(found)) and _follows(name, node):
                kernel = Kernel(name, found)
                taken.update(dict.fromkeys(found, kernel))
    kernels: dict[Kernel, None] = {}
    for node in nodes:
        kernels[taken.setdefault(node, Kernel(node.op_type, [node]))] = None
    for node in nodes:
        _join_producer(node, taken, kernels, profile)
    return list(kernels)


def _chain(
    start: ir.Node, operators: Sequence[str], taken: Mapping[ir.Node, Kernel], inside: set[ir.Node]
) -> list[ir.Node]:
    """The nodes of a chain that starts here; empty if it does not, or if others read what would be inside."""
    if start.op_type not in operators[0].split("|") or start in taken:
        return []
    nodes = [start]
    for operator in operators[1:]:
        wanted = operator.rstrip("?").split("|")
        readers = (user for n in reversed(nodes) for v in n.outputs for user, _ in v.uses())
        found = next(
            (r for r in readers if r.op_type in wanted and r in inside and r not in taken and r not in nodes), None
        )
        if found is not None:
            nodes.append(found)
        elif not operator.endswith("?"):
            return []
    escaping = [n for n in nodes if any(user not in nodes for v in n.outputs for user, _ in v.uses())]
    return nodes if len(escaping) <= 1 and not any(v.is_graph_output() for v in nodes[0].outputs) else []


def _is_of_one_value(nodes: Sequence[ir.Node]) -> bool:
    """Whether a chain computes from one value and constants: a gate that multiplies something else is none."""
    return sum(v.const_value is None for v in edges(nodes)[0]) == 1


def _follows(name: str, gate: ir.Node) -> bool:
    """Whether a chain that starts here stands where it has to: a HardSwish is nothing but the activation of a Conv."""
    if name != "HardSwish":
        return True
    producer = gate.inputs[0].producer() if gate.inputs[0] is not None else None
    alpha = gate.attributes.get_float("alpha", 0.2)
    return producer is not None and producer.op_type == "Conv" and abs(alpha - _ALPHA_OF_HARD_SWISH) < 1e-6


def _join_producer(
    node: ir.Node, taken: dict[ir.Node, Kernel], kernels: dict[Kernel, None], profile: DeviceProfile
) -> None:
    """Merge a node's kernel into that of the one node it follows, where ONNX Runtime has such a fusion."""
    own = taken[node]
    for value in node.inputs:
        producer = None if value is None else value.producer()
        other = taken.get(producer) if producer is not None else None
        if value is None or other is None or other is own or value.is_graph_output():
            continue
        if any(user not in own.nodes for user, _ in value.uses()):
            continue
        name = _fusion(other, own, node, profile)
        if name:
            other.op = name
            other.nodes += own.nodes
            taken.update(dict.fromkeys(own.nodes, other))
            del kernels[own]
            _join_producer(other.nodes[0], taken, kernels, profile)
            return


def _fusion(first: Kernel, second: Kernel, node: ir.Node, profile: DeviceProfile) -> str:
    """The name of the fused operator, or "" where there is none."""
    if second.op in _GELUS and first.op == "Add" and _adds_bias(first.nodes[0]):
        return second.op
    if second.op == "LayerNormalization" and first.op == "Add" and adds_equals(first.nodes[-1]):
        return "" if profile.kind in _NOT_ON["SkipLayerNormalization"] else "SkipLayerNormalization"
    if second.op == "SkipLayerNormalization" and first.op == "Add" and _adds_bias(first.nodes[0]):
        return second.op
    if second.op == "Add" and first.op == "MatMul" and _adds_bias(node) and _rank(node) == 2:
        return "Gemm"
    if second.op in ("Mul", "Div") and first.op == "MatMul" and _scales(node):
        return "MatMul"
    if second.op == "MatMul" and first.op == "Transpose":
        return "MatMul" if _swaps_last_two(first.nodes[0]) else ""
    if first.op == "Conv" and second.op == "Add":
        return "Conv" if len(first.nodes) == 1 else ""
    if first.op == "Conv" and len(first.nodes) > 1 and second.op in _NOT_AFTER_ADD:
        return ""
    if first.op in ("Conv", "Gemm") and first.nodes[-1].op_type in ("Conv", "Gemm", "Add"):
        return first.op if second.op in (_CPU_ACTIVATIONS if profile.kind == "cpu" else ("Relu",)) else ""
    return ""


def _rank(node: ir.Node) -> int:
    shape = node.outputs[0].shape
    return -1 if shape is None else len(shape)


def _adds_bias(node: ir.Node) -> bool:
    return any(v is not None and v.const_value is not None and len(v.const_value.shape) == 1 for v in node.inputs)


def adds_equals(node: ir.Node) -> bool:
    """Whether ONNX Runtime makes a SkipLayerNormalization of this addition and a norm that alone reads it: of three
    dimensions, equal as far as they have names, and no constant."""
    shapes = [None if v is None or v.const_value is not None else dims_of(v) for v in node.inputs]
    return shapes[0] is not None and shapes[0] == shapes[1] and len(shapes[0]) == 3


def _scales(node: ir.Node) -> bool:
    return any(v is not None and v.const_value is not None and v.const_value.size == 1 for v in node.inputs)


def _swaps_last_two(node: ir.Node) -> bool:
    perm = node.attributes.get_ints("perm") or ()
    return len(perm) > 1 and tuple(perm[-2:]) == (len(perm) - 1, len(perm) - 2)
