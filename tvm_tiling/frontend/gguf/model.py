"""A decoder as described by a GGUF file: its sizes, rotary angles, and tensors under llama.cpp's names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import ModelFormatError, UnsupportedOperator
from ...figures import quantity
from ...limits import MAX_EXTENT
from ...plain_text import printable
from .file import GgufFile, Tensor

ARCHITECTURES = {"llama": True, "qwen2": False, "qwen3": False}
"""Whether the elements of a rotated pair are adjacent, or half a head apart."""
# Metadata of an architecture that is used here, or has no effect.
_READ = frozenset(
    [
        "block_count",
        "embedding_length",
        "feed_forward_length",
        "context_length",
        "vocab_size",
        "tensor_data_layout",
        "attention.head_count",
        "attention.head_count_kv",
        "attention.key_length",
        "attention.value_length",
        "attention.scale",
        "attention.layer_norm_rms_epsilon",
        "attention.sliding_window",
        "attention.causal",
        "expert_count",
        "expert_used_count",
        "rope.dimension_count",
        "rope.freq_base",
        "rope.scaling.type",
        "rope.scaling.factor",
        "rope.scaling.finetuned",
        "rope.scale_linear",
        "rope.scaling.original_context_length",
        "rope.scaling.attn_factor",
    ]
)
_WHOLE = "expected a complete model"
_ENDS = ("eos", "eot", "eom")
_KINDS = {int: "integer", float: "number", bool: "boolean", str: "text"}
_CONTEXT = 2048  # positions, if the file gives no number


@dataclass(frozen=True)
class Sizes:
    """`layers` of `width` elements; `heads` of queries and `groups` of keys, of `head` elements each, the first 2
    `pairs` of which are rotated; `inner` elements of the feed-forward network; vocabulary of `words`, up to `most`
    positions."""

    layers: int
    width: int
    heads: int
    groups: int
    head: int
    pairs: int
    inner: int
    words: int
    most: int
    epsilon: float
    scale: float
    interleaved: bool


def end_tokens(file: GgufFile) -> tuple[int, ...]:
    """Return the end-of-text tokens of the file's tokenizer."""
    found = (file.metadata.get(f"tokenizer.ggml.{name}_token_id") for name in _ENDS)
    return tuple(token for token in found if type(token) is int)


class GgufModel:
    """The file of a decoder, whose tensors are taken one by one. ModelFormatError and UnsupportedOperator name what is
    missing, has another shape, or is not supported."""

    def __init__(self, file: GgufFile) -> None:
        self.file, self.where = file, file.where
        self._left = dict(file.tensors)
        self.architecture = str(file.metadata.get("general.architecture", ""))
        if self.architecture not in ARCHITECTURES:
            shown = printable(self.architecture)
            raise UnsupportedOperator(f"{self.where}: architecture {shown!r}; expected {', '.join(ARCHITECTURES)}")
        if self._value("split.count", 1) not in (0, 1):
            raise UnsupportedOperator(f"{self.where} is one of several parts of a model; expected a model in one file")
        self._refuse_unread()
        self.sizes = self._sizes()

    # ---- metadata ---------------------------------------------------------------------------------------------------

    def _value(self, name: str, usual: Any) -> Any:
        """Return a number, a string or a bool of the metadata."""
        found = self.file.metadata.get(name, usual)
        if isinstance(found, np.ndarray) and found.size and (found == found[0]).all():
            found = found[0].item()
        if usual is not None and not isinstance(found, (int, float) if isinstance(usual, float) else type(usual)):
            raise ModelFormatError(f"{self.where}: metadata {name!r} is not one {_KINDS[type(usual)]} for all layers")
        return found

    def _of(self, name: str, usual: Any) -> Any:
        return self._value(f"{self.architecture}.{name}", usual)

    def _count(self, name: str, usual: int | None = None) -> int:
        found = self._of(name, 0 if usual is None else usual)
        if not 1 <= found <= MAX_EXTENT:
            shown = f"metadata '{self.architecture}.{name}'"
            raise ModelFormatError(f"{self.where}: {shown} is {found or 'missing'}; expected 1 to {MAX_EXTENT}")
        return int(found)

    def _refuse_unread(self) -> None:
        """Refuse metadata that affects the computation but is not supported."""
        start = f"{self.architecture}."
        for name, value in self.file.metadata.items():
            if name.startswith(start) and name.removeprefix(start) not in _READ:
                raise UnsupportedOperator(
                    f"{self.where}: unknown metadata {printable(name)!r}; expected a model without it"
                )
            if isinstance(value, float) and not np.isfinite(value) and name.startswith(start):
                raise ModelFormatError(
                    f"{self.where}: metadata {printable(name)!r} is {value}; expected finite numbers"
                )
        for name, usual in (
            ("expert_count", 0),
            ("expert_used_count", 0),
            ("attention.causal", True),
            ("rope.scaling.attn_factor", 1.0),
            ("attention.sliding_window", 0),
        ):
            if (found := self._of(name, usual)) != usual:
                shown = f"{self.where}: metadata '{start}{name}' = {found}"
                raise UnsupportedOperator(f"{shown}; expected {usual}")

    def _sizes(self) -> Sizes:
        width, heads = self._count("embedding_length"), self._count("attention.head_count")
        groups = self._count("attention.head_count_kv", heads)
        if heads % groups:
            raise ModelFormatError(
                f"{self.where}: {heads} query heads for {groups} key heads; expected a multiple of the key heads"
            )
        if width % heads and f"{self.architecture}.attention.key_length" not in self.file.metadata:
            raise ModelFormatError(
                f"{self.where}: {width} elements for {quantity(heads, 'head')}; expected a multiple of the heads"
            )
        head = self._count("attention.key_length", width // heads)
        turned = self._count("rope.dimension_count", head)
        if self._count("attention.value_length", head) != head:
            raise UnsupportedOperator(f"{self.where}: keys and values have different lengths; expected equal lengths")
        if turned % 2 or turned > head:
            raise ModelFormatError(
                f"{self.where}: {turned} of {head} elements are rotated; expected an even number, at most all"
            )
        epsilon, scale = self._of("attention.layer_norm_rms_epsilon", 0.0), self._of("attention.scale", 0.0)
        if not epsilon > 0:
            shown = f"metadata '{self.architecture}.attention.layer_norm_rms_epsilon' is {epsilon or 'missing'}"
            raise ModelFormatError(f"{self.where}: {shown}; expected above 0")
        layers = self._count("block_count")
        if not self.has(last := f"blk.{layers - 1}.attn_norm.weight"):
            raise ModelFormatError(
                f"{self.where}: the model has {quantity(layers, 'layer')}, but tensor {last!r} is missing; {_WHOLE}"
            )
        words = self.file.tensors.get("token_embd.weight")
        if words is None:
            raise ModelFormatError(f"{self.where}: tensor 'token_embd.weight' is missing; {_WHOLE}")
        return Sizes(
            layers=layers,
            width=width,
            heads=heads,
            groups=groups,
            head=head,
            pairs=turned // 2,
            inner=self._count("feed_forward_length"),
            words=words.shape[0],
            most=self._count("context_length", _CONTEXT),
            epsilon=float(epsilon),
            scale=float(scale) or head**-0.5,
            interleaved=ARCHITECTURES[self.architecture],
        )

    # ---- angles -----------------------------------------------------------------------------------------------------

    def frequencies(self) -> np.ndarray:
        """Return the rotation angle of each pair from one position to the next, float64[pairs]."""
        pairs, base = self.sizes.pairs, float(self._of("rope.freq_base", 10000.0))
        if not base > 0:
            raise ModelFormatError(f"{self.where}: metadata 'rope.freq_base' is {base}; expected above 0")
        found = base ** (-np.arange(pairs) / pairs)
        scaling = self._of(
            "rope.scaling.type",
            "none" if f"{self.architecture}.rope.scale_linear" not in self.file.metadata else "linear",
        )
        if scaling == "linear":
            factor = float(self._of("rope.scaling.factor", float(self._of("rope.scale_linear", 1.0))))
            if not factor > 0:
                raise ModelFormatError(f"{self.where}: metadata 'rope.scaling.factor' is {factor}; expected above 0")
            found = found / factor
        elif scaling != "none":
            shown = f"{self.where}: position scaling {printable(scaling)!r} is not supported"
            raise UnsupportedOperator(f"{shown}; expected 'none', 'linear'")
        if self.has("rope_freqs.weight"):
            factors = self.floats("rope_freqs.weight", (pairs,)).astype(np.float64)
            if not (np.isfinite(factors) & (factors > 0)).all():
                raise ModelFormatError(
                    f"{self.where}: tensor 'rope_freqs.weight' has {factors.min()}; expected above 0"
                )
            found = found / factors
        return found

    # ---- tensors ----------------------------------------------------------------------------------------------------

    def has(self, name: str) -> bool:
        """Return whether the file has a tensor."""
        return name in self.file.tensors

    def take(self, name: str, shape: Sequence[int]) -> Tensor:
        """Return a tensor of the given shape."""
        found = self.file.tensors.get(name)
        if found is None:
            raise ModelFormatError(f"{self.where}: tensor {name!r} is missing; {_WHOLE}")
        if found.shape != tuple(shape):
            raise ModelFormatError(
                f"{self.where}: tensor {name!r} has shape {list(found.shape)}; expected {list(shape)}"
            )
        if not found.type.is_supported:
            raise UnsupportedOperator(
                f"{self.where}: tensor {name!r} has type {found.type.name}; expected F32, F16, BF16, Q2_K to "
                "Q6_K, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0"
            )
        self._left.pop(name, None)
        return found

    def floats(self, name: str, shape: Sequence[int]) -> np.ndarray:
        """Return an unquantised tensor as float32."""
        found = self.take(name, shape)
        if found.type.dtype is None:
            raise UnsupportedOperator(f"{self.where}: tensor {name!r} has type {found.type.name}; expected floats")
        data = self.file.part(found)
        if found.type.dtype == "bfloat16":
            return (data.view("<u2").astype(np.uint32) << np.uint32(16)).view(np.float32).reshape(shape)
        return data.view(found.type.dtype).astype(np.float32).reshape(shape)

    def refuse_left(self) -> None:
        """Refuse tensors of the file that were not used."""
        if self._left:
            name = printable(next(iter(self._left)))
            raise UnsupportedOperator(
                f"{self.where}: tensor {name!r} belongs to no supported part of a {self.architecture} model; "
                "expected a model without it"
            )
