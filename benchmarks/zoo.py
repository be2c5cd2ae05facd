"""Published networks at common sizes: torchvision, timm, transformers, the onnx package.

All weights are random with a fixed seed; norms have seen some data. Images have 3 channels; sentences are token ids
with a mask without padding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .onnx_networks import NETWORKS as OF_ONNX

IMAGE = 224
SIZES = {"inception_v3": 299, "mobilevit_s": 256, "edgenext_small": 256}
TORCHVISION = (
    "resnet18",
    "resnet50_v1_5",  # besides the resnet50 of the onnx package
    "resnext50_32x4d",
    "regnet_y_400mf",
    "mobilenet_v2",
    "mobilenet_v3_small",
    "mobilenet_v3_large",
    "mnasnet1_0",
    "shufflenet_v2_x1_0",
    "squeezenet1_1",
    "efficientnet_b0",
    "inception_v3",
    "convnext_tiny",
    "swin_t",
    "vit_b_16",
)
TIMM = (
    "ghostnet_100",
    "mobilevit_s",
    "deit_tiny_patch16_224",
    "mixer_s32_224",
    "repvgg_a0",
    "poolformer_s12",
    "rexnet_100",
    "dla34",
    "edgenext_small",
    "hrnet_w18_small",
)
TRANSFORMERS = ("bert_128", "bert_384", "distilbert_128", "electra_small_128", "gpt2_128", "whisper_tiny_encoder")
EVERY = (*OF_ONNX, *TORCHVISION, *TIMM, *TRANSFORMERS)
OF_TIMM = "timm:"  # and the name of any other image network of timm
# Networks that are also measured with more than one image or sentence.
BATCHED = (
    "resnet50_v1_5",
    "squeezenet1_1",
    "shufflenet_v2_x1_0",
    "mobilenet_v3_large",
    "efficientnet_b0",
    "convnext_tiny",
    "vit_b_16",
    "bert_128",
)


@dataclass(frozen=True)
class Built:
    """A PyTorch module in inference mode and its input tensors, in the order of its arguments."""

    module: Any
    inputs: tuple[Any, ...]


def is_known(name: str) -> bool:
    """Return whether a network is one of EVERY, or named as one of timm."""
    return name in EVERY or (name.startswith(OF_TIMM) and len(name) > len(OF_TIMM))


def build(name: str, batch: int) -> Built:
    """Return one of TORCHVISION, TIMM or TRANSFORMERS, or any network of timm, with `batch` images or sentences; equal
    in every process."""
    import torch

    torch.manual_seed(0)
    if name in TRANSFORMERS:
        module, inputs = _language(name, batch)
    elif name.startswith(OF_TIMM):
        module = _of_timm(name.removeprefix(OF_TIMM))
        inputs = (torch.randn(batch, *module.default_cfg["input_size"]),)
    else:
        side = SIZES.get(name, IMAGE)
        module, inputs = _vision(name), (torch.randn(batch, 3, side, side),)
    with torch.no_grad():
        if _has_norms_of_batches(module):
            _see(module, inputs)
    return Built(module.eval(), inputs)


def _vision(name: str) -> Any:
    if name in TIMM:
        return _of_timm(name)
    from torchvision import models

    extra = {"inception_v3": {"init_weights": False, "aux_logits": False}}
    return models.get_model(name.removesuffix("_v1_5"), weights=None, **extra.get(name, {}))


def _of_timm(name: str) -> Any:
    import timm

    return timm.create_model(name, pretrained=False)


def _has_norms_of_batches(module: Any) -> bool:
    from torch import nn

    return any(isinstance(part, nn.BatchNorm2d | nn.BatchNorm1d) for part in module.modules())


def _see(module: Any, inputs: Sequence[Any]) -> None:
    """Set the statistics of batch norms to those of an input: in a chain of random layers activations would otherwise
    grow without bound."""
    from torch import nn

    def watch(part: Any, given: tuple[Any, ...]) -> None:
        (x,) = given
        axes = [axis for axis in range(x.dim()) if axis != 1]
        if x.numel() > x.shape[1]:  # one value per channel has no variance
            part.running_mean.copy_(x.mean(axes))
            part.running_var.copy_(x.var(axes, unbiased=False).clamp(min=1e-3))

    module.eval()
    norms = [part for part in module.modules() if isinstance(part, nn.BatchNorm2d | nn.BatchNorm1d)]
    hooks = [part.register_forward_pre_hook(watch) for part in norms]
    module(*inputs)
    for hook in hooks:
        hook.remove()


def _language(name: str, batch: int) -> tuple[Any, tuple[Any, ...]]:
    """Return one of TRANSFORMERS; its module returns one tensor."""
    import torch
    import transformers
    from torch import nn

    transformers.logging.set_verbosity_error()

    class Hidden(nn.Module):
        """Hidden states of a transformers model, as a module of its ordered arguments."""

        def __init__(self, model: Any, arguments: Sequence[str]) -> None:
            super().__init__()
            self.model, self.arguments = model, tuple(arguments)

        def forward(self, *given: Any) -> Any:
            return self.model(**dict(zip(self.arguments, given, strict=True))).last_hidden_state

    if name == "whisper_tiny_encoder":
        config = transformers.WhisperConfig()  # its default sizes are those of the tiny model
        whisper = transformers.WhisperModel(config).encoder
        return Hidden(whisper, ["input_features"]), (torch.randn(batch, config.num_mel_bins, 3000),)
    kinds: dict[str, Callable[[], Any]] = {
        "bert": lambda: transformers.BertModel(transformers.BertConfig()),
        "distilbert": lambda: transformers.DistilBertModel(transformers.DistilBertConfig()),
        "electra_small": lambda: transformers.ElectraModel(transformers.ElectraConfig()),
        "gpt2": lambda: transformers.GPT2Model(transformers.GPT2Config(use_cache=False)),
    }
    kind, tokens = name.rsplit("_", 1)
    ids = torch.randint(100, 20000, (batch, int(tokens)))
    return Hidden(kinds[kind](), ["input_ids", "attention_mask"]), (ids, torch.ones_like(ids))
