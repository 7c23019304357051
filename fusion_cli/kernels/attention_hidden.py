"""Which scores an attention hides, and what its kernels know of that before they multiply."""

from __future__ import annotations

from dataclasses import dataclass

from fusion_cli.codegen.cuda_parts import Body
from fusion_cli.codegen.expr import literal
from fusion_cli.kernels.attention_work import is_bare
from fusion_cli.plan.attention_kind import hides_later
from fusion_cli.planir.stages import Attention


@dataclass(frozen=True)
class Hidden:
    """How it is known which scores are hidden."""

    by_key: bool
    """Whether it depends on the operands and the key alone."""
    sorted: bool
    """Whether it depends on operands, queries and keys: tiles are sorted by it beforehand."""
    firm: bool
    """Whether what is hidden scores the same whatever the product."""
    later: str
    """What later keys' scores are lowered by, a literal; empty where they are not, or a program does it."""
    measured: bool
    """Whether tiles are sorted by what is lowered, as long as scores are small enough for that to hide them."""

    @classmethod
    def by(cls, stage: Attention, score: Body, by_warpgroups: bool) -> Hidden:
        """Of a stage whose score has this body; `by_warpgroups`: there are kernels that skip sorted tiles."""
        kind, bare = stage.kind, is_bare(stage)
        lowers = kind.causal and not hides_later(kind)
        masks = kind.masking in ("boolean", "additive") or (lowers and not bare)
        firm = kind.masking == "boolean" or (lowers and not kind.added)
        return cls(
            by_key=bool(score.loads) and set(score.axes) <= {1} and masks,
            sorted=by_warpgroups and masks and set(score.axes) <= {1, 2},
            firm=firm,
            later=literal(kind.later, "float32") if lowers and bare else "",
            measured=by_warpgroups and lowers and bare and not firm,
        )

    @property
    def sorts_tiles(self) -> bool:
        return self.sorted or self.measured
