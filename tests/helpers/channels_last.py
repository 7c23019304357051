"""Plans of regions whose images are kept with the channels last, held against ONNX Runtime."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fusion_cli.planir.stages import Plan
from tests.helpers.region_tools import all_values, check_region, parsed, whole

RNG = np.random.default_rng(11)


def check(text: str, feeds: dict[str, tuple[int, ...]], positive: str = "", opset: int = 18) -> Plan:
    """The plan of a graph on random numbers, those of inputs `positive` without a sign."""
    model = parsed(text, opset=opset)
    region = replace(whole(model), channels_last=True)
    arrays = {name: RNG.standard_normal(shape).astype(np.float32) for name, shape in feeds.items()}
    arrays |= {name: np.abs(arrays[name]) for name in positive}
    return check_region(region, all_values(model, arrays, [region]), 1e-5)
