"""Third-party models by library: torchvision's, tiny configurations of transformers architectures, timm's families.

Every model has random weights with a fixed seed and small inputs. torchvision's own operators are declared where its
library of kernels does not load, as with a CPU build of PyTorch: none of the listed models runs them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch


@dataclass
class Built:
    """A module in eval(), and its arguments."""

    module: torch.nn.Module
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)


def declare_torchvision() -> None:
    """Allow importing torchvision if its library of kernels cannot be loaded."""
    try:
        import torchvision  # noqa: F401
    except RuntimeError:
        for name in ("nms", "qnms"):
            torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float threshold) -> Tensor")


# ---- torchvision ----------------------------------------------------------------------------------------------------

# Constructor options and input sizes, by prefixes of names.
_OPTIONS: dict[str, dict[str, Any]] = {
    "vit_": {"image_size": 64},
    "vit_h_14": {"image_size": 56},
    "googlenet": {"init_weights": True, "aux_logits": False},
    "inception_v3": {"init_weights": True, "aux_logits": False},
}
_IMAGES = {"vit_": 64, "vit_h_14": 56, "maxvit": 224, "inception_v3": 96, "alexnet": 80, "swin_v2": 64}
_VIDEOS = {"mvit": (16, 224), "swin3d": (8, 64), "s3d": (16, 224)}


def _by_start(table: Mapping[str, Any], name: str, otherwise: Any) -> Any:
    starts = [start for start in table if name.startswith(start)]
    return table[max(starts, key=len)] if starts else otherwise


def torchvision_models() -> dict[str, Callable[[], Built]]:
    """Classification, segmentation, video, optical flow, and the backbones of detection."""
    import torchvision
    from torchvision import models

    found: dict[str, Callable[[], Built]] = {}
    for name in models.list_models(module=models):
        side = _by_start(_IMAGES, name, 64)
        found[name] = _vision(name, _by_start(_OPTIONS, name, {}), lambda side=side: (torch.randn(1, 3, side, side),))
    for name in models.list_models(module=models.segmentation):
        found[name] = _vision(name, {"weights_backbone": None}, lambda: (torch.randn(1, 3, 64, 64),))
    for name in models.list_models(module=models.video):
        frames, side = _by_start(_VIDEOS, name, (8, 64))
        found[name] = _vision(name, {}, lambda frames=frames, side=side: (torch.randn(1, 3, frames, side, side),))
    for name in models.list_models(module=models.optical_flow):
        found[name] = _vision(name, {}, lambda: (torch.randn(1, 3, 128, 128), torch.randn(1, 3, 128, 128)))
    for name in models.list_models(module=models.detection):
        found[f"backbone of {name}"] = _backbone(torchvision, name)
    return found


def _vision(name: str, options: dict[str, Any], inputs: Callable[[], tuple[Any, ...]]) -> Callable[[], Built]:
    def build() -> Built:
        from torchvision import models

        return Built(models.get_model(name, weights=None, **options).eval(), inputs())

    return build


def _backbone(torchvision: Any, name: str) -> Callable[[], Built]:
    def build() -> Built:
        model = torchvision.models.get_model(name, weights=None, weights_backbone=None)
        side = 300 if name == "ssd300_vgg16" else 96  # its last layers reduce 300 pixels to one
        return Built(model.backbone.eval(), (torch.randn(1, 3, side, side),))

    return build


# ---- transformers ---------------------------------------------------------------------------------------------------

# Values of configuration fields.
_TINY: dict[str, Any] = {
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim", "emb_dim", "embedding_size", "n_embed"), 32),
    **dict.fromkeys(("num_hidden_layers", "num_layers", "n_layer", "n_layers", "encoder_layers", "decoder_layers"), 2),
    **dict.fromkeys(("num_decoder_layers", "num_encoder_layers", "num_hidden_groups", "num_blocks"), 2),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads"), 4),
    **dict.fromkeys(("decoder_attention_heads", "num_encoder_attention_heads", "num_decoder_attention_heads"), 4),
    **dict.fromkeys(("intermediate_size", "encoder_ffn_dim", "decoder_ffn_dim", "d_ff", "d_inner", "ffn_dim"), 64),
    **dict.fromkeys(("hidden_dim", "dff", "n_inner"), 64),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len"), 64),
    **{"num_key_value_heads": 2, "head_dim": 8, "d_kv": 8, "kv_channels": 8, "vocab_size": 99, "num_labels": 3},
    **{"image_size": 32, "patch_size": 8, "rotary_dim": 4, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2},
    **{"use_cache": False, "is_encoder_decoder": None},
}
# Fields of single architectures, which override those above.
_SPECIAL: dict[str, dict[str, Any]] = {
    "albert": {"embedding_size": 16},
    "bigbird_pegasus": {"attention_type": "original_full"},
    "big_bird": {"attention_type": "original_full"},
    "bit": {"hidden_sizes": [8, 16, 32, 32], "depths": [1, 1, 1, 1], "embedding_size": 8, "num_groups": 4},
    "convbert": {"embedding_size": 16, "head_ratio": 2},
    "convnext": {"patch_size": None, "hidden_sizes": [8, 16, 32, 32], "depths": [1, 1, 1, 1]},
    "convnextv2": {"patch_size": None, "hidden_sizes": [8, 16, 32, 32], "depths": [1, 1, 1, 1]},
    "efficientnet": {"width_coefficient": 0.25, "depth_coefficient": 0.3, "hidden_dim": 320, "image_size": 64},
    "electra": {"embedding_size": 16},
    "esm": {"vocab_size": 33, "pad_token_id": 1, "mask_token_id": 2},
    "focalnet": {"embed_dim": 8, "depths": [1, 1, 1, 1], "image_size": 64, "patch_size": 4},
    "glpn": {
        "hidden_sizes": [8, 16, 16, 32],
        "depths": [1, 1, 1, 1],
        "num_attention_heads": [1, 2, 2, 4],
        "decoder_hidden_size": 16,
        "image_size": 64,
        "patch_size": None,
    },
    "funnel": {
        "architectures": ["FunnelModel"],
        "block_sizes": [1, 1],
        "d_model": 32,
        "n_head": 4,
        "d_head": 8,
        "d_inner": 64,
    },
    "gpt_neo": {"num_layers": 2, "attention_types": [[["global", "local"], 1]], "window_size": 4},
    "longformer": {"attention_window": 4, "max_position_embeddings": 64},
    "led": {"attention_window": 4, "max_encoder_position_embeddings": 64, "max_decoder_position_embeddings": 64},
    "levit": {
        "patch_size": None,
        "hidden_sizes": [16, 32, 32],
        "num_attention_heads": [2, 2, 2],
        "depths": [1, 1, 1],
        "key_dim": [8] * 3,
        "image_size": 64,
        "down_ops": None,
    },
    "mamba": {"state_size": 4, "time_step_rank": 4, "expand": 2, "intermediate_size": 64},
    "mixtral": {"num_local_experts": 2, "num_experts_per_tok": 1},
    "mobilebert": {"embedding_size": 32, "intra_bottleneck_size": 32, "true_hidden_size": 32, "hidden_size": 32},
    "mobilevit": {
        "hidden_sizes": [16, 24, 32],
        "neck_hidden_sizes": [8, 8, 16, 16, 16, 16, 32],
        "patch_size": 2,
        "image_size": 64,
    },
    "poolformer": {"hidden_sizes": [8, 16, 16, 32], "depths": [1, 1, 1, 1], "patch_size": 7, "num_encoder_blocks": 4},
    "pvt": {
        "hidden_sizes": [8, 16, 16, 32],
        "depths": [1, 1, 1, 1],
        "num_attention_heads": [1, 2, 2, 4],
        "image_size": 64,
        "patch_sizes": [4, 2, 2, 2],
        "patch_size": None,
    },
    "regnet": {"hidden_sizes": [8, 16, 16, 32], "depths": [1, 1, 1, 1], "embedding_size": 8, "groups_width": 8},
    "resnet": {"hidden_sizes": [8, 16, 16, 32], "depths": [1, 1, 1, 1], "embedding_size": 8},
    "roformer": {"embedding_size": 32},
    "segformer": {
        "hidden_sizes": [8, 16, 16, 32],
        "depths": [1, 1, 1, 1],
        "num_attention_heads": [1, 2, 2, 4],
        "image_size": 64,
        "patch_size": None,
    },
    "swin": {"embed_dim": 8, "depths": [1, 1], "num_heads": [2, 2], "window_size": 2, "patch_size": 4},
    "swinv2": {"embed_dim": 8, "depths": [1, 1], "num_heads": [2, 2], "window_size": 2, "patch_size": 4},
    "transfo_xl": {},
    "whisper": {
        "max_source_positions": 20,
        "max_target_positions": 20,
        "num_mel_bins": 16,
        "decoder_start_token_id": 1,
    },
    "xlnet": {"d_head": 8, "d_inner": 64},
    "xmod": {"languages": ["en_XX"], "default_language": "en_XX"},
}
_TEXT = (
    *("albert", "bert", "bert-generation", "big_bird", "biogpt", "bloom", "camembert", "canine", "codegen", "cohere"),
    *("convbert", "ctrl", "data2vec-text", "deberta", "deberta-v2", "distilbert", "electra", "ernie", "esm", "falcon"),
    *("flaubert", "fnet", "funnel", "gemma", "gemma2", "gpt2", "gpt_bigcode", "gpt_neo", "gpt_neox", "gptj", "granite"),
    *("ibert", "layoutlm", "llama", "longformer", "luke", "mamba", "megatron-bert", "mistral", "mixtral", "mobilebert"),
    *("modernbert", "mpnet", "mpt", "nystromformer", "olmo", "opt", "persimmon", "phi", "phi3", "qwen2", "qwen3"),
    *("rembert", "roberta", "roberta-prelayernorm", "roc_bert", "roformer", "rwkv", "splinter", "squeezebert"),
    *("stablelm", "starcoder2", "xglm", "xlm", "xlm-roberta", "xlm-roberta-xl", "xlnet", "xmod", "yoso"),
)
_PAIRS = (
    *("bart", "bigbird_pegasus", "blenderbot", "led", "m2m_100", "marian", "mbart", "mt5", "mvp", "pegasus", "plbart"),
    *("prophetnet", "switch_transformers", "t5", "umt5"),
)
_PICTURES = (
    *(
        "beit",
        "bit",
        "convnext",
        "convnextv2",
        "data2vec-vision",
        "deit",
        "dinov2",
        "dinov2_with_registers",
        "focalnet",
    ),
    *("ijepa", "levit", "mobilenet_v1", "mobilenet_v2", "mobilevit", "poolformer", "pvt", "regnet", "resnet"),
    *("segformer", "swin", "swinv2", "vit", "vit_msn", "efficientnet", "glpn"),
)
_SOUNDS = ("hubert", "wav2vec2", "wavlm", "unispeech", "sew")


def transformers_models() -> dict[str, Callable[[], Built]]:
    """Tiny configurations: encoders, decoders, both, for images and for sound; with caches, gpt2 and llama."""
    found = {name: _tiny(name, _tokens) for name in _TEXT}
    found |= {name: _tiny(name, _two_sequences) for name in _PAIRS}
    found["switch_transformers"] = _tiny(
        "switch_transformers", _two_masked_sequences
    )  # when traced, it supports no other
    found |= {name: _tiny(name, _picture) for name in _PICTURES}
    found |= {name: _tiny(name, _sound) for name in _SOUNDS}
    found["whisper"] = _tiny("whisper", _spectrogram)
    found["clip"] = _tiny("clip", _picture_and_tokens)
    for name in ("gpt2", "llama"):
        found[f"{name} with its cache"] = _tiny(name, _tokens, {"use_cache": True}, causal=True)
    return found


def _tiny(
    name: str, inputs: Callable[[Any], dict[str, Any]], options: Mapping[str, Any] | None = None, causal: bool = False
) -> Callable[[], Built]:
    def build() -> Built:
        import transformers
        from transformers import CONFIG_MAPPING, AutoModel, AutoModelForCausalLM

        transformers.logging.set_verbosity_error()
        if options:
            from transformers.integrations.executorch import register_dynamic_cache_export_support

            register_dynamic_cache_export_support()
        kind = CONFIG_MAPPING[name]
        given = kind().to_dict()
        special = _SPECIAL.get(name, {})
        wanted = {**{key: value for key, value in _TINY.items() if key in given}, **special, **(options or {})}
        fields = {key: value for key, value in wanted.items() if value is not None}
        if name == "clip":
            inner = {k: v for k, v in _TINY.items() if v is not None and k not in ("use_cache", "num_labels")}
            fields = {"text_config": dict(inner), "vision_config": dict(inner), "projection_dim": 32}
        config = kind(**fields)
        maker = AutoModelForCausalLM if causal else AutoModel
        kwargs = inputs(config)
        return Built(maker.from_config(config).eval(), kwargs=kwargs)

    return build


def _ids(config: Any, length: int = 8) -> torch.Tensor:
    return torch.randint(3, min(int(getattr(config, "vocab_size", 99)), 33), (1, length))


def _tokens(config: Any) -> dict[str, Any]:
    return {"input_ids": _ids(config)}


def _two_sequences(config: Any) -> dict[str, Any]:
    return {"input_ids": _ids(config), "decoder_input_ids": _ids(config, 4), "use_cache": False}


def _two_masked_sequences(config: Any) -> dict[str, Any]:
    return {**_two_sequences(config), "attention_mask": torch.ones(1, 8, dtype=torch.int64)}


def _picture(config: Any) -> dict[str, Any]:
    size = getattr(config, "image_size", 64)
    side = size if isinstance(size, int) and size <= 64 else 64
    return {"pixel_values": torch.randn(1, 3, side, side)}


def _sound(config: Any) -> dict[str, Any]:
    return {"input_values": torch.randn(1, 1600)}


def _spectrogram(config: Any) -> dict[str, Any]:
    return {
        "input_features": torch.randn(1, config.num_mel_bins, 2 * config.max_source_positions),
        "decoder_input_ids": _ids(config, 4),
        "use_cache": False,
    }


def _picture_and_tokens(config: Any) -> dict[str, Any]:
    return {"input_ids": _ids(config.text_config), "pixel_values": torch.randn(1, 3, 32, 32)}


# ---- timm -----------------------------------------------------------------------------------------------------------

_FAMILIES = (
    *("beit", "botnet26t_256", "coat_lite_tiny", "coatnet_pico_rw_224", "convit_tiny", "convmixer_768_32"),
    *("convnext_atto", "crossvit_tiny_240", "cspresnet50", "davit_tiny", "deit_tiny_patch16_224", "densenet121"),
    *("dla34", "dpn48b", "edgenext_xx_small", "efficientformer_l1", "efficientformerv2_s0", "efficientnet_b0"),
    *(
        "efficientvit_b0",
        "efficientvit_m0",
        "eva02_tiny_patch14_224",
        "fasternet_t0",
        "fastvit_t8",
        "focalnet_tiny_srf",
    ),
    *("gernet_s", "ghostnet_100", "ghostnetv2_100", "gmixer_12_224", "gmlp_ti16_224", "hardcorenas_a", "hgnet_tiny"),
    *("hgnetv2_b0", "hiera_tiny_224", "hrnet_w18_small", "inception_next_tiny", "inception_v3", "inception_v4"),
    *("lcnet_050", "levit_128s", "maxvit_rmlp_pico_rw_256", "metaformer", "mixer_s32_224", "mixnet_s", "mnasnet_small"),
    *("mobilenetv2_050", "mobilenetv3_small_050", "mobilenetv4_conv_small", "mobileone_s0", "mobilevit_xxs"),
    *("mobilevitv2_050", "mvitv2_tiny", "nasnetalarge", "nest_tiny", "nextvit_small", "nf_regnet_b0", "pit_ti_224"),
    *("poolformer_s12", "pvt_v2_b0", "regnetx_002", "regnety_002", "repghostnet_050", "repvgg_a0", "repvit_m0_9"),
    *("res2net50_14w_8s", "resmlp_12_224", "resnest14d", "resnet18", "resnetv2_50", "resnext50_32x4d", "rexnet_100"),
    *("selecsls42b", "semnasnet_050", "sequencer2d_s", "seresnet18", "shvit_s1", "skresnet18", "spnasnet_100"),
    *(
        "starnet_s1",
        "swin_tiny_patch4_window7_224",
        "swinv2_cr_tiny_224",
        "tiny_vit_5m_224",
        "tinynet_e",
        "tnt_s_patch16_224",
    ),
    *("tresnet_m", "twins_svt_small", "vgg11", "visformer_tiny", "vit_tiny_patch16_224", "volo_d1_224", "vovnet39a"),
    *("xception41", "xcit_nano_12_p16_224"),
)


def timm_models() -> dict[str, Callable[[], Built]]:
    """One small model of each family."""
    import timm

    known = set(timm.list_models())
    return {name: _timm(name) for name in _FAMILIES if name in known}


def _timm(name: str) -> Callable[[], Built]:
    def build() -> Built:
        import timm

        model = timm.create_model(name, pretrained=False, num_classes=10).eval()
        size = model.pretrained_cfg["input_size"]
        side = size[-1]
        if not model.pretrained_cfg.get("fixed_input_size") and side >= 224:
            side = 96
        try:
            with torch.no_grad():
                model(torch.randn(1, 3, side, side))
        except Exception:  # some support only their own size
            side = size[-1]
        return Built(model, (torch.randn(1, 3, side, side),))

    return build


LISTS: dict[str, Callable[[], dict[str, Callable[[], Built]]]] = {
    "torchvision": torchvision_models,
    "transformers": transformers_models,
    "timm": timm_models,
}
