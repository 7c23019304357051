"""Exported models whose layers are one operator each: a piece left outside is computed right, and nobody notices."""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarks.runs import default_folder
from fusion_cli.analyse import analyse
from fusion_cli.clock import Clock
from fusion_cli.types import Options

CORPUS = default_folder()
LAYERS = {
    "hf.llama.ts17.dynamic": {"TransformerLayer": 2},
    "hf.mistral.ts17.dynamic": {"TransformerLayer": 2},
    "hf.qwen2-eager.ts17.dynamic": {"TransformerLayer": 2},
    "hf.qwen3.ts17.dynamic": {"TransformerLayer": 2},
    "hf.qwen3-cache.ts17.dynamic": {"TransformerLayer": 2},
    "hf.qwen3.dyn18.static": {"TransformerLayer": 2},
    "hf.olmo2.ts17.dynamic": {"TransformerLayer": 2},
    "hf.phi.ts17.dynamic": {"TransformerLayer": 2},
    "hf.dit.ts17.dynamic": {"TransformerLayer": 1},
    "hf.segformer.ts17.dynamic": {"AttentionProjection": 4, "MixFeedForward": 4},
    "hf.pvt_v2.ts17.dynamic": {"AttentionProjection": 4, "MixFeedForward": 4},
    "hf.convnextv2.dyn18.static": {"Convolutions": 1},
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers_are_one_operator_each(name: str) -> None:
    path = CORPUS / f"{name}.onnx"
    if not path.exists():
        pytest.skip("no corpus of exported models (FUSION_CORPUS)")
    options = Options(targets=("sm_90a",))
    found = Counter(c.region.rule for c in analyse(path, options, Clock(options)).chosen)
    assert {rule: found[rule] for rule in LAYERS[name]} == LAYERS[name]
