"""A part of a diffusion model, as large as the first levels of Stable Diffusion's: residual blocks of convolutions with
norms of groups, and transformer blocks over the positions of an image."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

GROUPS = 32


class Residual(nn.Module):
    """x [batch, channels, height, width], time [batch, steps] -> [batch, made, height, width]."""

    def __init__(self, channels: int, made: int, steps: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(GROUPS, channels), nn.GroupNorm(GROUPS, made)
        self.first, self.second = nn.Conv2d(channels, made, 3, padding=1), nn.Conv2d(made, made, 3, padding=1)
        self.time = nn.Linear(steps, made)
        self.skip = nn.Identity() if channels == made else nn.Conv2d(channels, made, 1)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        h = self.first(functional.silu(self.norm1(x))) + self.time(functional.silu(time))[:, :, None, None]
        y: Tensor = self.skip(x) + self.second(functional.silu(self.norm2(h)))
        return y


class Attended(nn.Module):
    """Self-attention over the positions of an image, and a gated feed-forward: of the shape of what comes in."""

    def __init__(self, channels: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.GroupNorm(GROUPS, channels)
        self.norm1, self.norm2 = nn.LayerNorm(channels), nn.LayerNorm(channels)
        self.into, self.back = nn.Conv2d(channels, channels, 1), nn.Conv2d(channels, channels, 1)
        self.q, self.k, self.v = (nn.Linear(channels, channels, bias=False) for _ in range(3))
        self.out, self.up = nn.Linear(channels, channels), nn.Linear(channels, 8 * channels)
        self.down = nn.Linear(4 * channels, channels)

    def forward(self, image: Tensor) -> Tensor:
        batch, channels, height, width = image.shape
        x = self.into(self.norm(image)).permute(0, 2, 3, 1).reshape(batch, height * width, channels)
        y = self.norm1(x)
        q, k, v = (
            p(y).view(batch, -1, self.heads, channels // self.heads).transpose(1, 2) for p in (self.q, self.k, self.v)
        )
        mixed = functional.scaled_dot_product_attention(q, k, v)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, height * width, channels))
        gate, linear = self.up(self.norm2(x)).chunk(2, dim=-1)
        x = x + self.down(linear * functional.gelu(gate))
        again: Tensor = self.back(x.reshape(batch, height, width, channels).permute(0, 3, 1, 2)) + image
        return again


class Denoiser(nn.Module):
    """x [batch, 4, side, side], time [batch, 4 * width] -> as x; one level down and up again."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        steps = 4 * width
        self.into, self.out = nn.Conv2d(4, width, 3, padding=1), nn.Conv2d(width, 4, 3, padding=1)
        self.smaller = nn.Conv2d(width, width, 3, stride=2, padding=1)
        self.larger = nn.Conv2d(2 * width, 2 * width, 3, padding=1)
        self.blocks = nn.ModuleList(
            [Residual(width, width, steps), Residual(width, 2 * width, steps), Residual(3 * width, width, steps)]
        )
        self.attended = nn.ModuleList([Attended(width, heads), Attended(2 * width, heads), Attended(width, heads)])
        self.norm = nn.GroupNorm(GROUPS, width)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        kept = self.attended[0](self.blocks[0](self.into(x), time))
        low = self.attended[1](self.blocks[1](self.smaller(kept), time))
        whole = self.larger(functional.interpolate(low, scale_factor=2.0, mode="nearest"))
        high = self.attended[2](self.blocks[2](torch.cat([whole, kept], dim=1), time))
        y: Tensor = self.out(functional.silu(self.norm(high)))
        return y
