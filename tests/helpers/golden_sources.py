"""The operators whose generated sources are kept as golden files: one of each kind of kernel, on each target."""

from __future__ import annotations

from collections.abc import Iterator

from fusion_cli.emit import emit
from fusion_cli.plan import plan_region
from fusion_cli.types import Target
from tests.goldens import Goldens
from tests.helpers.golden_plans import GRAPHS, model_of
from tests.helpers.plan_builder import fused_op
from tests.helpers.region_tools import whole

OPERATORS = {
    "pointwise": "pointwise",
    "rotary": "rotary",
    "layer_norm": "layer_norm",
    "softmax": "softmax_masked",
    "linear": "linear_epilogue",
    "linear_float16": "linear_float16",
    "linear_pair": "linear_pair",
    "linear_products": "gated_by_two_products",
    "linear_gated": "gated_float16",
    "conv": "conv_block",
    "attention": "attention_masked",
    "attention_float16": "attention_float16",
}
"""Names, and the models that they are made of."""

CPU, HOPPER, AMPERE = Target("cpu", "cpu"), Target("sm_90a", "cuda", "sm_90a"), Target("sm_80", "cuda", "sm_80")


def source(name: str, target: Target) -> str:
    """The text of an operator's source file."""
    op = fused_op(name.title().replace("_", ""), plan_region(whole(model_of(GRAPHS[OPERATORS[name]]))))
    return emit(op, target).text


def _goldens() -> Iterator[tuple[str, tuple[str, Target]]]:
    for name in OPERATORS:
        yield f"{name}.cc", (name, CPU)
        yield f"{name}.sm_90a.cu", (name, HOPPER)
        if source(name, AMPERE) != source(name, HOPPER).replace("sm_90a", "sm_80"):
            yield f"{name}.sm_80.cu", (name, AMPERE)


GOLDENS: Goldens = {file: lambda of=of: source(*of) for file, of in _goldens()}
