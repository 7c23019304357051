"""The passes of other libraries, none of which ends the run.

A model can hold anything, and a pass that fails on one operator would cost the whole model. What fails is left out: a
shape not inferred or a constant not folded costs fusions, which `explain` shows.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Mapping

import onnx_ir as ir
import onnx_ir.passes.common as passes
from onnx_shape_inference import SYM_DATA_KEY, infer_symbolic_shapes, registry
from onnxscript import optimizer
from onnxscript.optimizer._constant_folding import OptimizerState

from fusion_cli.operators.registry import having
from fusion_cli.operators.versions import is_over_later_axes
from fusion_cli.simplify.corrections import correct
from fusion_cli.simplify.inferred import MOST_ELEMENTS
from fusion_cli.simplify.iterations import found_by, holds, is_loop, states_of, values_in
from fusion_cli.sizes.dims import rename_sizes
from fusion_cli.sizes.operations import LARGEST_ENDS

_SEQUENCES = frozenset({"ConcatFromSequence", "SplitToSequence"})
"""Operators that the folding replaces by others with axes as inputs, as they have them from opset 13 on."""

_MOST_ROUNDS = 5
"""How often shapes are inferred where loops change what they carry: a size may follow from that of another state."""
_LAYERS = having("layer")
_NUMBERS = frozenset({"value_int", "value_ints", "value_float", "value_floats"})

_MISCOMPUTED = frozenset({"GlobalMaxPool", "LogSoftmax"})
"""What ONNX's reference, which folding goes by, computes otherwise than ONNX Runtime: it gives a pooled line an axis
too few, and takes logarithms of what was too small for a number."""

_MOST_MADE = 1 << 20
_MADE: Mapping[str, Callable[..., float]] = {
    "ConstantOfShape": lambda shape: math.prod(shape.tolist()),
    "Expand": lambda x, shape: x.size * math.prod(shape.tolist()),
    "Tile": lambda x, repeats: x.size * math.prod(repeats.tolist()),
    "Range": lambda start, limit, delta: abs(float(limit) - float(start)) / max(abs(float(delta)), 1e-30),
    "OneHot": lambda indices, depth, _: indices.size * abs(float(depth.ravel()[0])),
    "Pad": lambda x, pads=None, *_: x.size + (0 if pads is None else math.prod((abs(pads) + 1).tolist())) * x.size,
}
"""The elements that come of constants, or more, where they may be many more than these."""

_log = logging.getLogger(__name__)
correct()


def _following(note: Callable[..., None]) -> Callable[..., None]:
    """The folding follows shapes that get twice as long with each Concat."""

    def bounded(state: OptimizerState, value: ir.Value, known: object) -> None:
        if not isinstance(known, ir.Shape) or len(known) <= MOST_ELEMENTS:
            note(state, value, known)

    return bounded


OptimizerState.set_sym_value = _following(OptimizerState.set_sym_value)  # type: ignore[method-assign]

_Known = tuple[ir.TypeProtocol | None, ir.Shape | None, ir.TensorProtocol | None]
"""Type, shape and elements of a value, as far as they are known."""
Step = Callable[[ir.Model], object]


def attempt(steps: Mapping[str, Step], model: ir.Model, again: Callable[[], ir.Model]) -> ir.Model:
    """The model after all steps but those that fail; each changes it in place.

    A step that fails may have left the model half changed. It is left out of a new start with the model that `again`
    gives: to keep a copy for the rare failure would take a second model's memory each time.
    """
    for name, step in steps.items():
        try:
            step(model)
        except Exception as e:
            _log.debug("the clean-up '%s' failed: %s", name, e)
            return attempt({other: s for other, s in steps.items() if other != name}, again(), again)
    return model


def forget_shapes(model: ir.Model) -> None:
    """Believe nothing that the model says of the shapes of results that can be inferred, nor of what iterations find:
    it need not be true, nor hold for all sizes or every iteration."""
    for node in model.graph.all_nodes():
        inferred = node.outputs if can_be_inferred(node) else ()
        for value in (*inferred, *(found_by(node) if is_loop(node) else ())):
            value.shape = None


def can_be_inferred(node: ir.Node) -> bool:
    """Whether shape inference knows the operator; of others the model's word is all there is."""
    return bool(registry.has(node.domain, node.op_type))


def infer_shapes(model: ir.Model) -> None:
    """Symbolic shapes, in place, up to the first operator that the library fails on.

    The library takes what a loop carries, where nothing is known of it, for tensors of the shape they start with. If
    they are no tensors it is told so, and which sizes come out of an iteration as others, until an iteration leaves
    what it finds; in bodies of which that never is so all values keep the shapes they had.
    """
    loops = [n for n in model.graph.all_nodes() if is_loop(n)]
    open_states = [s for loop in loops for s in states_of(loop) if s.found.shape is None]
    known = {v: (v.type, v.shape, v.const_value) for v in _values(model)} if loops else {}
    told: dict[ir.Value, _Known] = {}
    for _ in range(_MOST_ROUNDS):
        _restore(known | told)
        _infer(model)
        kinds = [s for s in open_states if type(s.found.type) is not type(s.start.type)]
        news: dict[ir.Value, _Known] = {s.found: (s.start.type, None, None) for s in kinds}
        for state in open_states:
            if not state.is_kept and state.common is not None:
                news[state.found] = state.found.type, state.common, None
        if not news:
            break
        told |= news
    opset = model.opset_imports.get("", 0)
    astray = {v for loop in loops if not holds(loop, opset) for v in values_in(loop)}
    _restore({value: each for value, each in known.items() if value in astray})


def _restore(known: Mapping[ir.Value, _Known]) -> None:
    """Make values what they were; the library takes those for constants whose elements it infers."""
    for value, (kind, shape, constant) in known.items():
        value.type, value.shape, value.const_value = kind, shape, constant
        value.metadata_props.pop(SYM_DATA_KEY, None)


def _infer(model: ir.Model) -> None:
    try:
        # Names that the model declares of values would stand for what is computed, wherever that occurs.
        infer_symbolic_shapes(model, warn_on_missing=False, adopt_declared_symbols=False)
    except Exception as e:
        _log.debug("symbolic shape inference stopped: %s", e)
    # What the library has computed by symbols can come out as a number in writing.
    rename_sizes(_values(model), lambda name: int(name) if name.isdecimal() else name)


def _values(model: ir.Model) -> Iterator[ir.Value]:
    for graph in (model.graph, *model.graph.subgraphs()):
        yield from graph.inputs
        for node in graph:
            yield from node.outputs


def fold_constants(model: ir.Model, input_elements: int, output_elements: int) -> None:
    """Fold what is computed from constants of up to `input_elements` each into some of up to `output_elements`, in
    place."""
    if model.opset_imports.get("", 0) < 13 and any(n.op_type in _SEQUENCES for n in model.graph.all_nodes()):
        return
    _count_axes_from_start(model)
    # Folded values make more of the graph constant, and more sizes: a second round finds what the first could not.
    for again in (False, True):
        if again:
            infer_shapes(model)
        optimizer.fold_constants_ir(
            model,
            input_size_limit=input_elements,
            output_size_limit=output_elements,
            onnx_shape_inference=False,
            should_fold=_should_fold,
        )
        passes.RemoveUnusedNodesPass()(model)
    _register_constants(model.graph)
    _write_constants_as_tensors(model)


def _should_fold(node: ir.Node) -> bool | None:
    """Whether to fold a node; None leaves it to the optimizer."""
    if node.op_type == "ConstantOfShape":
        return not _is_blown_up(node)  # left alone by default; exporters compute the shapes of Expand with it
    if not node.domain and node.op_type in _MISCOMPUTED:
        return False
    if _is_layer(node) or is_over_later_axes(node):  # of axes the folding knows only the later kind
        return False
    if _is_cut_otherwise(node) or _is_blown_up(node):
        return False
    if any(v is not None and v.dtype == ir.DataType.STRING for v in (*node.inputs, *node.outputs)):
        return False  # what the optimizer makes of strings cannot be saved
    return None


def _is_cut_otherwise(node: ir.Node) -> bool:
    """Whether Python's slice, which the folding takes, may not be ONNX Runtime's: backwards with the largest numbers as
    its end, or from before the first element."""
    bounds = [v.const_value for v in node.inputs if v is not None and v.const_value is not None]
    if node.op_type != "Slice" or len(bounds) < 5:
        return False
    starts, ends, _, steps = (bound.numpy().ravel().tolist() for bound in bounds[1:])
    return any(t < 0 and (s < -1 or e in LARGEST_ENDS) for s, e, t in zip(starts, ends, steps, strict=True))


def _is_blown_up(node: ir.Node) -> bool:
    """Whether a few constants make many: the folding looks at how many only when it has them."""
    count = _MADE.get(node.op_type) if not node.domain else None
    given = [None if v is None or v.const_value is None else v.const_value.numpy() for v in node.inputs]
    return count is not None and count(*given) > _MOST_MADE


def _is_layer(node: ir.Node) -> bool:
    """Whether the node is work of the model rather than arithmetic that prepares it: even if all it reads is constant,
    as in the first layer on learned queries, rules are to see the layer. (A product over one element is an outer
    product, as tables of positions are made with.)"""
    if node.domain or node.op_type not in _LAYERS:
        return False
    shape = node.inputs[0].shape if node.op_type == "MatMul" and node.inputs[0] is not None else None
    return shape is None or shape[-1] != 1


def _count_axes_from_start(model: ir.Model) -> None:
    """The folding gets several negative axes of the old Unsqueeze wrong: it counts each in another rank."""
    for node in model.graph.all_nodes():
        axes = node.attributes.get_ints("axes") if node.op_type == "Unsqueeze" else None
        source = node.inputs[0] if node.inputs else None
        if axes and source is not None and source.shape is not None:
            rank = len(source.shape) + len(axes)
            node.attributes["axes"] = ir.AttrInt64s("axes", sorted(a + rank if a < 0 else a for a in axes))


def _write_constants_as_tensors(model: ir.Model) -> None:
    """Constant has attributes for lists of numbers, which folding makes use of, from opset 12 on only."""
    for node in model.graph.all_nodes():
        if node.op_type == "Constant" and not node.domain and _NUMBERS.intersection(node.attributes):
            tensor = ir.convenience.get_const_tensor(node.outputs[0])
            if tensor is not None:
                node.attributes.clear()
                node.attributes["value"] = ir.AttrTensor("value", tensor)


def _register_constants(graph: ir.Graph) -> None:
    """Name and register constants that the optimizer made for two nodes under one name, of which it registers one."""
    inputs = {id(v) for v in graph.inputs}
    for node in graph:
        for value in node.inputs:
            if value is None or value.producer() is not None or value.graph is not None or id(value) in inputs:
                continue
            if value.const_value is not None:
                stem, n = value.name, 0
                while value.name in graph.initializers:
                    n += 1
                    value.name = f"{stem}_{n}"
                graph.register_initializer(value)
