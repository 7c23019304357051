"""The GPU table of README's first screen, out of what `benchmarks.gpu_models` has left in results/; `make goldens`
writes it anew."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from statistics import geometric_mean

from benchmarks.gpu_models_page import ORT, TORCH, Row, best, fused_ways
from benchmarks.gpu_options import PAGES
from benchmarks.tally import table

README = Path(__file__).parents[1] / "README.md"
RESULTS = README.parent / PAGES / "gpu-models-nvidia-h200.json"
_TITLES = {
    "bert_b1_s128": "BERT-base, 1x128 tokens, float16",
    "bert_b8_s128": "BERT-base, 8x128 tokens, float16",
    "bert_dynamic_mask_b8_s512": "BERT-base, 8x512, open sizes and a mask, float16",
    "bert_fp32_b1_s128": "BERT-base, 1x128 tokens, float32",
    "vit_b8": "ViT-B/16, 8 images, float16",
    "resnet50_b8": "ResNet-50, 8 images, float16",
    "qwen7b_2l_b1_s2048": "2 layers of Qwen2.5-7B, 2048 tokens, float16",
    "qwen7b_2l_b1_s1": "2 layers of Qwen2.5-7B, one token, float16",
    "decoder_4l_b4_cache4095": "4 decoder layers, batch 4, cache of 4095, float16",
    "layer_b1_s128_d768": "one transformer layer, 1x128x768, float16",
}
"""The models that are shown, of each kind one that gains and the one that gains least."""
_PLACE = re.compile(r"(?<=<!-- front page -->\n).*?(?=<!-- end of it -->)", re.DOTALL)


def front_page(text: str) -> str:
    """README with its table as the results have it."""
    made = _section(json.loads(RESULTS.read_text(encoding="utf-8")))
    return _PLACE.sub(lambda _: made, text)


def _section(rows: Sequence[Row]) -> str:
    shown = {row["id"]: row for row in rows}
    head = ["NVIDIA H200, ms per run", "fused", "ONNX Runtime", "PyTorch", "over ONNX Runtime", "over PyTorch"]
    lines = table(head, [[title, *_cells(shown[id])] for id, title in _TITLES.items()])
    means = [_spread(rows, ways) for ways in (ORT, TORCH)]
    page = (PAGES / RESULTS.name).with_suffix(".md").as_posix()
    ways = "Each at its best of several ways to run it, CUDA graphs among them"
    if any(row["made"] == "quick" for row in rows):
        ways += "; fused is what `--no-verify` writes"
    return (
        f"{lines}\n\n{ways}. In the geometric mean of all {len(rows)} models\n{means[0]} over ONNX Runtime and"
        f" {means[1]} over PyTorch: [{Path(page).name}]({page}).\n"
    )


def _cells(row: Row) -> list[str]:
    own, ort, torch = (best(row, ways) or math.nan for ways in (fused_ways(row["made"]), ORT, TORCH))
    return [f"{own:.3f}", f"{ort:.3f}", f"{torch:.3f}", f"{ort / own:.2f}x", f"{torch / own:.2f}x"]


def _spread(rows: Sequence[Row], ways: Sequence[str]) -> str:
    pairs = ((best(row, ways), best(row, fused_ways(row["made"]))) for row in rows)
    ratios = [other / own for other, own in pairs if other is not None and own is not None]
    return f"{geometric_mean(ratios):.2f}x ({min(ratios):.2f}x to {max(ratios):.2f}x)"
