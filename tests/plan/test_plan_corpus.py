"""Exported models: every maximal region of every third model is planned and compared with ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from benchmarks.runs import default_folder
from fusion_cli.errors import Unsupported
from fusion_cli.plan import plan_region
from fusion_cli.planir.stages import Attention
from fusion_cli.types import Region
from tests.helpers.graphs import simplified_file
from tests.helpers.reason_codes import explained
from tests.helpers.region_tools import all_values, check_region, maximal_regions

CORPUS = default_folder()
MODELS = sorted(CORPUS.glob("*.onnx"))[::3]
_EXACT = frozenset({ir.DataType.INT64, ir.DataType.INT32, ir.DataType.BOOL})

pytestmark = [
    pytest.mark.skipif(not MODELS, reason="no corpus of exported models (FUSION_CORPUS)"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]


def tolerance(value: ir.Value, model: ir.Model) -> float:
    """Loose where anything of the model is in half precision."""
    types = {v.dtype for v in (value, *model.graph.initializers.values())}
    if ir.DataType.BFLOAT16 in types:
        return 8e-2
    return 2e-2 if ir.DataType.FLOAT16 in types else 1e-3


def turned_down(region: Region) -> bool:
    """Whether the region has no plan, for a documented reason."""
    try:
        plan_region(region)
    except Unsupported as reason:
        return reason.code in explained()["plan"]
    return False


@pytest.mark.parametrize("path", MODELS, ids=lambda p: p.stem)
def test_regions_of_model(path: Path) -> None:
    model = simplified_file(path)
    regions = maximal_regions(model)
    with np.load(path.with_suffix(".npz")) as stored:
        feeds = {name[4:]: stored[name] for name in stored.files if name.startswith("in__")}
    try:
        values = all_values(model, feeds, regions)
    except Exception as error:  # ONNX Runtime has no CPU kernel for some bfloat16 operators
        if "NOT_IMPLEMENTED" not in str(error):
            raise
        pytest.skip("ONNX Runtime cannot run the model on CPU")
    for region in regions:
        if not turned_down(region):
            check_region(region, values, tolerance(region.outputs[0], model), np.float32)


@pytest.mark.parametrize("name", ["zoo.preln_silu.ts17.dynamic", "zoo.preln_silu.dyn18.static",
                                  "zoo.preln_silu.dyn23.dynamic", "zoo.bert_classic.ts17.dynamic"])  # fmt: skip
def test_transformer_layers_are_nine_kernels_each(name: str) -> None:
    model = simplified_file(CORPUS / f"{name}.onnx")
    plan = plan_region(max(maximal_regions(model), key=lambda r: len(r.nodes)))
    assert sum(isinstance(s, Attention) for s in plan.stages) == 2
    assert len(plan.stages) in (18, 19)
    assert plan.buffers <= 5
