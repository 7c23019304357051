"""Plans that exercise every kind of CUDA stage, built by hand so that no other stage of the compiler is involved; those
with slices and joins, and one of rows that are a product's, by the region compiler."""

from __future__ import annotations

import itertools

from fusion_cli.plan import plan_region
from tests.helpers.cuda_attention_plans import attention, bare, causal, grouped, lowering, window
from tests.helpers.cuda_case import Case, apart, merged
from tests.helpers.cuda_conv_plans import conv, conv_last, conv_lasts
from tests.helpers.cuda_layer_plans import ended, layer, rotated
from tests.helpers.cuda_moment_plans import moments
from tests.helpers.cuda_pool_plans import pools
from tests.helpers.cuda_product_plans import (
    abreast,
    adding,
    batched,
    chain,
    gated,
    gelu,
    knowing,
    linear,
    products,
)
from tests.helpers.cuda_row_plans import (
    columns,
    far_norm,
    integers,
    layer_norm,
    looked_up,
    pointwise,
    ranges,
    scaled,
    softmax,
    transpose,
)
from tests.helpers.norm_graphs import KEPT_SUM
from tests.helpers.region_tools import whole
from tests.helpers.slice_graphs import (
    CACHE,
    GATED_PARTS,
    GRAPHS,
    NORM_OF_PARTS,
    PACKED_ATTENTION,
    REVERSED,
    ROPE_HALVES,
    ROPE_PAIRS,
    TURNED_PARTS,
    Graph,
)

ATTENTIONS = ("attention", "masked", "alibi", "causal", "lowered", "window", "bare")
"""How the names of attention's cases begin."""


def compiled(graph: Graph, dtype: str) -> Case:
    """A graph, planned by the region compiler."""
    region = whole(graph.model({"float32": "float"}.get(dtype, dtype)))
    plan = plan_region(region)
    sizes = []
    for chosen in graph.sizes:
        named: dict[str, int] = {}
        for value, index in zip(region.inputs, plan.inputs, strict=True):
            known = plan.tensors[index].shape if index >= 0 else ()
            named |= {
                d: chosen[str(own)] for d, own in zip(known, value.shape or (), strict=False) if isinstance(d, str)
            }
        sizes.append(named)
    return Case(f"{graph.name}_{dtype}", plan, tuple(sizes), {0: ((0, 0, 0), float("nan"))})


def all_cases() -> list[Case]:
    cases = [pointwise(d) for d in ("float32", "float16", "bfloat16")]
    cases += [
        scaled("float16"),
        scaled("float32"),
        integers(),
        layer_norm("float32"),
        layer_norm("float16"),
        layer_norm("bfloat16", 4096),
        layer_norm("float16", 760),
        layer_norm("bfloat16", 17000),
        layer_norm("float16", 56),  # rows of a part of a warp each
        layer_norm("bfloat16", 45),
        layer_norm("float32", 20),
        far_norm("float16"),
        far_norm("bfloat16", 768),
        far_norm("float16", 45),
        far_norm("float32", 768),
        looked_up("float16"),
        ranges("float16"),
        ranges("float32"),
        softmax("float16"),
        softmax("float32"),
        columns("float16", "mean"),
        columns("bfloat16", "max"),
        columns("float32", "sum"),
        transpose("float16"),
        transpose("float32"),
    ]
    cases += [linear(d) for d in ("float32", "float16", "bfloat16")]
    cases += [
        linear("float16", trans_a=True, trans_b=True, narrow=True),
        linear("float16", trans_b=True),
        linear("float32", trans_b=True),
    ]
    cases += [
        adding("float16", "br"),
        adding("float16", "rx"),
        adding("bfloat16", "bx"),
        adding("float32", "b", trans_b=True),
    ]
    cases += [products(d) for d in ("float32", "float16", "bfloat16")]
    cases += [knowing(linear(d), m=m) for d, m in (("float16", 5), ("float16", 40), ("float16", 70), ("float32", 40))]
    cases += [knowing(products("float16"), b=b, s=4) for b in (3, 20)]
    cases += [
        knowing(linear("bfloat16"), m=257, n=384, k=520),
        knowing(linear("float32"), m=128, n=192, k=64),
        knowing(adding("float16", "br"), b=1, s=17, k=1032, n=24),
        knowing(abreast("float16"), b=2, s=50, k=104, n=200, m=72),
        knowing(gated("float16"), b=2, s=50, k=104, n=200),
        # By tiles whose operands change places.
        knowing(linear("bfloat16", trans_b=True), m=1999, n=392, k=520),
        knowing(adding("float16", "br"), b=3, s=525, k=520, n=776),
        knowing(abreast("float16"), b=3, s=301, k=520, n=1032, m=264),
    ]
    cases += [gelu(d) for d in ("float16", "bfloat16", "float32")]
    cases += [abreast("float16"), abreast("bfloat16", trans_b=True), abreast("float32")]
    cases += [gated("float16"), gated("bfloat16", trans_b=True), gated("float16", kept=True), gated("float32")]
    cases += [layer("float16"), layer("bfloat16"), ended("float16"), rotated("float16"), rotated("bfloat16", kept=True)]
    cases += [batched("float16"), batched("float32"), chain("float16"), chain("float32")]
    cases += [
        attention("float16", 64),
        attention("bfloat16", 128, prob="guard"),
        attention("float16", 128, prob="empty"),
        attention("float16", 80, 40, prob="general", transposed=True),
    ]
    cases += [
        knowing(attention("float16", 64), q=q, k=k)
        for q, k in ((70, 100), (33, 200), (100, 300), (100, 1030), (5, 300))
    ]
    cases += [
        attention("float32", 64, prob="guard"),
        attention("float32", 48, prob="empty"),
        attention("float32", 33, 70, prob="general"),
        attention("float16", 256),
        attention("bfloat16", 96, 40),
        attention("float16", 64, sink=True),
        attention("float16", 64, 128, prob="general"),  # results take more memory than queries
        attention("float32", 48, prob="general", sink=True),
        attention("float32", 64, 128, sink=True),
        attention("float32", 200),
        attention("float32", 16),
    ]
    cases += [
        causal("float16"),
        *lowering(),
        window("float16"),
        window("bfloat16", 128),
        window("float16", 96),
        causal("bfloat16", 80),
        causal("float32"),
        causal("float32", 128),
        bare("float32"),
        bare("float32", 96),
        bare("float32", 256),
        bare("float16", 128),
        bare("bfloat16"),
        bare("float16", 96),
        bare("bfloat16", 32),
        *grouped(),
        conv("float32"),
        conv("float16"),
        *conv_lasts(),
        *pools(),
        *moments(),
    ]
    # One type each, in turn: a kernel is the same for all but for what it reads and writes.
    types = itertools.cycle(("float16", "float32", "bfloat16"))
    cases += [compiled(graph, dtype) for graph, dtype in zip(GRAPHS, types, strict=False)]
    cases += [compiled(KEPT_SUM, "float16"), compiled(GATED_PARTS, "float16"), compiled(TURNED_PARTS, "bfloat16")]
    return cases


def everything(dtype: str) -> Case:
    """All kinds of stage in one operator."""
    cases = [pointwise(dtype), softmax(dtype), linear(dtype, narrow=dtype != "float32")]
    cases.append(attention(dtype, 64, prob="general"))
    if dtype != "bfloat16":
        cases.append(conv(dtype))
    return merged(f"everything_{dtype}", cases)


def vendors_too(dtype: str) -> Case:
    """Products and convolutions, which may be the vendor's, among other kernels: enough launches for a graph."""
    cases = [
        chain(dtype),
        adding(dtype, "br"),
        conv_last(dtype, "brx", channels=(16, 8), pads=(1, 1, 1, 1)),
        conv_last(dtype, "bt", channels=(8, 8)),
        attention(dtype, 64),
        softmax(dtype),
    ]
    return merged(f"vendors_too_{dtype}", [apart(c, f"c{i}") for i, c in enumerate(cases)])


def sliced(dtype: str) -> Case:
    """Views read and written by every kind of stage that can, in one operator."""
    graphs = (ROPE_HALVES, ROPE_PAIRS, PACKED_ATTENTION, CACHE, NORM_OF_PARTS, REVERSED)
    return merged(f"sliced_{dtype}", [apart(compiled(g, dtype), g.name) for g in graphs])
