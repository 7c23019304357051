"""What ONNX Runtime would run, after its own fusions, for a model without ours.

The whole graph counts, not the region alone: a region that takes a piece out of what ONNX Runtime would have fused
leaves the rest of it to run node by node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from fusion_cli.devices.profile import DeviceProfile
from fusion_cli.devices.work import Work, count
from fusion_cli.load.overridable import is_constant
from fusion_cli.load.structure import bodies_of
from fusion_cli.operators.dtypes import element_bytes
from fusion_cli.operators.registry import RESHAPES, having, work_of
from fusion_cli.sizes.dims import dims_of, dtype_of, numbers
from fusion_cli.types import Region

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
)
_NOT_ON = {"FastGelu": ("cpu",)}
"""Kinds of devices without a fusion."""
_GELUS = frozenset({"Gelu", "FastGelu"})
_CPU_ACTIVATIONS = frozenset({"Relu", "Clip", "Sigmoid", "Tanh", "LeakyRelu", "HardSigmoid", "HardSwish"})
_VIEWS = RESHAPES | {"Dropout"}
_PICKS = having("picking")
_PRODUCTS = having("product") | having("product", "com.microsoft")


@dataclass(eq=False)
class Kernel:
    """Nodes that ONNX Runtime runs as one kernel, and the operator it runs."""

    op: str
    nodes: list[ir.Node] = field(default_factory=list)


def fused_kernels(nodes: Sequence[ir.Node], profile: DeviceProfile) -> list[Kernel]:
    """The nodes, in order, grouped the way ONNX Runtime's own optimizer groups them on this device."""
    taken: dict[ir.Node, Kernel] = {}
    inside = set(nodes)
    for name, chain in _CHAINS:
        for node in () if profile.kind in _NOT_ON.get(name, ()) else nodes:
            found = _chain(node, chain.split(), taken, inside)
            if found:
                kernel = Kernel(name, found)
                taken.update(dict.fromkeys(found, kernel))
    kernels: dict[Kernel, None] = {}
    for node in nodes:
        kernels[taken.setdefault(node, Kernel(node.op_type, [node]))] = None
    for node in nodes:
        _join_producer(node, taken, kernels, profile)
    return list(kernels)


class Baseline:
    """The kernels that ONNX Runtime would run for a graph, and for the bodies in it, on a device."""

    def __init__(self, graph: ir.Graph, profile: DeviceProfile) -> None:
        self.profile = profile
        kernels = (k for g in (graph, *graph.subgraphs()) for k in fused_kernels(_at_run_time(g), profile))
        self._kernel_of = {n: kernel for kernel in kernels for n in kernel.nodes}
        self._known: list[tuple[Mapping[str, int], dict[Kernel, list[Work]]]] = []
        """By sizes: the work of kernels, each looked at once, for many regions share it."""

    def work(self, region: Region, sizes: Mapping[str, int]) -> tuple[list[Work], list[Work]]:
        """The work of every kernel that the region takes part in, and of what is left of those kernels without the
        region's nodes. Views have none but are nodes all the same; what is computed from constants alone is none."""
        kernels = dict.fromkeys(self._kernel_of[n] for n in region.nodes if n in self._kernel_of)
        inside = set(region.nodes)
        left = [n for kernel in kernels for n in kernel.nodes if n not in inside]
        rest = fused_kernels(left, self.profile)
        before = [w for kernel in kernels for w in self._work_of(kernel, sizes)]
        return before, total_work(rest, self.profile, sizes)

    def _work_of(self, kernel: Kernel, sizes: Mapping[str, int]) -> list[Work]:
        known = next((known for given, known in self._known if given is sizes), None)
        if known is None:
            known = {}
            self._known.append((sizes, known))
        if kernel not in known:
            known[kernel] = _works(kernel, self.profile, sizes)
        return known[kernel]


def _at_run_time(graph: ir.Graph) -> list[ir.Node]:
    """The nodes but those that ONNX Runtime runs once, as it loads the model: they depend on constants alone."""
    once: set[ir.Node] = set()

    def is_known(value: ir.Value) -> bool:
        return value.producer() in once or is_constant(value)

    for node in graph:
        read = [v for v in node.inputs if v is not None]
        if read and not _is_drawn(node) and not bodies_of(node) and all(map(is_known, read)):
            once.add(node)
    return [n for n in graph if n not in once]


def _is_drawn(node: ir.Node) -> bool:
    return node.op_type.startswith("Random") or node.op_type in ("Bernoulli", "Multinomial", "Dropout")


def total_work(kernels: Iterable[Kernel], profile: DeviceProfile, sizes: Mapping[str, int]) -> list[Work]:
    """What these kernels have to do."""
    return [w for kernel in kernels for w in _works(kernel, profile, sizes)]


def one_kernel(nodes: Sequence[ir.Node], name: str, profile: DeviceProfile, sizes: Mapping[str, int]) -> Work:
    """All the arithmetic of the nodes, and the bytes that go in and out of them together, as a kernel of this name."""
    parts = total_work(fused_kernels(nodes, profile), profile, sizes)
    read, written = edges(nodes)
    return Work(
        name,
        bytes_of(read | written, sizes),
        sum(w.flops for w in parts),
        next((w.dtype for w in parts if w.flops), "float32"),
        sum(w.simple for w in parts),
        sum(w.special for w in parts),
    )


def private_shape_nodes(region: Region) -> int:
    """Shape arithmetic that nothing but the region reads: its nodes disappear with the fusion."""
    own = {*region.nodes, *region.shape_nodes}
    return sum(all(user in own for v in n.outputs for user, _ in v.uses()) for n in region.shape_nodes)


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
    if second.op == "LayerNormalization" and first.op == "Add" and _adds_equals(first.nodes[-1]):
        return "SkipLayerNormalization"
    if second.op == "SkipLayerNormalization" and first.op == "Add" and _adds_bias(first.nodes[0]):
        return second.op
    if second.op == "Add" and first.op == "MatMul" and _adds_bias(node) and _rank(node) == 2:
        return "Gemm"
    if second.op in ("Mul", "Div") and first.op == "MatMul" and _scales(node):
        return "MatMul"
    if second.op == "MatMul" and first.op == "Transpose":
        return "MatMul" if _swaps_last_two(first.nodes[0]) else ""
    if first.op == "Conv" and second.op in ("Relu", "Add"):
        return "Conv"
    if profile.kind == "cpu" and first.op in ("Conv", "Gemm") and second.op in _CPU_ACTIVATIONS:
        return first.op
    return ""


def _rank(node: ir.Node) -> int:
    shape = node.outputs[0].shape
    return -1 if shape is None else len(shape)


def _adds_bias(node: ir.Node) -> bool:
    return any(v is not None and v.const_value is not None and len(v.const_value.shape) == 1 for v in node.inputs)


def _adds_equals(node: ir.Node) -> bool:
    """Whether ONNX Runtime makes a SkipLayerNormalization of this addition and a norm after it: of three dimensions,
    equal as far as they have names."""
    shapes = [None if v is None or v.const_value is not None else dims_of(v) for v in node.inputs]
    return shapes[0] is not None and shapes[0] == shapes[1] and len(shapes[0]) == 3


def _scales(node: ir.Node) -> bool:
    return any(v is not None and v.const_value is not None and v.const_value.size == 1 for v in node.inputs)


def _swaps_last_two(node: ir.Node) -> bool:
    perm = node.attributes.get_ints("perm") or ()
    return len(perm) > 1 and tuple(perm[-2:]) == (len(perm) - 1, len(perm) - 2)


def _works(kernel: Kernel, profile: DeviceProfile, sizes: Mapping[str, int]) -> list[Work]:
    if kernel.op in _VIEWS:
        return [Work(kernel.op, 0.0)]
    read, written = edges(kernel.nodes)
    # What picks elements reads no others.
    moved = 2 * bytes_of(written, sizes) if kernel.op in _PICKS else bytes_of(read | written, sizes)
    out = max((float(_count(v, sizes)) for v in written), default=0.0)
    anchor = next((n for n in kernel.nodes if n.op_type in (*_PRODUCTS, "Conv", "Attention")), None)
    if anchor is not None and anchor.op_type == "Attention":
        return _attention(anchor, moved, profile, sizes)
    if anchor is not None:
        flops = _flops(anchor, sizes)
        return [Work(kernel.op, moved, flops, dtype_of(anchor.outputs[0]))]
    space = out if kernel.op in _PICKS else max([out, *(float(_count(v, sizes)) for v in read)])
    simple, special = work_of(kernel.op)
    return [Work(kernel.op, moved, simple=simple * space, special=special * space)]


def edges(nodes: Sequence[ir.Node]) -> tuple[set[ir.Value], set[ir.Value]]:
    """The values that go into these nodes, and those that others need of them."""
    inside = set(nodes)
    read = {v for n in nodes for v in n.inputs if v is not None and v.producer() not in inside}
    written = {
        v for n in nodes for v in n.outputs if v.is_graph_output() or any(user not in inside for user, _ in v.uses())
    }
    return read, written


def bytes_of(values: Iterable[ir.Value], sizes: Mapping[str, int]) -> float:
    """Bytes of these values; a size that is not known counts as 1."""
    return float(sum(_count(v, sizes) * element_bytes(dtype_of(v)) for v in values))


def _flops(node: ir.Node, sizes: Mapping[str, int]) -> float:
    out = float(_count(node.outputs[0], sizes))
    operand = node.inputs[1 if node.op_type == "Conv" else 0]
    shape = numbers(operand, sizes) if operand is not None else None
    if not shape:
        return 0.0
    if node.op_type == "Conv":
        return 2 * out * count(shape[1:])
    return 2 * out * shape[-2 if node.attributes.get_int("transA", 0) and len(shape) > 1 else -1]


def _attention(node: ir.Node, moved: float, profile: DeviceProfile, sizes: Mapping[str, int]) -> list[Work]:
    """The Attention operator: one kernel where ONNX Runtime has one, else two products and a softmax between them,
    with the scores in memory."""
    q, k, v = (numbers(x, sizes) if x is not None else None for x in node.inputs[:3])
    if not q or not k or not v:
        return [Work("Attention", moved)]
    heads = node.attributes.get_int("q_num_heads", 0) if len(q) == 3 else q[1]
    scores = float(q[0] * heads * q[-2] * k[-2])
    dtype = dtype_of(node.outputs[0])
    size = element_bytes(dtype)
    depth, value_depth = (q[-1] / max(heads, 1), v[-1] / max(heads, 1)) if len(q) == 3 else (q[-1], v[-1])
    flash = profile.vendor_attention_efficiency
    if flash and dtype != "float32" and len([x for x in node.inputs if x is not None]) == 3:
        return [Work("Attention", moved, 2 * scores * (depth + value_depth), dtype, slowdown=1 / flash)]
    simple, special = work_of("Softmax")
    return [
        Work("MatMul", moved / 2 + scores * size, 2 * scores * depth, dtype),
        Work("Softmax", 2 * scores * size, simple=simple * scores, special=special * scores),
        Work("MatMul", moved / 2 + scores * size, 2 * scores * value_depth, dtype),
    ]


def _count(value: ir.Value, sizes: Mapping[str, int]) -> int:
    shape = numbers(value, sizes)
    if shape is None:
        shape = tuple(1 for _ in value.shape or ())
    return count(shape)
