"""Scores of regions in ONNX text, on devices whose profiles are bundled."""

from __future__ import annotations

from collections.abc import Mapping

from fusion_cli.costs import Score
from fusion_cli.plan import plan_region
from fusion_cli.score import Baseline, default_sizes, load_profile, score_region
from fusion_cli.types import Options, Target
from tests.helpers.region_tools import parsed, whole

CPU, H200, A100 = Target("cpu", "cpu"), Target("sm_90a", "cuda", "sm_90a"), Target("sm_80", "cuda", "sm_80")
CAUSAL = """g (float16[b, 9, s, 64] q, float16[b, 9, s, 64] k, float16[b, 9, s, 64] v) => (float16[b, 9, s, 64] y) {{
    y = Attention <is_causal = {}> (q, k, v) }}"""


def verdict(
    text: str, target: Target, dims: Mapping[str, tuple[int, int]], force: bool = False, opset: int = 20
) -> Score:
    model = parsed(text, opset)
    region = whole(model)
    sizes = default_sizes(model, Options(dims=dims))
    return score_region(region, plan_region(region), Baseline(model.graph, load_profile(target)), sizes, force=force)


def at(batch: int, length: int) -> dict[str, tuple[int, int]]:
    return {"b": (batch, batch), "s": (length, length)}
