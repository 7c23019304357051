"""The modules that the GPU benchmarks export and time, with random weights: PyTorch's own layers, and models of
transformers and torchvision (needs all three)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.gpu_denoiser import Denoiser
from benchmarks.gpu_specs import Spec
from examples.layers import TransformerLayer

DTYPES = {"f16": torch.float16, "f32": torch.float32}
OPSET = 18


@dataclass(frozen=True)
class Example:
    """A module, and inputs for it by the names of its arguments, in their order."""

    module: nn.Module
    inputs: Mapping[str, Tensor]


class PackedLayer(nn.Module):
    """Pre-norm transformer layer whose queries, keys and values are one product: x [batch, seq, width] -> the same
    shape."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.packed, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, seq, width = x.shape
        parts = self.packed(self.norm1(x)).chunk(3, dim=-1)
        q, k, v = (part.view(batch, seq, self.heads, width // self.heads).transpose(1, 2) for part in parts)
        mixed = functional.scaled_dot_product_attention(q, k, v)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, seq, width))
        y: Tensor = x + self.down(functional.silu(self.up(self.norm2(x))))
        return y


class Encoder(nn.Module):
    """A model of transformers whose one input is `x` (ids or images): its last hidden state."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.model(x, return_dict=False)[0]
        return found


class MaskedEncoder(Encoder):
    """The same with a padding mask, 1 for tokens that are there."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:  # type: ignore[override]
        found: Tensor = self.model(x, attention_mask=mask, return_dict=False)[0]
        return found


class DecoderStep(nn.Module):
    """One token of a decoder: its embedding and, layer by layer, cached keys and values [batch, heads, tokens, depth]
    -> the last hidden state and the cache with this token's."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, *past: Tensor) -> tuple[Tensor, ...]:
        from transformers.cache_utils import DynamicCache, DynamicLayer

        cache = DynamicCache()
        for keys, values in zip(past[::2], past[1::2], strict=True):
            layer = DynamicLayer()
            # Set, not updated from empty ones: that would be a Concat with nothing in every export.
            layer.keys, layer.values, layer.is_initialized = keys, values, True
            layer.dtype, layer.device = keys.dtype, keys.device
            cache.layers.append(layer)
        found = self.model(inputs_embeds=x, past_key_values=cache, use_cache=True)
        return (found.last_hidden_state, *(t for c in found.past_key_values.layers for t in (c.keys, c.values)))


def layer(spec: Spec) -> Example:
    sizes = {"width": 64, "heads": 4} if spec.is_tiny else spec.config
    return Example(PackedLayer(**sizes), {"x": torch.randn(spec.batch, spec.seq, sizes["width"])})


def decomposed(spec: Spec) -> Example:
    sizes = {"width": 64, "heads": 4} if spec.is_tiny else spec.config
    module = TransformerLayer(**sizes, ffn=4 * sizes["width"], decomposed=True)
    return Example(module, {"x": torch.randn(spec.batch, spec.seq, sizes["width"])})


_TINY_ENCODER = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}


def bert(spec: Spec) -> Example:
    return Example(Encoder(_bert(spec)), {"x": _ids(spec, 30522)})


def masked_bert(spec: Spec) -> Example:
    lengths = torch.linspace(spec.seq, spec.seq // 2, spec.batch).long()
    mask = (torch.arange(spec.seq) < lengths[:, None]).long()
    return Example(MaskedEncoder(_bert(spec)), {"x": _ids(spec, 30522), "mask": mask})


def _bert(spec: Spec) -> nn.Module:
    from transformers import BertConfig, BertModel

    config = BertConfig(**(_TINY_ENCODER if spec.is_tiny else spec.config))
    return BertModel(config, add_pooling_layer=False)


def vit(spec: Spec) -> Example:
    from transformers import ViTConfig, ViTModel

    config = ViTConfig(**(_TINY_ENCODER | {"image_size": 32} if spec.is_tiny else spec.config))
    images = torch.randn(spec.batch, 3, config.image_size, config.image_size)
    return Example(Encoder(ViTModel(config, add_pooling_layer=False)), {"x": images})


def qwen(spec: Spec) -> Example:
    """Two layers as wide as those of Qwen2.5-7B."""
    from transformers import Qwen2Config, Qwen2Model

    sizes = {"hidden_size": 3584, "intermediate_size": 18944, "num_attention_heads": 28, "num_key_value_heads": 4}
    if spec.is_tiny:
        sizes = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2}
    # Few words: their table is no part of what is compared.
    config = Qwen2Config(num_hidden_layers=2, vocab_size=1000, use_cache=False, **sizes, **spec.config)
    return Example(Encoder(Qwen2Model(config)), {"x": _ids(spec, 1000)})


def decoder_step(spec: Spec) -> Example:
    """Four layers with grouped heads and SwiGLU."""
    from transformers import LlamaConfig, LlamaModel

    sizes = {"hidden_size": 2048, "intermediate_size": 5504, "num_attention_heads": 16, "num_key_value_heads": 4}
    if spec.is_tiny:
        sizes = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2}
    config = LlamaConfig(num_hidden_layers=4, vocab_size=8, max_position_embeddings=8192, **sizes, **spec.config)
    shape = (spec.batch, config.num_key_value_heads, spec.cached, config.hidden_size // config.num_attention_heads)
    past = {f"past_{what}{i}": torch.randn(shape) for i in range(4) for what in ("k", "v")}
    x = torch.randn(spec.batch, 1, config.hidden_size)
    return Example(DecoderStep(LlamaModel(config)), {"x": x, **past})


def gpt2(spec: Spec) -> Example:
    """Four layers of GPT-2: queries, keys and values are one product."""
    from transformers import GPT2Config, GPT2Model

    sizes = {"n_embd": 64, "n_head": 4} if spec.is_tiny else {}
    config = GPT2Config(n_layer=4, vocab_size=1000, use_cache=False, **sizes)
    return Example(Encoder(GPT2Model(config)), {"x": _ids(spec, 1000)})


def images(spec: Spec) -> Example:
    """A network of torchvision's, of the name that the row has."""
    import torchvision

    module = getattr(torchvision.models, "resnet18" if spec.is_tiny else spec.config["network"])()
    side = 32 if spec.is_tiny else 224
    return Example(module, {"x": torch.randn(spec.batch, 3, side, side)})


def language(spec: Spec) -> Example:
    """A language model of transformers, of the name and the sizes that the row has; few words, as for Qwen's."""
    tiny = _TINY_ENCODER | {"model": "qwen3", "num_key_value_heads": 2, "head_dim": 16}
    model = _named(tiny if spec.is_tiny else spec.config, vocab_size=1000, use_cache=False)
    return Example(Encoder(model), {"x": _ids(spec, 1000)})


def vision(spec: Spec) -> Example:
    """A vision model of transformers, of the name that the row has."""
    tiny = {"model": "convnextv2", "hidden_sizes": [16, 32, 32, 32], "depths": [1, 1, 1, 1]}
    side = 32 if spec.is_tiny else 224
    model = _named(tiny if spec.is_tiny else spec.config)
    return Example(Encoder(model), {"x": torch.randn(spec.batch, 3, side, side)})


def _named(config: Mapping[str, Any], **others: Any) -> nn.Module:
    from transformers import AutoConfig, AutoModel

    sizes = {name: size for name, size in config.items() if name != "model"}
    found: nn.Module = AutoModel.from_config(AutoConfig.for_model(config["model"], **sizes, **others))
    return found


def audio(spec: Spec) -> Example:
    """Four layers of wav2vec 2.0 on so many numbers of sound; `large`: with a norm after each convolution."""
    from transformers import Wav2Vec2Config, Wav2Vec2Model

    sizes: dict[str, Any] = {"num_hidden_layers": 4}
    if spec.config.get("large"):
        sizes |= {"hidden_size": 1024, "num_attention_heads": 16, "intermediate_size": 4096, "conv_bias": True}
        sizes |= {"feat_extract_norm": "layer", "do_stable_layer_norm": True}
    if spec.is_tiny:
        sizes |= _TINY_ENCODER | {"conv_dim": [32] * 7, "num_conv_pos_embedding_groups": 4}
    length = 1600 if spec.is_tiny else spec.seq
    return Example(Encoder(Wav2Vec2Model(Wav2Vec2Config(**sizes))), {"x": torch.randn(spec.batch, length)})


def denoiser(spec: Spec) -> Example:
    sizes = {"width": 32, "heads": 2} if spec.is_tiny else {"width": 320, "heads": 8}
    side = 8 if spec.is_tiny else 64
    inputs = {"x": torch.randn(spec.batch, 4, side, side), "time": torch.randn(spec.batch, 4 * sizes["width"])}
    return Example(Denoiser(**sizes), inputs)


def _ids(spec: Spec, words: int) -> Tensor:
    return torch.randint(0, words, (spec.batch, spec.seq))


KINDS: Mapping[str, Callable[[Spec], Example]] = {
    f.__name__: f
    for f in (
        layer,
        decomposed,
        bert,
        masked_bert,
        vit,
        qwen,
        gpt2,
        decoder_step,
        images,
        language,
        vision,
        audio,
        denoiser,
    )
}


@torch.no_grad()
def build(spec: Spec) -> Example:
    """The module of a model and inputs for it, on the CPU, in its type; the same on every call."""
    torch.manual_seed(0)
    made = KINDS[spec.kind](spec)
    for parameter in made.module.parameters():
        if parameter.dim() == 1:  # biases of zero and scales of one could be dropped
            parameter.add_(0.1 * torch.randn_like(parameter))
    dtype = DTYPES[spec.dtype]
    inputs = {name: x.to(dtype) if x.is_floating_point() else x for name, x in made.inputs.items()}
    return Example(made.module.to(dtype).eval(), inputs)


def export(spec: Spec, path: Path) -> None:
    """Write the model to `path`, its weights beside it."""
    made = build(spec)
    shapes: dict[str, Any] | None = None
    if spec.dynamic:
        axes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("seq")}
        shapes = dict.fromkeys(inspect.signature(made.module.forward).parameters, axes)
    with torch.no_grad():
        torch.onnx.export(
            made.module,
            tuple(made.inputs.values()),
            path,
            dynamo=True,
            opset_version=OPSET,
            input_names=list(made.inputs),
            dynamic_shapes=shapes,
            external_data=True,
            verbose=False,
        )
