"""The PyTorch modules that the example models were exported from (needs torch; only `export.py` and the GPU
benchmark import this)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class DecomposedLayerNorm(nn.Module):
    """Layer normalization written out as means and a square root, as older code bases do."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        variance = (centred**2).mean(-1, keepdim=True)
        return centred / torch.sqrt(variance + 1e-5) * self.weight + self.bias


class TransformerLayer(nn.Module):
    """Pre-norm transformer layer: x [batch, seq, width] -> the same shape.

    `decomposed` writes norm, attention and SiLU as single operations; otherwise PyTorch's own modules are used.
    """

    def __init__(self, width: int, heads: int, ffn: int, *, decomposed: bool) -> None:
        super().__init__()
        norm = DecomposedLayerNorm if decomposed else nn.LayerNorm
        self.heads, self.head_dim, self.decomposed = heads, width // heads, decomposed
        self.norm1, self.norm2 = norm(width), norm(width)
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, ffn), nn.Linear(ffn, width)

    def attend(self, x: Tensor) -> Tensor:
        batch, seq, width = x.shape
        q, k, v = (
            linear(x).view(batch, seq, self.heads, self.head_dim).transpose(1, 2) for linear in (self.q, self.k, self.v)
        )
        if self.decomposed:
            scores = q @ k.transpose(-2, -1) / self.head_dim**0.5
            mixed = torch.softmax(scores, dim=-1) @ v
        else:
            mixed = functional.scaled_dot_product_attention(q, k, v)
        out: Tensor = self.out(mixed.transpose(1, 2).reshape(batch, seq, width))
        return out

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attend(self.norm1(x))
        h = self.up(self.norm2(x))
        h = h * torch.sigmoid(h) if self.decomposed else functional.silu(h)
        y: Tensor = x + self.down(h)
        return y


class ConvStack(nn.Sequential):
    """Convolution, batch normalization, ReLU, several times: image [batch, 3, height, width] -> features."""

    def __init__(self, widths: tuple[int, ...] = (64, 64, 128, 128, 256)) -> None:
        stages: list[nn.Module] = []
        channels = 3
        for width in widths:
            stem = channels == 3
            grows = width != channels
            stages += [
                nn.Conv2d(channels, width, 7 if stem else 3, 2 if grows else 1, 3 if stem else 1, bias=False),
                nn.BatchNorm2d(width),
                nn.ReLU(),
            ]
            channels = width
        super().__init__(*stages)


class Snake(nn.Module):
    """x + sin(a x)^2 / a with one trainable a per channel: the periodic activation of audio generators."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.ones(1, channels, 1))

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.sin(self.alpha * x) ** 2 / self.alpha


class SnakeBlock(nn.Sequential):
    """Convolution, Snake, convolution: signal [batch, 1, time] -> the same shape."""

    def __init__(self, channels: int = 32) -> None:
        super().__init__(nn.Conv1d(1, channels, 7, padding=3), Snake(channels), nn.Conv1d(channels, 1, 7, padding=3))


@torch.no_grad()
def randomize(module: nn.Module, seed: int = 0) -> nn.Module:
    """Give norms scales, shifts and statistics that differ from one and zero, so that none can be dropped unseen.

    These are the parameters that are vectors."""
    generator = torch.Generator().manual_seed(seed)
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        if max(tensor.shape, default=0) != tensor.numel() or not tensor.is_floating_point():
            continue
        centre = 1.0 if name.endswith(("weight", "running_var", "alpha")) else 0.0
        tensor.uniform_(centre - 0.2, centre + 0.2, generator=generator)
    return module.eval()
