"""Layers for comparing the simulated accelerator with other simulators: matrix multiplications and convolutions of
known networks, batch 1, small enough that a simulator written in Python takes at most a few minutes."""

from __future__ import annotations

from tvm_tiling.workload import ConvWorkload, GemmWorkload

from .peers.accel_machine import Layer


def _product(name: str, m: int, n: int, k: int) -> Layer:
    return Layer(name, GemmWorkload(m=m, n=n, k=k, dtype="int8"))


def _convolution(name: str, size: int, ci: int, co: int, kernel: int, stride: int = 1) -> Layer:
    """A convolution whose input has `size` rows and columns, padding included."""
    return Layer(
        name,
        ConvWorkload(n=1, h=size, w=size, ci=ci, co=co, kh=kernel, kw=kernel, stride=(stride, stride), dtype="int8"),
    )


LAYERS = (
    _product("ResNet-50 res2 reduce", 3136, 64, 64),
    _product("ResNet-50 res2 expand", 3136, 256, 64),
    _product("ResNet-50 res3 reduce", 784, 128, 512),
    _product("ResNet-50 res4 reduce", 196, 256, 1024),
    _product("ResNet-50 res4 expand", 196, 1024, 256),
    _product("ResNet-50 res5 reduce", 49, 512, 2048),
    _product("ResNet-50 classes", 1, 1000, 2048),
    _product("BERT projection, 128 tokens", 128, 768, 768),
    _product("BERT scores, one head", 128, 128, 64),
    _product("BERT context, one head", 128, 64, 128),
    _product("BERT feed-forward 1, 32 tokens", 32, 3072, 768),
    _product("BERT feed-forward 2, 32 tokens", 32, 768, 3072),
    _product("MobileNet pointwise 2", 12544, 64, 32),
    _product("MobileNet pointwise 3", 3136, 128, 64),
    _product("MobileNet pointwise 7", 196, 512, 256),
    _product("MobileNet pointwise 13", 49, 1024, 512),
    _product("ViT-Base projection", 197, 768, 768),
    _product("ViT-Base scores, one head", 197, 197, 64),
    _product("GPT-2 decoding, 8 sequences", 8, 2304, 768),
    _product("DLRM bottom, batch 128", 128, 512, 256),
    _product("LSTM gates, hidden 256, batch 16", 16, 1024, 512),
    _product("SqueezeNet fire9 squeeze", 169, 64, 512),
    _convolution("MobileNet first", 225, 3, 32, 3, 2),
    _convolution("SqueezeNet fire2 expand", 57, 16, 64, 3),
    _convolution("SqueezeNet fire4 expand", 29, 32, 128, 3),
    _convolution("SqueezeNet fire8 expand", 15, 64, 256, 3),
    _convolution("ResNet-20 stage 1", 34, 16, 16, 3),
    _convolution("ResNet-20 stage 3", 10, 64, 64, 3),
    _convolution("LeNet second", 14, 6, 16, 5),
    _convolution("Inception 5 x 5 reduce", 18, 16, 48, 5),
)
