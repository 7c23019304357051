"""Standard clean-ups, from libraries, and exact algebra: what is left is easier to match and computes the same
numbers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import onnx_ir as ir
import onnx_ir.passes.common as passes

from fusion_cli.operators.versions import training_mode
from fusion_cli.quiet import quiet
from fusion_cli.simplify.algebra import apply_algebra
from fusion_cli.simplify.identities import copied_outputs, copy_outputs, drop_identities
from fusion_cli.simplify.inferred import MOST_ELEMENTS
from fusion_cli.simplify.iterations import note_declared
from fusion_cli.simplify.libraries import Step, attempt, fold_constants, forget_shapes, infer_shapes
from fusion_cli.simplify.names import tell_apart
from fusion_cli.simplify.omitted import name_omitted_outputs, omit_outputs
from fusion_cli.simplify.slices import write_backward_ends
from fusion_cli.sizes.algebra import UNKNOWN, names_in
from fusion_cli.sizes.dims import forget_names, shape_of
from fusion_cli.types import Rewrite, label

FOLD_INPUT_ELEMENTS = 1 << 14
FOLD_OUTPUT_ELEMENTS = 1 << 16
MOST_BRANCHES = 8
"""If nodes, each behind another, whose conditions are looked into."""
MOST_ROUNDS = 4
"""Of algebra, each with sizes that the one before made known."""
_RANDOM = frozenset({"Bernoulli", "BiasDropout", "BitmaskBiasDropout", "BitmaskDropout"})


@dataclass(frozen=True, eq=False)
class Simplified:
    """A model after the clean-ups, and the rules of algebra that were applied."""

    model: ir.Model
    algebra: tuple[Rewrite, ...]


def simplify(model: ir.Model, again: Callable[[], ir.Model], algebra: bool = True, blocks: bool = False) -> Simplified:
    """Inline local functions, infer symbolic shapes, fold constants, write what is computed with fewer operators
    (`algebra`; with `blocks` also for a machine whose convolutions take channels in blocks), merge equal subexpressions
    and drop what is unused. Returns the model to go on with: `model`, changed in place, or what `again` gave, which
    makes the model anew where a step broke off.

    Shapes come first and last: with them, the exporters' run-time shape arithmetic mostly folds to constants, and
    the matcher can tell equal dimensions by their symbols.
    """
    rewrites: list[Rewrite] = []

    def start_again() -> ir.Model:
        rewrites.clear()
        return _prepare(again())

    fold = partial(fold_constants, input_elements=FOLD_INPUT_ELEMENTS, output_elements=FOLD_OUTPUT_ELEMENTS)
    steps: dict[str, Step] = {
        "infer shapes": _shape,
        "fold constants": fold,
        "decide branches": partial(_decide_branches, fold=fold),
        "algebra": lambda m: rewrites.extend(apply_algebra(m, blocks)),
        "algebra of sizes that are known then": lambda m: rewrites.extend(
            _algebra_again(m, fold, blocks) if rewrites else ()
        ),
        "tidy": partial(_tidy, copied=copied_outputs(model.graph)),
    }
    if not algebra:
        steps = {name: step for name, step in steps.items() if not name.startswith("algebra")}
    with quiet():
        model = attempt(steps, _prepare(model), start_again)
        infer_shapes(model)
        omit_outputs(model)
    return Simplified(model, _by_rule(rewrites))


def _algebra_again(model: ir.Model, fold: Step, blocks: bool) -> Iterator[Rewrite]:
    """Sizes may be known where nodes were taken out that hid them, such as a Pad by none, and with them what is
    computed of shapes: as long as that goes on, fold constants and apply algebra again."""
    for _ in range(MOST_ROUNDS):
        before = sum(1 for _ in _unknown(model))
        if not before:
            return
        forget_shapes(model)
        _shape(model)
        if sum(1 for _ in _unknown(model)) >= before:
            return
        fold(model)
        yield from apply_algebra(model, blocks)


def _by_rule(rewrites: Sequence[Rewrite]) -> tuple[Rewrite, ...]:
    """What every rule did in all rounds."""
    found: dict[str, Rewrite] = {}
    for r in rewrites:
        nodes, places = (found[r.rule].nodes, found[r.rule].places) if r.rule in found else ((), 0)
        found[r.rule] = Rewrite(r.rule, tuple(dict.fromkeys((*nodes, *r.nodes))), places + r.places)
    return tuple(found.values())


def _prepare(model: ir.Model) -> ir.Model:
    """What the other steps rely on, in place: one graph, in which every node has a name and equal things are written
    alike."""
    name_omitted_outputs(model)
    for function in model.functions.values():
        forget_names(function)
    passes.InlinePass()(model)
    note_declared(model)
    forget_shapes(model)
    for body in model.graph.subgraphs():
        # A body is written in its model's operators, and what works on one graph at a time asks it for them.
        body.opset_imports.update(model.opset_imports)
    for node in model.graph.all_nodes():
        if node.op_type == "Sum" and not node.domain and len(node.inputs) == 2:
            node.op_type = "Add"
        # So it is spoken of, and found in the file; the passes would call it "node_1".
        node.name = label(node) if node.outputs else node.name
    passes.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
    write_backward_ends(model)
    return model


def _shape(model: ir.Model) -> None:
    infer_shapes(model)
    if not _is_shaped(model):
        passes.ShapeInferencePass(data_prop=not _has_long_vectors(model))(model)
        infer_shapes(model)


def _has_long_vectors(model: ir.Model) -> bool:
    """Whether vectors are made that are no shapes, and whose elements ONNX would follow one by one all the same."""
    made = (v.shape for node in model.graph.all_nodes() for v in node.outputs if v.shape is not None)
    return any(len(shape) == 1 and isinstance(shape[0], int) and shape[0] > MOST_ELEMENTS for shape in made)


def _decide_branches(model: ir.Model, fold: Step) -> None:
    """Exporters write what depends on a rank or a size as If. Once shapes decide one, more shapes are known."""
    for _ in range(MOST_BRANCHES):
        before = _count_branches(model)
        if not before:
            return
        infer_shapes(model)
        fold(model)
        if _count_branches(model) == before:
            return


def _count_branches(model: ir.Model) -> int:
    return sum(n.op_type == "If" and not n.domain for n in model.graph.all_nodes())


def _is_shaped(model: ir.Model) -> bool:
    """Whether every type is known, and every size by a number or by the sizes of the inputs."""
    return next(_unknown(model), None) is None


def _unknown(model: ir.Model) -> Iterator[ir.Value]:
    """Values of which that is not known."""
    given = {name for v in model.graph.inputs for name in _names(v)}
    values = (v for node in model.graph.all_nodes() for v in node.outputs)
    return (v for v in values if v.dtype is None or v.shape is None or not given.issuperset(_names(v)))


def _names(value: ir.Value) -> list[str]:
    """The names in a shape; "" for a size of which nothing is known."""
    return [name.partition(UNKNOWN)[0] for size in shape_of(value) or () for name in names_in(size)]


def merge_equals(model: ir.Model) -> None:
    """Make one of equal constants and of equal nodes, in place."""
    passes.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
    for step in _merging(model):
        step(model)


def _merging(model: ir.Model) -> Iterator[Callable[[ir.Model], object]]:
    """The passes that make one of two equal things, where being equal makes them the same."""
    if not any(v.is_graph_input() or v.is_graph_output() for v in model.graph.initializers.values()):
        yield passes.DeduplicateInitializersPass()
    if not any(_draws(node) for node in model.graph.all_nodes()):
        yield passes.CommonSubexpressionEliminationPass()


def _draws(node: ir.Node) -> bool:
    """Whether the node gives other numbers each time, and the merging pass does not know it."""
    return node.op_type in _RANDOM or (node.op_type == "Dropout" and training_mode(node) is not None)


def _tidy(model: ir.Model, copied: Collection[str]) -> None:
    steps: tuple[Callable[[ir.Model], object], ...] = (
        passes.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0),
        *_merging(model),
        drop_identities,
        passes.RemoveUnusedNodesPass(),
        lambda m: copy_outputs(m.graph, copied),
        passes.NameFixPass(),
        tell_apart,
        passes.TopologicalSortPass(),
    )
    for step in steps:
        step(model)
