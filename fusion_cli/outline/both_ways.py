"""A call under a guard: an If, of which one branch is the call and the other its nodes.

The If is written last and taken away first: whatever looks for calls finds them where the nodes were.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx_ir as ir
from onnx_ir.convenience import replace_nodes_and_values
from onnx_ir.passes.common import InlinePass, TopologicalSortPass

from fusion_cli.costs import Guard
from fusion_cli.version import DOMAIN

LEAST_OPSET = 9
"""From this one on Less compares integers."""
_BRANCHES = ("then_branch", "else_branch")
_KEY = f"{DOMAIN}.guard"
"""Of the metadata of such an If: a branch of the model's own may be a single call, too."""
_NODES = "_nodes"
"""What the name of a function ends with whose calls are about to become its nodes."""


def add_guards(model: ir.Model, guards: Mapping[str, Guard]) -> None:
    """Put calls under guards, by the names of the calls. Guards that are alike share a condition."""
    conditions = _Conditions(model.graph)
    twins: dict[str, ir.Function] = {}
    choices = []
    for call in [n for n in model.graph.all_nodes() if n.domain == DOMAIN and n.name in guards]:
        function = model.functions[call.op_identifier()]
        twin = f"{call.op_type}{_NODES}"
        if twin not in twins:
            twins[twin] = ir.Function(DOMAIN, twin, graph=function.graph.clone(), attributes={})
        choices.append(_choice(call, twin, guards[call.name or ""], conditions))
    for function in twins.values():
        model.functions[function.identifier()] = function
    InlinePass(lambda f: f.name in twins)(model)
    for branch, outputs in choices:
        _name_apart(branch)
        for value, output in zip(branch.outputs, outputs, strict=True):
            value.type, value.shape = output.type, output.shape
    TopologicalSortPass()(model)


def drop_guards(model: ir.Model, is_dropped: Callable[[str], bool]) -> None:
    """Put calls of the named operators in the place of the Ifs that they are in."""
    for node in list(model.graph.all_nodes()):
        call = _guarded(node)
        if call is not None and is_dropped(call.op_type):
            graph, branch = node.graph, call.graph
            assert graph is not None
            assert branch is not None
            outputs = [*branch.outputs]
            branch.outputs.clear()
            branch.remove(call)
            replace_nodes_and_values(graph, node, [node], [call], node.outputs, outputs)


def dispatched(model: ir.Model) -> int:
    """How many nodes a session with all kernels runs where every guard holds, those of bodies included."""
    nodes = list(model.graph.all_nodes())
    guarded = [(node, call.graph) for node in nodes if (call := _guarded(node)) is not None]
    return len(nodes) - sum(len(b) for node, fused in guarded for b in _branches(node) if b is not fused)


def _branches(node: ir.Node) -> list[ir.Graph]:
    return [a.as_graph() for name in _BRANCHES if (a := node.attributes.get(name)) is not None]


def _guarded(node: ir.Node) -> ir.Node | None:
    """The call under an If that is a guard."""
    if node.op_type != "If" or _KEY not in node.metadata_props:
        return None
    alone = [branch[0] for branch in _branches(node) if len(branch) == 1]
    return next((n for n in alone if n.domain == DOMAIN), None)


def _name_apart(branch: ir.Graph) -> None:
    """Call what is inside as nothing outside is, also where functions become nodes later, whose names are made without
    a look into branches."""
    for node in branch:
        node.name = f"{branch.name}.{node.name}"
        for value in node.outputs:
            if not value.is_graph_output():
                value.name = f"{branch.name}.{value.name}"


def _choice(call: ir.Node, twin: str, guard: Guard, conditions: _Conditions) -> tuple[ir.Graph, list[ir.Value]]:
    """Put an If in the place of a call; the branch of its nodes, and what it makes."""
    graph = call.graph
    assert graph is not None
    fused, nodes = (_branch(call, name, end) for name, end in ((call.op_type, "fused"), (twin, "nodes")))
    then, otherwise = (nodes, fused) if guard.is_from else (fused, nodes)
    outputs = [ir.Value(name=v.name, type=v.type, shape=v.shape) for v in call.outputs]
    node = ir.Node(
        "",
        "If",
        [conditions.below(guard)],
        [ir.AttrGraph("then_branch", then), ir.AttrGraph("else_branch", otherwise)],
        outputs=outputs,
        name=f"{call.name}_if",
        doc_string=f"{call.op_type} {guard} the nodes that it stands for",
        metadata_props={_KEY: str(guard)},
    )
    replace_nodes_and_values(graph, call, [call], [node], call.outputs, outputs)
    return nodes, outputs


def _branch(call: ir.Node, op: str, end: str) -> ir.Graph:
    """A graph of one call of the operator with the inputs of another."""
    outputs = [ir.Value(name=f"{v.name}_{end}", type=v.type, shape=v.shape) for v in call.outputs]
    own = ir.Node(DOMAIN, op, call.inputs, outputs=outputs, name=call.name, doc_string=call.doc_string)
    return ir.Graph([], outputs, nodes=[own], name=f"{call.name}_{end}")


class _Conditions:
    """Whether sizes are below limits: nodes of a graph, each once, that are sorted into it later."""

    def __init__(self, graph: ir.Graph) -> None:
        self._graph = graph
        self._known: dict[tuple[object, ...], ir.Value] = {}

    def below(self, guard: Guard) -> ir.Value:
        """Whether the size is below that at which the guard turns."""
        bound = guard.limit if guard.is_from else guard.limit + 1
        return self._once("Less", self._size(guard), self._constant([bound]))

    def _size(self, guard: Guard) -> ir.Value:
        value = next(v for v in self._graph.inputs if v.name == guard.value)
        sizes = self._once("Gather", self._once("Shape", value), self._constant(guard.axes))
        return sizes if len(guard.axes) == 1 else self._once("ReduceProd", sizes)

    def _constant(self, numbers: Sequence[int]) -> ir.Value:
        key = tuple(numbers)
        if key not in self._known:
            tensor = ir.tensor(np.array(numbers, np.int64), name=self._name())
            shape, dtype = ir.Shape([len(numbers)]), ir.TensorType(tensor.dtype)
            self._known[key] = ir.Value(name=tensor.name, shape=shape, type=dtype, const_value=tensor)
            self._graph.register_initializer(self._known[key])
        return self._known[key]

    def _once(self, op: str, *inputs: ir.Value) -> ir.Value:
        key = (op, *inputs)
        if key not in self._known:
            node = ir.node(op, inputs, name=self._name())
            node.outputs[0].name = node.name
            self._graph.append(node)
            self._known[key] = node.outputs[0]
        return self._known[key]

    def _name(self) -> str:
        """Nobody else's."""
        return f"{DOMAIN}.guard_{len(self._known)}"
