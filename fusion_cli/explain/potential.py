"""What a fusion that was not made could save at most: these nodes as one perfect kernel, against what will run."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import onnx_ir as ir

from fusion_cli.score.baseline import Baseline, one_kernel, total_work
from fusion_cli.score.spans import nodes_terms
from fusion_cli.score.vendor_fusions import fused_kernels
from fusion_cli.types import Candidate


class Potential:
    """Upper bounds on one target, for one choice of candidates."""

    def __init__(self, baseline: Baseline, chosen: Collection[Candidate], sizes: Mapping[str, int]) -> None:
        self.baseline, self.sizes = baseline, sizes
        self.target = baseline.profile.target
        self._chosen_of = {n: c for c in chosen if self.target in c.scores for n in c.region.nodes}

    def saving_us(self, nodes: Sequence[ir.Node]) -> float:
        """The time that one kernel for `nodes`, and for what is fused with some of them already, would save if it
        stored nothing in between, reached the full bandwidth and did its matrix products as the vendor does."""
        fused = list(dict.fromkeys(c for n in nodes if (c := self._chosen_of.get(n)) is not None))
        own = dict.fromkeys([*nodes, *(n for c in fused for n in c.region.nodes)])
        if not own or any(set(nodes) <= set(c.region.nodes) for c in fused):
            return 0.0
        profile = self.baseline.profile
        rest = [n for n in own if n not in self._chosen_of]
        works = total_work(fused_kernels(rest, profile), profile, self.sizes)
        alone = nodes_terms(works, profile).total
        before = alone + sum(c.scores[self.target].after_us for c in fused)
        ideal = [one_kernel(list(own), "Ideal", profile, self.sizes)]
        after = nodes_terms(ideal, profile).total
        # Joining fusions saves their dispatch; how good their kernels are is another matter.
        return max(0.0, min(before - after, alone + profile.node_us * len(fused)))
