"""What templates/cuda/stages/attention.cu.jinja makes kernels of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fusion_cli.codegen.cuda_parts import Body, CudaStage, Load, Out
from fusion_cli.kernels.attention_fitting import Fitting
from fusion_cli.kernels.attention_work import DEEP


@dataclass(frozen=True, kw_only=True)
class AttentionStage(CudaStage):
    is_long = True
    q: Load
    k: Load
    v: Load
    out: Out
    out_view: str
    scale: str
    functions: tuple[tuple[str, Body, str], ...]
    """The programs of scores, of probabilities and of the sink: name, body and value."""
    prob_kind: str
    head_dims: tuple[tuple[int, int], ...]
    bare: bool
    """Whether the score is the scaled product itself, of every key or those not hidden; scale > 0, and no sink."""
    causal: bool
    later: str
    """The number that later keys' scores are lowered by, or have instead where `firm`, if positions alone tell them
    apart and they might count all the same; empty otherwise."""
    has_sink: bool
    by_key: bool
    """Whether what a mask hides depends on operands and the key alone: it may be the same for all queries."""
    sorted: bool
    """Whether it depends on operands, the query and the key alone: what becomes of tiles is found beforehand."""
    firm: bool
    """Whether the score of a hidden key does not depend on the product at all."""
    small: bool
    """Whether scores are far from the largest float, or -inf."""
    may_round: bool
    """Whether it is of float32, which tensor cores round to TF32: where a session forbids that, another kernel runs."""
    splits: bool
    """Whether blocks may share the keys of a row."""
    panels: Mapping[tuple[int, int], tuple[int, int]]
    """Those of `head_dims` for which Hopper has kernels of its own, and their depths."""
    fitting: Fitting

    @property
    def decodes(self) -> bool:
        """Whether it has a kernel of few queries."""
        return self.splits and not self.may_round and self.fitting.few

    def rings(self, panel: tuple[int, int]) -> tuple[bool, ...]:
        """For operands of the score that are the same for all queries, or not: of which there is a kernel with two
        places for keys."""
        return tuple(alike for alike in self.fitting.rings_of(panel) if self.by_key or not alike)

    @property
    def own_kinds(self) -> frozenset[str]:
        """Of which kinds there are kernels of Hopper's own."""
        panels = self.panels.values()
        there = {
            "short": self.fitting.shorts and panels,
            "ring": any(map(self.rings, panels)),
            "warpgroups": any(map(self.fitting.walks, panels)),
        }
        return frozenset(kind for kind, are in there.items() if are)

    def tiles(self, depth: int, value_depth: int) -> tuple[bool, ...]:
        """Whether tiles of the kernel for any GPU are wide, of each kind that there is for heads of `head_dims`: of
        the deepest there is one alone, and where Hopper has kernels of its own, few queries are theirs."""
        if max(depth, value_depth) > DEEP:
            return (False,)
        return (True,) if (depth, value_depth) in self.panels else (False, True)

    @property
    def program_loads(self) -> tuple[Load, ...]:
        return tuple({x.operand: x for _, body, _ in self.functions for x in body.loads}.values())

    @property
    def score_loads(self) -> tuple[Load, ...]:
        return next(body.loads for name, body, _ in self.functions if name == "score")

    @property
    def axes(self) -> tuple[int, ...]:
        """Axes of the batch whose positions a program uses; a row's and a key's are at hand."""
        return tuple(sorted({a for _, body, _ in self.functions for a in body.axes} - {1, 2}))
