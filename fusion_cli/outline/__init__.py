"""Turn chosen regions into calls of model-local functions whose bodies are exactly the regions' nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import onnx_ir as ir
import onnx_ir.passes.common as passes

from fusion_cli.outline.both_ways import drop_guards
from fusion_cli.outline.documented import of_call, of_function
from fusion_cli.outline.function_body import build_body
from fusion_cli.outline.identity import Digests
from fusion_cli.simplify import merge_equals
from fusion_cli.sizes.dims import dims_of, dtype_of, forget_names
from fusion_cli.types import Candidate, FusedOp, Region, TensorSpec
from fusion_cli.version import DOMAIN

__all__ = ["inline_back", "outline", "put_back"]

_LEAST_IR_VERSION = 10


def outline(model: ir.Model, chosen: Sequence[Candidate]) -> tuple[FusedOp, ...]:
    """Outline the chosen regions in place; equal regions share one function. Regions inside others come to lie inside
    the others' functions. Returns the distinct operators, in graph order of their first call."""
    groups: dict[str, list[tuple[Candidate, str]]] = {}
    functions: dict[str, ir.Function] = {}
    replaced = _Replaced()
    digests = Digests()
    remade = {n for c in chosen for n in c.region.remade}
    # What others have a copy of goes last: its nodes are left without inputs.
    for candidate in sorted(chosen, key=lambda c: (not remade.isdisjoint(c.region.nodes), len(c.region.nodes))):
        region = candidate.region
        nodes = _live(region, dict.fromkeys(replaced.node(n) for n in (*region.shape_nodes, *region.nodes)))
        body = build_body(region, nodes)
        name = f"{region.rule}_{digests.digest(candidate, body)}"
        if name not in functions:
            functions[name] = _function(model, name, body)
            functions[name].doc_string = of_function(candidate)
        number = len(groups.setdefault(name, [])) + 1
        call = _call(region, nodes, f"{name}_{number}", name, replaced)
        groups[name].append((candidate, call.name or ""))
    _take_out(model, replaced)
    for function in functions.values():
        model.functions[function.identifier()] = function
    _finish(model)
    ops = [_op(name, functions[name], calls) for name, calls in groups.items()]
    order = {node.name: i for i, node in enumerate(model.graph.all_nodes())}
    return tuple(sorted(ops, key=lambda op: order.get(op.call_names[0], len(order))))


def _live(region: Region, nodes: Iterable[ir.Node]) -> list[ir.Node]:
    """The nodes without shape arithmetic that served only what is a call now: that has its own copy, and may have
    hidden the tensors whose shapes were read."""
    live, shape_nodes = list(nodes), set(region.shape_nodes)
    while True:
        read = {v for n in live for v in n.inputs}
        dead = {n for n in live if n in shape_nodes and read.isdisjoint(n.outputs)}
        if not dead:
            return live
        live = [n for n in live if n not in dead]


class _Replaced:
    """What nodes and values of the original graph are now, after some regions became calls."""

    def __init__(self) -> None:
        self.nodes: dict[ir.Node, ir.Node] = {}
        self.values: dict[ir.Value, ir.Value] = {}

    def node(self, node: ir.Node) -> ir.Node:
        while node in self.nodes:
            node = self.nodes[node]
        return node

    def value(self, value: ir.Value) -> ir.Value:
        while value in self.values:
            value = self.values[value]
        return value


def _take_out(model: ir.Model, replaced: _Replaced) -> None:
    """Give graph outputs their new values and remove the nodes that became calls, once for all: for each call it would
    take time quadratic in the model."""
    for graph in (model.graph, *model.graph.subgraphs()):
        for i, value in enumerate(graph.outputs):
            graph.outputs[i] = replaced.value(value)
        graph.remove([node for node in graph if node in replaced.nodes])


def inline_back(model: ir.Model, is_dropped: Callable[[str], bool]) -> None:
    """Put the nodes of the named operators back where their calls are. Constants and shape arithmetic, of which every
    function had its own, are shared again."""
    put_back(model, is_dropped)
    merge_equals(model)
    _finish(model)


def put_back(model: ir.Model, is_dropped: Callable[[str], bool]) -> None:
    """The same, and nothing else."""
    drop_guards(model, is_dropped)
    passes.InlinePass(lambda f: f.domain == DOMAIN and is_dropped(f.name))(model)


def _function(model: ir.Model, name: str, body: ir.Graph) -> ir.Function:
    forget_names(body)
    body.opset_imports.update(model.opset_imports)
    body.opset_imports[DOMAIN] = 1
    return ir.Function(DOMAIN, name, graph=body, attributes={})


def _call(region: Region, nodes: Sequence[ir.Node], name: str, op: str, replaced: _Replaced) -> ir.Node:
    """Put a call in the place of the region's nodes, which stay without inputs. What no longer needs shape nodes is
    swept up later."""
    shape_nodes = set(region.shape_nodes)
    moved = [n for n in nodes if n not in shape_nodes]
    outputs = [ir.Value(name=v.name, type=v.type, shape=v.shape) for v in region.outputs]
    call = ir.Node(
        DOMAIN, op, [replaced.value(v) for v in region.inputs], outputs=outputs, name=name, doc_string=of_call(region)
    )
    graph = moved[0].graph
    assert graph is not None
    graph.insert_before(moved[0], call)
    for old, new in zip(region.outputs, outputs, strict=True):
        value = replaced.value(old)
        for user, index in value.uses():
            user.replace_input_with(index, new)
        replaced.values[value] = new
    for node in moved:
        replaced.nodes[node] = call
        for i in range(len(node.inputs)):
            node.replace_input_with(i, None)
    return call


def _finish(model: ir.Model) -> None:
    model.ir_version = max(model.ir_version or 0, _LEAST_IR_VERSION)
    if model.functions:
        model.opset_imports[DOMAIN] = 1
    passes.RemoveUnusedNodesPass()(model)
    for body in model.graph.subgraphs():
        # The pass leaves these, and ONNX Runtime warns of each.
        for value in [v for v in body.initializers.values() if not v.uses() and not v.is_graph_output()]:
            del body.initializers[value.name or ""]
    passes.TopologicalSortPass()(model)
    passes.RemoveUnusedFunctionsPass()(model)  # type: ignore[no-untyped-call]


def _op(name: str, function: ir.Function, calls: Iterable[tuple[Candidate, str]]) -> FusedOp:
    candidates, names = zip(*calls, strict=True)
    first: Candidate = candidates[0]
    targets = tuple(dict.fromkeys(t for c in candidates for t in c.targets))
    return FusedOp(
        name,
        first.region.rule,
        first.region.kernel,
        function,
        first.plan,
        tuple(map(_spec, first.region.inputs)),
        tuple(map(_spec, first.region.outputs)),
        candidates,
        names,
        targets,
    )


def _spec(value: ir.Value) -> TensorSpec:
    dims = dims_of(value) or ()
    shape = tuple(None if isinstance(d, str) and d.startswith("?") else d for d in dims)
    return TensorSpec(value.name or "", dtype_of(value), shape)
