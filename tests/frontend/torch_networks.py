"""Small PyTorch networks with seeded weights: an encoder, attention with masks, a U-Net, a detector."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


class Encoder(nn.Module):
    """Two layers of a transformer encoder on embedded tokens."""

    def __init__(self, width: int = 32, norm_first: bool = False, activation: str = "gelu") -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, width)
        layer = nn.TransformerEncoderLayer(
            width, 4, 64, activation=activation, batch_first=True, norm_first=norm_first, dropout=0.1
        )
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.layers(self.embedding(tokens))


class MaskedAttention(nn.Module):
    """Causal attention with padded keys masked, by torch's fused operator and by matrix multiplications."""

    def __init__(self, width: int = 24, heads: int = 3) -> None:
        super().__init__()
        self.heads = heads
        self.project = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor, keep: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        batch, length, width = x.shape
        q, k, v = (
            part.reshape(batch, length, self.heads, -1).transpose(1, 2) for part in self.project(x).chunk(3, dim=-1)
        )
        causal = torch.ones(length, length, dtype=torch.bool).tril()
        allowed = causal & keep[:, None, None, :]
        fused = functional.scaled_dot_product_attention(q, k, v, attn_mask=allowed)
        scores = (q @ k.transpose(-1, -2)) / (width // self.heads) ** 0.5
        weights = scores.masked_fill(~allowed, float("-inf")).softmax(dim=-1)
        return self.out(fused.transpose(1, 2).reshape(batch, length, width)), weights @ v


class UNet(nn.Module):
    """Two levels down and up, with skip connections; upsampling by transposed convolution and by interpolation."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()

        def block(before: int, after: int) -> nn.Module:
            return nn.Sequential(nn.Conv2d(before, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.SiLU())

        self.first, self.second, self.third = block(3, width), block(width, 2 * width), block(2 * width, 4 * width)
        self.up = nn.ConvTranspose2d(4 * width, 2 * width, 2, stride=2)
        self.join, self.last = block(4 * width, 2 * width), block(3 * width, width)
        self.norm, self.head = nn.GroupNorm(4, width), nn.Conv2d(width, 2, 1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        a = self.first(image)
        b = self.second(functional.max_pool2d(a, 2))
        c = self.third(functional.avg_pool2d(b, 2))
        b = self.join(torch.cat([self.up(c), b], dim=1))
        wide = functional.interpolate(b, scale_factor=2, mode="bilinear", align_corners=False)
        return self.head(self.norm(self.last(torch.cat([wide, a], dim=1))))


class Detector(nn.Module):
    """A backbone with two scales, heads for boxes and classes, and the best candidates of both."""

    def __init__(self, classes: int = 5, width: int = 8) -> None:
        super().__init__()

        def down(before: int, after: int) -> nn.Module:
            return nn.Sequential(
                nn.Conv2d(before, before, 3, stride=2, padding=1, groups=before),
                nn.Conv2d(before, after, 1),
                nn.BatchNorm2d(after),
                nn.Hardswish(),
            )

        self.stem, self.fine, self.coarse = down(3, width), down(width, width), down(width, width)
        self.lateral = nn.Conv2d(width, width, 1)
        self.boxes, self.classes = nn.Conv2d(width, 4, 3, padding=1), nn.Conv2d(width, classes, 3, padding=1)

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        fine = self.fine(self.stem(image))
        coarse = self.coarse(fine)
        fine = fine + functional.interpolate(self.lateral(coarse), scale_factor=2, mode="nearest")
        boxes = torch.cat([self.boxes(level).flatten(2) for level in (fine, coarse)], dim=2).transpose(1, 2)
        scores = torch.cat([self.classes(level).flatten(2) for level in (fine, coarse)], dim=2).transpose(1, 2)
        best, places = scores.sigmoid().amax(dim=2).topk(6, dim=1)
        corners = torch.cat(
            [boxes[..., :2] - boxes[..., 2:].exp() / 2, boxes[..., :2] + boxes[..., 2:].exp() / 2], dim=2
        )
        return torch.gather(corners, 1, places[..., None].expand(-1, -1, 4)), best
