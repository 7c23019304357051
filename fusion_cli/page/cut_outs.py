"""The graph around a near miss, laid out in rows, with the edge at which the rule stopped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from fusion_cli.report import Report
from fusion_cli.types import GraphNode, Rejection

_SHOWN, _MOST_NODES = 12, 24
CELL, ROW, BOX = 150.0, 46.0, 136.0
"""Widths and heights of the layout, in pixels."""


@dataclass(frozen=True)
class Box:
    """A node of the picture; `is_stop` where the rule expected something else."""

    name: str
    operator: str
    x: float
    y: float
    is_stop: bool


@dataclass(frozen=True)
class CutOut:
    """A near miss and its picture; edges are between the middles of boxes, from bottom to top."""

    rejection: Rejection
    boxes: tuple[Box, ...]
    edges: tuple[tuple[float, float, float, float, bool], ...]
    width: float
    height: float


def cut_outs(report: Report) -> list[CutOut]:
    """The costliest near misses that nothing else covers."""
    position = {n.name: i for i, n in enumerate(report.graph)}
    told = [r for r in report.rejected if r.rule and r.stage != "verify" and not r.covered_by]
    worth = [r for r in told if r.saving_us > 0 or r.stage not in ("match", "plan")]
    return [_cut_out(r, report.graph, position) for r in (worth or told)[:_SHOWN]]


def _cut_out(rejection: Rejection, graph: Sequence[GraphNode], position: dict[str, int]) -> CutOut:
    """Nodes in rows by how many of the others come before them."""
    names = dict.fromkeys([*rejection.nodes[:_MOST_NODES], rejection.node])
    inside = sorted(position[name] for name in names if name in position)
    stop = position.get(rejection.node, -1) if rejection.stage == "match" else -1
    depth: dict[int, int] = {}
    for i in inside:  # producers come first in the list, but for those of bodies
        depth[i] = max((depth[j] + 1 for j in graph[i].reads if j in depth), default=0)
    taken: Counter[int] = Counter()
    boxes: dict[int, Box] = {}
    for i in inside:
        x, y = taken[depth[i]] * CELL, depth[i] * ROW
        taken[depth[i]] += 1
        boxes[i] = Box(graph[i].name, graph[i].operator, x, y, i == stop)
    pairs = [(j, i) for i in inside for j in graph[i].reads if j in boxes]
    edges = tuple(
        (boxes[a].x + BOX / 2, boxes[a].y + 30, boxes[b].x + BOX / 2, boxes[b].y, stop in (a, b)) for a, b in pairs
    )
    width, height = max(taken.values(), default=1) * CELL, (max(depth.values(), default=0) + 1) * ROW
    return CutOut(rejection, tuple(boxes.values()), edges, width, height)
