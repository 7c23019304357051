"""What Loop and Scan carry from one iteration to the next, and of which shape it stays; what their bodies give out."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

_DECLARED = "declared shapes of what the body gives out"


@dataclass(frozen=True, eq=False)
class State:
    """A value that is carried: how it starts, how an iteration finds it, and what an iteration makes of it."""

    start: ir.Value
    found: ir.Value
    made: ir.Value

    @property
    def is_kept(self) -> bool:
        """Whether an iteration leaves the sizes that it finds, those aside that are not those of the start."""
        found, start, made = self.found.shape, self.start.shape, self.made.shape
        if found is None or start is None or made is None:
            return found is None
        return len(found) == len(start) == len(made) and all(
            f == m or f != s for f, s, m in zip(found, start, made, strict=True)
        )

    @property
    def common(self) -> ir.Shape | None:
        """The sizes that are found and left so, none for the others; None where the rank is not left."""
        found, made = self.found.shape, self.made.shape
        if found is None or made is None or len(found) != len(made):
            return None
        return ir.Shape([f if f == m else None for f, m in zip(found, made, strict=True)])


def is_loop(node: ir.Node) -> bool:
    """Whether a node runs a body again and again."""
    return not node.domain and node.op_type in ("Loop", "Scan")


def found_by(loop: ir.Node) -> list[ir.Value]:
    """What an iteration finds whose shape follows from what the loop reads. (Of a Loop's counter and condition the
    body's word decides whether they are scalars.)"""
    return list(_body(loop).inputs[2 if loop.op_type == "Loop" else 0 :])


def states_of(loop: ir.Node) -> list[State]:
    """What a loop carries, in order."""
    body = _body(loop)
    if loop.op_type == "Loop":
        states = zip(loop.inputs[2:], body.inputs[2:], body.outputs[1:], strict=False)
    else:
        count = len(loop.inputs) - loop.attributes.get_int("num_scan_inputs", 0)
        states = zip(loop.inputs[:count], body.inputs, body.outputs, strict=False)
    return [State(start, found, made) for start, found, made in states if start is not None]


def holds(loop: ir.Node, opset: int) -> bool:
    """Whether what the library infers of a loop's body is so in every iteration. It binds what Scan of opset 8 reads to
    the wrong inputs."""
    return (loop.op_type != "Scan" or opset > 8) and all(state.is_kept for state in states_of(loop))


def values_in(loop: ir.Node) -> list[ir.Value]:
    """All values of a loop's body, and of bodies in it, that have no shape of their own: what the loop reads has."""
    body = _body(loop)
    inner = [v for n in body.all_nodes() for v in n.outputs]
    inner += [v for n in body.all_nodes() if is_loop(n) for v in found_by(n)]
    return [*found_by(loop), *inner]


def note_declared(model: ir.Model) -> None:
    """Keep what the model says of the shapes of what bodies give out, for `declare_again`."""
    for loop in filter(is_loop, model.graph.all_nodes()):
        loop.meta[_DECLARED] = [None if v.shape is None else v.shape.dims for v in _body(loop).outputs]


def declare_again(model: ir.Model) -> None:
    """Say what the model said of the shapes of what bodies give out: ONNX Runtime takes from there what comes of no
    iteration, and of Scan it asks for one. What was inferred stays where the model says nothing: it infers that too."""
    for loop in filter(is_loop, model.graph.all_nodes()):
        for value, dims in zip(_body(loop).outputs, loop.meta.get(_DECLARED, ()), strict=False):
            if value.producer() is not None and dims is not None:
                value.shape = ir.Shape(dims)


def _body(loop: ir.Node) -> ir.Graph:
    return loop.attributes["body"].as_graph()
