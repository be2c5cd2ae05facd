"""PyTorch networks with seeded weights, of the kinds that vision and language models consist of.

Each can be built in any size: the benchmarks use realistic sizes, tests small and awkward ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional


class Encoder(nn.Module):
    """Layers of BERT's encoder on embedded tokens with a padding mask, using torch's fused attention."""

    def __init__(self, width: int, heads: int, layers: int) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, activation="gelu", batch_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        # Layers begin as copies of one; equal weights would be stored once, and stay in the last-level cache.
        for parameter in self.layers.parameters():
            if parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)

    def forward(self, embedded: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
        """`embedded`: (batch, tokens, width); `padding`: (batch, tokens), true for padding."""
        return self.layers(embedded, src_key_padding_mask=padding)


class _Attention(nn.Module):
    """Self-attention by matrix multiplications and softmax, with one projection for queries, keys and values."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.project, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, width = x.shape
        q, k, v = self.project(x).reshape(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) * (width // self.heads) ** -0.5
        return self.out((scores.softmax(dim=-1) @ v).transpose(1, 2).reshape(batch, tokens, width))


class _Block(nn.Module):
    """A layer of a vision transformer, pre-norm."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.first, self.attention, self.second = nn.LayerNorm(width), _Attention(width, heads), nn.LayerNorm(width)
        self.wide = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.first(x))
        return x + self.wide(self.second(x))


class VisionTransformer(nn.Module):
    """Vision transformer: patch embedding, class token, position embeddings, pre-norm layers, classifier."""

    def __init__(self, image: int, patch: int, width: int, heads: int, layers: int, classes: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, stride=patch)
        self.token = nn.Parameter(torch.randn(1, 1, width))
        self.positions = nn.Parameter(torch.randn(1, (image // patch) ** 2 + 1, width) * 0.1)
        self.layers = nn.Sequential(*(_Block(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.patches(image).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], dim=1) + self.positions
        return self.head(self.norm(self.layers(x))[:, 0])


def _twice(before: int, after: int) -> nn.Module:
    steps = []
    for channels in (before, after):
        steps += [nn.Conv2d(channels, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU()]
    return nn.Sequential(*steps)


class UNet(nn.Module):
    """U-Net: an encoder with pooling and a decoder with skip connections; upsampling by `bilinear` resizing or by
    transposed convolution."""

    def __init__(self, width: int, levels: int, bilinear: bool) -> None:
        super().__init__()
        widths = [width << level for level in range(levels + 1)]
        self.down = nn.ModuleList(_twice(before, after) for before, after in zip([3, *widths], widths, strict=False))
        self.rise = nn.ModuleList(
            nn.Sequential(nn.Upsample(scale_factor=2, mode="bilinear"), nn.Conv2d(2 * size, size, 1))
            if bilinear
            else nn.ConvTranspose2d(2 * size, size, 2, stride=2)
            for size in reversed(widths[:-1])
        )
        self.up = nn.ModuleList(_twice(2 * size, size) for size in reversed(widths[:-1]))
        self.head = nn.Conv2d(width, 2, 1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x, skips = self.down[0](image), []
        for block in list(self.down)[1:]:
            skips.append(x)
            x = block(functional.max_pool2d(x, 2))
        for rise, block in zip(self.rise, self.up, strict=True):
            x = block(torch.cat([skips.pop(), rise(x)], dim=1))
        return self.head(x).sigmoid()


class Detector(nn.Module):
    """Detector: a depthwise backbone, a feature pyramid of three scales, shared heads, boxes decoded from distances.

    Returns corners (batch, places, 4), in pixels, and scores (batch, places, classes).
    """

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.stem = self._conv(3, width, 3, 2)
        self.early = nn.Sequential(self._down(width, 2 * width), self._down(2 * width, 4 * width))
        self.scales = nn.ModuleList(self._down(4 * width << level, 8 * width << level) for level in range(2))
        joined = 4 * width
        self.lateral = nn.ModuleList(nn.Conv2d(4 * width << level, joined, 1) for level in range(3))
        self.tower = nn.Sequential(self._conv(joined, joined, 3, 1), self._conv(joined, joined, 3, 1))
        self.boxes, self.scores = nn.Conv2d(joined, 4, 3, padding=1), nn.Conv2d(joined, classes, 3, padding=1)

    @staticmethod
    def _conv(before: int, after: int, size: int, stride: int, groups: int = 1) -> nn.Module:
        conv = nn.Conv2d(before, after, size, stride=stride, padding=size // 2, groups=groups, bias=False)
        return nn.Sequential(conv, nn.BatchNorm2d(after), nn.SiLU())

    @classmethod
    def _down(cls, before: int, after: int) -> nn.Module:
        return nn.Sequential(cls._conv(before, before, 3, 2, before), cls._conv(before, after, 1, 1))

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        levels = [self.early(self.stem(image))]
        for scale in self.scales:
            levels.append(scale(levels[-1]))
        levels = [lateral(level) for lateral, level in zip(self.lateral, levels, strict=True)]
        for fine in (1, 0):
            resized = functional.interpolate(levels[fine + 1], size=levels[fine].shape[2:], mode="nearest")
            levels[fine] = levels[fine] + resized
        corners, scores = [], []
        for number, level in enumerate(levels):
            seen, step = self.tower(level), 8 << number
            reach = self.boxes(seen).flatten(2).transpose(1, 2).exp() * step
            rows, columns = (torch.arange(size, dtype=torch.float32) * step + step / 2 for size in level.shape[2:])
            centre = torch.stack(torch.meshgrid(columns, rows, indexing="xy"), dim=-1).reshape(1, -1, 2)
            corners.append(torch.cat([centre - reach[..., :2], centre + reach[..., 2:]], dim=2))
            scores.append(self.scores(seen).flatten(2).transpose(1, 2).sigmoid())
        return torch.cat(corners, dim=1), torch.cat(scores, dim=1)


class _Inverted(nn.Module):
    """Inverted residual: expansion by `expand`, a depthwise 3x3 convolution, and a linear projection."""

    def __init__(self, before: int, after: int, stride: int, expand: int) -> None:
        super().__init__()
        middle = before * expand
        steps = [] if expand == 1 else [MobileNetV2.conv(before, middle, 1)]
        steps.append(MobileNetV2.conv(middle, middle, 3, stride, middle))
        self.steps = nn.Sequential(*steps, nn.Conv2d(middle, after, 1, bias=False), nn.BatchNorm2d(after))
        self.adds = stride == 1 and before == after

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.steps(x) if self.adds else self.steps(x)


class MobileNetV2(nn.Module):
    """Return torchvision's network of that name: stages of (expansion, channels, repeats, stride)."""

    STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))

    def __init__(self, classes: int, stages: Sequence[tuple[int, int, int, int]] = STAGES) -> None:
        super().__init__()
        steps, before = [self.conv(3, 32, 3, 2)], 32
        for expand, channels, repeats, stride in stages:
            for number in range(repeats):
                steps.append(_Inverted(before, channels, 1 if number else stride, expand))
                before = channels
        self.features = nn.Sequential(*steps, self.conv(before, 4 * before, 1))
        self.head = nn.Linear(4 * before, classes)

    @staticmethod
    def conv(before: int, after: int, size: int, stride: int = 1, groups: int = 1) -> nn.Module:
        conv = nn.Conv2d(before, after, size, stride=stride, padding=size // 2, groups=groups, bias=False)
        return nn.Sequential(conv, nn.BatchNorm2d(after), nn.ReLU6())

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.head(functional.adaptive_avg_pool2d(self.features(image), 1).flatten(1))


@dataclass(frozen=True)
class TorchNetwork:
    """A network and its inputs, in the order of its arguments."""

    module: nn.Module
    inputs: tuple[torch.Tensor, ...]


def tokens(width: int, heads: int, layers: int, count: int, empty: int) -> TorchNetwork:
    """Return an Encoder on `count` tokens, of which the last `empty` are padding."""
    padding = torch.zeros(1, count, dtype=torch.bool)
    padding[:, count - empty :] = True
    return TorchNetwork(Encoder(width, heads, layers), (torch.randn(1, count, width), padding))


def on_image(make: Callable[[], nn.Module], height: int, width: int) -> TorchNetwork:
    """Return the network with one image of three channels."""
    return TorchNetwork(make(), (torch.randn(1, 3, height, width),))


NETWORKS: dict[str, Callable[[], TorchNetwork]] = {
    "bert_128": lambda: tokens(768, 12, 4, 128, 16),
    "bert_384": lambda: tokens(768, 12, 4, 384, 40),
    "vit_small": lambda: on_image(lambda: VisionTransformer(224, 16, 384, 6, 6, 1000), 224, 224),
    "unet": lambda: on_image(lambda: UNet(24, 4, False), 256, 256),
    "unet_bilinear": lambda: on_image(lambda: UNet(24, 4, True), 256, 256),
    "mobilenet_v2": lambda: on_image(lambda: MobileNetV2(1000), 224, 224),
    "detector": lambda: on_image(lambda: Detector(16, 80), 320, 320),
}


def seeded(make: Callable[[], TorchNetwork]) -> TorchNetwork:
    """Return the network in inference mode, with the same weights and inputs in every process; norms have seen some
    data."""
    torch.manual_seed(0)
    network = make()
    with torch.no_grad():
        network.module.train()
        network.module(*network.inputs)
    network.module.eval()
    return network
