"""What ONNX Runtime would run, after its own fusions, for a model without ours.

The whole graph counts, not the region alone: a region that takes a piece out of what ONNX Runtime would have fused
leaves the rest of it to run node by node.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import onnx_ir as ir

from fusion_cli.devices.profile import DeviceProfile
from fusion_cli.devices.work import ATTENTION_ROWS, Work, count, turned_bytes, vendor_convolution
from fusion_cli.graph.origins import FILTERS
from fusion_cli.load.overridable import is_constant
from fusion_cli.load.structure import bodies_of
from fusion_cli.operators.dtypes import element_bytes
from fusion_cli.operators.paddings import MIRRORS, pads_of
from fusion_cli.operators.registry import RESHAPES, having, work_of
from fusion_cli.score.layouts import LayoutChanges, Reorder
from fusion_cli.score.vendor_fusions import Kernel, edges, fused_kernels
from fusion_cli.simplify.algebra.edits import permutation
from fusion_cli.simplify.algebra.transposes import undoes
from fusion_cli.sizes.dims import dtype_of, numbers
from fusion_cli.types import Region

_VIEWS = RESHAPES | {"Dropout"}
_PICKS = having("picking")
PRODUCTS = having("product") | having("product", "com.microsoft")


class Baseline:
    """The kernels that ONNX Runtime would run for a graph, and for the bodies in it, on a device."""

    def __init__(self, graph: ir.Graph, profile: DeviceProfile) -> None:
        self.profile = profile = for_model(profile, graph)
        graphs = [at_run_time(g) for g in (graph, *graph.subgraphs())]
        kernels = [k for nodes in graphs for k in fused_kernels(nodes, profile)]
        self._kernel_of = {n: kernel for kernel in kernels for n in kernel.nodes}
        blocks = profile.kind == "cpu" and any(n.op_type == "Conv" for n in self._kernel_of)
        self._layouts = LayoutChanges(graph.all_nodes(), kernels) if blocks else None
        self._known: list[tuple[Mapping[str, int], dict[Kernel, list[Work]]]] = []
        """By sizes: the work of kernels, each looked at once, for many regions share it."""

    def work(self, region: Region, sizes: Mapping[str, int]) -> tuple[list[Work], list[Work]]:
        """The work of every kernel that the region takes part in, and of what is left of those kernels without the
        region's nodes. Views have none but are nodes all the same; what is computed from constants alone is none."""
        kernels, rest = self._parts(region)
        before = [w for kernel in kernels for w in self._work_of(kernel, sizes)]
        return before, total_work(rest, self.profile, sizes)

    def reorders(self, region: Region) -> tuple[Sequence[Reorder], Sequence[Reorder]]:
        """The reorders of images that a fusion of the region saves, and those that it takes, besides that work."""
        return self._layouts.by(region.nodes, self._parts(region)[1]) if self._layouts else ((), ())

    def _parts(self, region: Region) -> tuple[Sequence[Kernel], Sequence[Kernel]]:
        """The kernels that have nodes of the region, and what becomes of the other nodes of those."""
        kernels = list(dict.fromkeys(self._kernel_of[n] for n in region.nodes if n in self._kernel_of))
        inside = set(region.nodes)
        left = [n for kernel in kernels for n in kernel.nodes if n not in inside]
        return kernels, fused_kernels(left, self.profile)

    def _work_of(self, kernel: Kernel, sizes: Mapping[str, int]) -> list[Work]:
        known = next((known for given, known in self._known if given is sizes), None)
        if known is None:
            known = {}
            self._known.append((sizes, known))
        if kernel not in known:
            known[kernel] = _works(kernel, self.profile, sizes)
        return known[kernel]


def for_model(profile: DeviceProfile, graph: ir.Graph) -> DeviceProfile:
    """The profile for predictions of a graph, whose constants have to share the cache; of what is picked from, a run
    touches little."""
    nodes = [n for g in (graph, *graph.subgraphs()) for n in at_run_time(g) if n.op_type not in _PICKS]
    read = {v for n in nodes for v in n.inputs if v is not None}
    return replace(profile, model_weights=int(_constants(read)))


def at_run_time(graph: ir.Graph) -> list[ir.Node]:
    """The nodes but those that ONNX Runtime runs once, as it loads the model, for they depend on constants alone, and
    the Transposes that it takes out, for they undo one another."""
    once: set[ir.Node] = set()

    def is_known(value: ir.Value) -> bool:
        return value.producer() in once or is_constant(value)

    for node in graph:
        read = [v for v in node.inputs if v is not None]
        if read and not _is_drawn(node) and not bodies_of(node) and all(map(is_known, read)):
            once.add(node)
    gone = once | _undone(graph)
    return [n for n in graph if n not in gone]


def _undone(graph: ir.Graph) -> set[ir.Node]:
    """Each Transpose that all readers of its result turn back, and these."""
    found: set[ir.Node] = set()
    for node in graph:
        perm = permutation(node)
        if perm is None or node.outputs[0].is_graph_output():
            continue
        readers = [user for user, _ in node.outputs[0].uses()]
        if readers and all(undoes(perm, permutation(r)) for r in readers):
            found |= {node, *readers}
    return found


def _is_drawn(node: ir.Node) -> bool:
    return node.op_type.startswith("Random") or node.op_type in ("Bernoulli", "Multinomial", "Dropout")


def total_work(kernels: Iterable[Kernel], profile: DeviceProfile, sizes: Mapping[str, int]) -> list[Work]:
    """What these kernels have to do."""
    return [w for kernel in kernels for w in _works(kernel, profile, sizes)]


def reorder_work(reorder: Reorder, sizes: Mapping[str, int]) -> Work:
    """An image is read and written."""
    return Work(reorder.op, 2 * bytes_of([reorder.value], sizes))


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
        weights=_constants(read),
    )


def private_shape_nodes(region: Region) -> int:
    """Shape arithmetic that nothing but the region reads: its nodes disappear with the fusion."""
    own = {*region.nodes, *region.shape_nodes}
    shapes = (n for n in region.shape_nodes if n not in region.remade)
    return sum(all(user in own for v in n.outputs for user, _ in v.uses()) for n in shapes)


def _works(kernel: Kernel, profile: DeviceProfile, sizes: Mapping[str, int]) -> list[Work]:
    if kernel.op in _VIEWS:
        return [Work(kernel.op, 0.0)]
    read, written = edges(kernel.nodes)
    # What picks elements reads no others.
    moved = 2 * bytes_of(written, sizes) if kernel.op in _PICKS else bytes_of(read | written, sizes)
    out = max((float(_count(v, sizes)) for v in written), default=0.0)
    anchor = next((n for n in kernel.nodes if n.op_type in (*PRODUCTS, *FILTERS, "Attention")), None)
    if anchor is not None and anchor.op_type == "Attention":
        return _attention(anchor, moved, profile, sizes)
    if anchor is not None:
        flops, dtype, slowdown = _flops(anchor, sizes), dtype_of(anchor.outputs[0]), 1.0
        turned = 0.0
        if anchor.op_type in FILTERS and profile.kind == "cpu":
            slowdown = 1 / profile.vendor_conv_efficiency
        elif anchor.op_type in FILTERS:
            filters = (numbers(anchor.inputs[1], sizes) if anchor.inputs[1] is not None else None) or (0, 0)
            slowdown = vendor_convolution(profile, anchor.attributes.get_int("group", 1) or 1, filters)
            ends = bytes_of([v for v in (anchor.inputs[0], anchor.outputs[0]) if v is not None], sizes)
            turned = turned_bytes(profile, dtype, len(filters), ends)
        grid, weights = _grid(anchor, sizes), _constants(read)
        work = Work(kernel.op, moved, flops, dtype, slowdown=slowdown, grid=grid, weights=weights, turned=turned)
        return [work]
    space = out if kernel.op in _PICKS else max([out, *(float(_count(v, sizes)) for v in read)])
    simple, special = work_of(kernel.op)
    weights = 0.0 if kernel.op in _PICKS else _constants(read)
    name = "ImagePad" if _pads_an_image(kernel.nodes[0]) else kernel.op
    return [Work(name, moved, simple=simple * space, special=special * space, weights=weights)]


def _pads_an_image(node: ir.Node) -> bool:
    """Whether it is a Pad of the last two axes of four, for which ONNX Runtime has a kernel of its own on GPUs."""
    pads = pads_of(node, "constant", *MIRRORS)
    return pads is not None and len(pads[0]) == 4 and not any((*pads[0][:2], *pads[1][:2]))


def bytes_of(values: Iterable[ir.Value], sizes: Mapping[str, int]) -> float:
    """Bytes of these values; a size that is not known counts as 1."""
    return float(sum(_count(v, sizes) * element_bytes(dtype_of(v)) for v in values))


def _constants(values: Iterable[ir.Value]) -> float:
    """Bytes of those of these values that are constants."""
    return bytes_of((v for v in values if is_constant(v)), {})


def _flops(node: ir.Node, sizes: Mapping[str, int]) -> float:
    out = float(_count(node.outputs[0], sizes))
    operand = node.inputs[1 if node.op_type in FILTERS else 0]
    shape = numbers(operand, sizes) if operand is not None else None
    if not shape:
        return 0.0
    if node.op_type == "Conv":
        return 2 * out * count(shape[1:])
    if node.op_type == "ConvTranspose" and node.inputs[0] is not None:
        return 2 * float(_count(node.inputs[0], sizes)) * count(shape[1:])
    return 2 * out * shape[-2 if node.attributes.get_int("transA", 0) and len(shape) > 1 else -1]


def _grid(node: ir.Node, sizes: Mapping[str, int]) -> tuple[float, float, float] | None:
    """Batches, rows and columns of a product's result; of a convolution none, whose tiles its library knows."""
    out, right = numbers(node.outputs[0], sizes), node.inputs[1]
    if node.op_type in FILTERS or not out or len(out) < 2 or right is None or right.shape is None:
        return None
    if len(right.shape) <= 2:
        return 1.0, float(count(out[:-1])), float(out[-1])
    return float(count(out[:-2])), float(out[-2]), float(out[-1])


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
    hidden = (min(q[-2], k[-2]) - 1) / (2 * k[-2]) if node.attributes.get_int("is_causal", 0) else 0.0
    flash = profile.vendor_attention_efficiency
    if flash and dtype != "float32" and len([x for x in node.inputs if x is not None]) == 3:
        blocks = float(q[0] * heads * math.ceil(q[-2] / ATTENTION_ROWS))
        scores *= 1 - hidden  # keys that no query of a tile sees are left out
        return [Work("Attention", moved, 2 * scores * (depth + value_depth), dtype, slowdown=1 / flash, blocks=blocks)]
    simple, special = work_of("Softmax")
    batches = float(q[0] * heads)
    return [
        Work("MatMul", moved / 2 + scores * size, 2 * scores * depth, dtype, grid=(batches, q[-2], k[-2])),
        Work(
            "Softmax",
            2 * scores * size,
            simple=simple * scores,
            special=(special + hidden * profile.vendor_hidden_specials) * scores,
        ),
        Work("MatMul", moved / 2 + scores * size, 2 * scores * value_depth, dtype, grid=(batches, q[-2], value_depth)),
    ]


def _count(value: ir.Value, sizes: Mapping[str, int]) -> int:
    shape = numbers(value, sizes)
    if shape is None:
        shape = tuple(1 for _ in value.shape or ())
    return count(shape)
