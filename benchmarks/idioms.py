"""Which rules of ours and which operators of others stand for an idiom, and what traps must not be taken for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import onnx

IDIOMS: Mapping[str, tuple[str, ...]] = {
    "attention": ("Attention",),
    "layernorm": ("LayerNorm",),
    "rmsnorm": ("RMSNorm",),
    "groupnorm": ("GroupNorm", "InstanceNorm"),  # with a group for each channel it is that
    "gelu_erf": ("GeluErf",),
    "gelu_tanh": ("GeluTanh",),
    "quickgelu": ("QuickGelu",),
    "silu": ("Silu",),
    "mish": ("Mish",),
    "hardswish": ("HardSwish",),
    "rope": ("RotaryEmbedding",),
    "swiglu": ("SwiGLU",),
    "geglu": ("GEGLU",),
    "linear": ("Linear",),
}
"""What a model's modules truly contain -> the idiom rules that recognise it in the graph. Not here: what is a single
operator in every graph (convolution, ReLU), and batch normalization, which exporters fold into the convolution."""

OPERATORS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(
        ("Attention", "MultiHeadAttention", "GroupQueryAttention", "PackedAttention", "PackedMultiHeadAttention",
         "DecoderMaskedSelfAttention", "DecoderMaskedMultiHeadAttention", "LongformerAttention", "SparseAttention"),
        ("attention",),
    ),
    **dict.fromkeys(("LayerNormalization", "SkipLayerNormalization", "EmbedLayerNormalization"), ("layernorm",)),
    **dict.fromkeys(
        ("RMSNormalization", "SimplifiedLayerNormalization", "SkipSimplifiedLayerNormalization"), ("rmsnorm",)
    ),
    **dict.fromkeys(("GroupNormalization", "GroupNorm", "SkipGroupNorm"), ("groupnorm",)),
    "BiasGelu": ("gelu_erf",),
    **dict.fromkeys(("FastGelu", "GemmFastGelu"), ("gelu_tanh",)),
    "BiasSplitGelu": ("gelu_erf", "geglu"),
    "Swish": ("silu",),
    "Mish": ("mish",),
    "HardSwish": ("hardswish",),
    "RotaryEmbedding": ("rope",),
    **dict.fromkeys(("Gemm", "FusedGemm", "GemmFloat8", "MatMulNBits"), ("linear",)),
}  # fmt: skip
"""Operator, of any domain -> the idioms that one node of it is. `_by_attributes` adds what attributes decide."""

TRAPS: Mapping[str, Mapping[str, int]] = {
    # Softmax over an axis that is not the keys': weights that do not sum to one over what is summed.
    "attn_softmax_wrong_axis_trap": {"attention": 0},
    # True attention, whose scale is not 1 / sqrt(head size): only the numbers can tell.
    "attn_scale_trap": {"attention": 1},
    # Variance divided by n - 1.
    "ln_hand_unbiased_trap": {"layernorm": 0, "rmsnorm": 0},
    # Erf of x times something that is not 1 / sqrt(2).
    "mlp_not_gelu_scale": {"gelu_erf": 0, "gelu_tanh": 0, "quickgelu": 0},
    # Near relatives: none of them is a SiLU, a Mish, a HardSwish or a GELU.
    **{
        name: {"silu": 0, "quickgelu": 0, "mish": 0, "hardswish": 0, "gelu_erf": 0, "gelu_tanh": 0}
        for name in ("mlp_sigmoid", "mlp_softplus", "mlp_relu6", "mlp_elu", "mlp_leakyrelu", "mlp_relu2")
    },
    # Tanh GELU, written out, in Megatron's numbers or as one operator, is not erf GELU: 5e-4 apart.
    **{
        name: {"gelu_erf": 0, "gelu_tanh": 1}
        for name in ("mlp_gelu_megatron", "mlp_gelu_tanh_builtin", "linear_2d_gelu_tanh", "geglu")
    },
    # x sigmoid(1.702 x) in the gate: no SiLU.
    "swiglu_clamped": {"silu": 0, "quickgelu": 1},
    # A norm over two axes, an intermediate that is an output or is used twice, weights and a convolution that are
    # shared: what is there may be named, and the numbers must stay.
    "ln_two_axes": {"layernorm": 1},
    "intermediate_outputs": {"layernorm": 1, "gelu_erf": 1},
    "gelu_input_used_twice": {"gelu_erf": 1},
    "shared_weights": {"layernorm": 3, "gelu_erf": 1},
    "conv_bn_shared_conv": {},
}
"""Architecture -> the most instances of an idiom that may be reported for it."""


def in_operators(model: onnx.ModelProto) -> Counter[str]:
    """Idioms that the operators of a model stand for, counted generously: every operator that is the idiom by its
    meaning, whoever wrote it, and all the idioms that one operator takes together."""
    constant_ranks = ranks_of_constants(model.graph)
    found: Counter[str] = Counter()
    for node in nodes(model.graph):
        found.update(OPERATORS.get(node.op_type, ()))
        found.update(_by_attributes(node))
        found["linear"] += _linears(node, constant_ranks)
    return found


def nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """All nodes, those of subgraphs included."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for body in (attribute.g, *attribute.graphs):
                yield from nodes(body)


def ranks_of_constants(graph: onnx.GraphProto) -> dict[str, int]:
    """Rank of every initializer and constant, transposed or cast ones included."""
    ranks = {t.name: len(t.dims) for t in graph.initializer}
    for node in nodes(graph):
        if node.op_type == "Constant":
            ranks[node.output[0]] = len(attributes(node)["value"].dims) if "value" in attributes(node) else 0
        elif node.op_type in ("Transpose", "Cast", "Identity", "DequantizeLinear") and node.input[0] in ranks:
            ranks[node.output[0]] = ranks[node.input[0]]
    return ranks


def attributes(node: onnx.NodeProto) -> dict[str, Any]:
    return {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}


def _by_attributes(node: onnx.NodeProto) -> Iterator[str]:
    values = attributes(node)
    if node.op_type == "Gelu":
        yield "gelu_tanh" if values.get("approximate") == b"tanh" else "gelu_erf"
    if node.op_type == "QuickGelu":
        yield "silu" if values.get("alpha", 1.702) == 1.0 else "quickgelu"
    if node.op_type in ("GroupNorm", "SkipGroupNorm") and values.get("activation"):
        yield "silu"
    if values.get("do_rotary"):
        yield from ("rope", "rope")


def _linears(node: onnx.NodeProto, constant_ranks: Mapping[str, int]) -> int:
    """Linear layers in products with a weight: a matrix known before the model runs."""
    if node.op_type in ("MatMul", "FusedMatMul"):
        return int([constant_ranks.get(name) == 2 for name in node.input[:2]].count(True) == 1)
    if node.op_type == "Einsum" and len(node.input) == 2:
        return int([constant_ranks.get(name, 0) >= 2 for name in node.input].count(True) == 1)
    # The operator of domain com.microsoft does the projections of q, k and v as well.
    weighted = node.op_type == "Attention" and node.domain == "com.microsoft"
    return 3 * int(weighted and constant_ranks.get(node.input[1]) == 2)
