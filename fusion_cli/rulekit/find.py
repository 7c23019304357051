"""Where in a matched model a component's region is, or why it is not there."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import partial

import onnx
import onnx_ir as ir

from fusion_cli.match import MatchResult
from fusion_cli.quiet import quiet
from fusion_cli.simplify import simplify
from fusion_cli.simplify.libraries import infer_shapes
from fusion_cli.types import Region, Rejection, label


def ready(proto: onnx.ModelProto, fold: bool) -> ir.Model:
    """The model as it comes to matching. Without `fold` what is computed from constants stays, as it does where these
    are as large as weights are."""
    model = ir.from_proto(proto)
    if fold:
        return simplify(model, partial(ir.from_proto, proto)).model
    with quiet():
        infer_shapes(model)
    return model


def region_of(
    model: ir.Model, found: MatchResult, missed: Iterable[Rejection], rule: str, outputs: Collection[str]
) -> Region | Rejection | str:
    """The rule's region that covers what computes these graph outputs; its rejection (of those `missed`) if it matched
    but makes no region; or else what was found instead."""
    nodes = _nodes_of(model, outputs)
    if not nodes:
        return "nothing is left of this graph before matching"
    regions = [r for r in found.regions if r.rule == rule and set(r.nodes) & nodes]
    for region in regions:
        if not nodes - set(region.nodes) - set(region.shape_nodes):
            return region
    if regions:
        largest = max(regions, key=lambda r: len(set(r.nodes) & nodes))
        left = sorted(label(n) for n in nodes - set(largest.nodes) - set(largest.shape_nodes))
        return f"found, but without {', '.join(left)}"
    names = {label(n) for n in nodes}
    rejections = (r for r in missed if r.rule == rule and r.node in names and r.stage == "match")
    nearest = max(rejections, key=lambda r: r.progress, default=None)
    if nearest is None:
        return "nothing of it was found"
    if nearest.progress == 1.0:
        return nearest
    return f"{nearest.code} at {nearest.node}: expected {nearest.expected}, found {nearest.found}"


def _nodes_of(model: ir.Model, outputs: Collection[str]) -> set[ir.Node]:
    """What these outputs are computed by."""
    found: set[ir.Node] = set()
    pending = [v.producer() for v in model.graph.outputs if v.name in outputs]
    while pending:
        node = pending.pop()
        if node is not None and node not in found:
            found.add(node)
            pending += [v.producer() for v in node.inputs if v is not None]
    return found
