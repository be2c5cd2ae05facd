"""The tokenizer in the metadata of a GGUF file: byte-level BPE by the package tokenizers, or SentencePiece merges by
score. Token ids and text are those of llama.cpp."""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ...errors import ModelFormatError, UnsupportedOperator
from ...plain_text import printable
from ...runtime.pages import FileContents
from .file import GgufFile, Texts

UNKNOWN, CONTROL, USER = 2, 3, 4  # ggml's token types, which range from 1 to 6
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3, _QWEN2 = [_WORDS % "{1,3}"], [_WORDS % ""]
# By tokenizer.ggml.pre: regular expressions that split a text, applied in order.
_PIECES = {
    "llama-bpe": _LLAMA3,
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
    "qwen2": _QWEN2,
    "deepseek-r1-qwen": _QWEN2,
    "gpt-2": [_GPT2],
    "smollm": [r"\p{N}", _GPT2],
}
# pieces that are tokens are not split, and a text starts with the begin token
_WHOLE = ("llama-bpe", "llama3", "llama-v3")
_SPACE = "\u2581"  # stands for a space in SentencePiece models
_ACCEPTED = "expected --tokenizer tokenizer.json, or ids by --tokens"


class Tokenizer(Protocol):
    """Converts text to token ids and back."""

    def encode(self, text: str) -> list[int]:
        """Return token ids, including those that begin and end a text."""

    def decode(self, ids: Sequence[int]) -> str:
        """Return text without control tokens; bytes of incomplete characters become U+FFFD."""


def tokenizer_of(path: str) -> Tokenizer:
    """Return the tokenizer of a file. ModelFormatError for a corrupted file, UnsupportedOperator for an unsupported
    tokenizer."""
    try:
        held = FileContents(Path(path))
    except OSError as error:
        raise ModelFormatError(f"{path} cannot be read: {error.strerror or error}") from None
    return read_tokenizer(GgufFile(held, path))


def read_tokenizer(file: GgufFile) -> Tokenizer:
    """Return the tokenizer of a file whose header has been read."""
    kind = file.metadata.get("tokenizer.ggml.model")
    if kind == "gpt2":
        return _bytes_tokenizer(_Described(file))
    if kind == "llama":
        return SentencePieces(_Described(file))
    shown = "no tokenizer" if kind in (None, "none") else f"a tokenizer {printable(str(kind))!r}"
    raise UnsupportedOperator(f"{file.where} has {shown}; {_ACCEPTED}, or a tokenizer 'gpt2' or 'llama' in the file")


class _Described:
    """The tokenizer metadata, with checks."""

    def __init__(self, file: GgufFile) -> None:
        self.where, self._metadata = file.where, file.metadata
        self.tokens = self.texts("tokens")
        self.types = self._numbers("token_type")
        if self.types is not None and not np.isin(self.types, range(1, 7)).all():
            raise ModelFormatError(f"{self.where}: metadata 'tokenizer.ggml.token_type' has types other than 1 to 6")

    def texts(self, name: str) -> list[str]:
        """Return an array of strings."""
        found = self._metadata.get(f"tokenizer.ggml.{name}")
        if not isinstance(found, Texts):
            raise ModelFormatError(
                f"{self.where}: metadata 'tokenizer.ggml.{name}' is not an array of strings; {_ACCEPTED}"
            )
        return [text.decode("utf-8", "replace") for text in found.read()]

    def _numbers(self, name: str) -> np.ndarray | None:
        """Return an array with a number per token, or None if it is absent."""
        found = self._metadata.get(f"tokenizer.ggml.{name}")
        if found is None:
            return None
        if not isinstance(found, np.ndarray) or len(found) != len(self.tokens):
            raise ModelFormatError(
                f"{self.where}: metadata 'tokenizer.ggml.{name}' is not an array of {len(self.tokens)} "
                f"numbers, one per token; {_ACCEPTED}"
            )
        return found

    def scores(self) -> np.ndarray:
        """Return the scores of all tokens."""
        found = self._numbers("scores")
        if found is None or not np.isfinite(found).all():
            raise ModelFormatError(f"{self.where}: metadata 'tokenizer.ggml.scores' is missing or not finite")
        return found

    def text(self, name: str) -> str:
        """Return a string of the metadata, empty if absent."""
        return str(self._metadata.get(f"tokenizer.ggml.{name}", ""))

    def flag(self, name: str, usual: bool) -> bool:
        """Return a boolean of the metadata."""
        return bool(self._metadata.get(f"tokenizer.ggml.{name}", usual))

    def around(self, *, begins: bool) -> tuple[list[int], list[int]]:
        """Return the ids that begin and end every text; `begins` is the default for the begin token."""
        return self._asked("bos", begins), self._asked("eos", False)

    def _asked(self, called: str, usual: bool) -> list[int]:
        token = self._metadata.get(f"tokenizer.ggml.{called}_token_id")
        if token is None or not self.flag(f"add_{called}_token", usual):
            return []
        if not isinstance(token, int) or not 0 <= token < len(self.tokens):
            raise ModelFormatError(f"{self.where}: metadata 'tokenizer.ggml.{called}_token_id' is {token!r}")
        return [token]

    def of(self, *types: int) -> list[int]:
        """Return the ids of tokens of these types."""
        return [] if self.types is None else [int(token) for token in np.flatnonzero(np.isin(self.types, types))]


def _bytes_tokenizer(described: _Described) -> Tokenizer:
    """Return a byte-level BPE tokenizer."""
    pieces, where = described.text("pre"), described.where
    if pieces not in _PIECES:
        shown = (
            f"a tokenizer with unknown pre-tokenizer {printable(pieces)!r}" if pieces else "a tokenizer without 'pre'"
        )
        raise UnsupportedOperator(f"{where} has {shown}; {_ACCEPTED}, or {', '.join(_PIECES)} in the file")
    if len(set(described.tokens)) != len(described.tokens):
        raise ModelFormatError(f"{where}: metadata 'tokenizer.ggml.tokens' has duplicate tokens; {_ACCEPTED}")
    vocabulary = {text: token for token, text in enumerate(described.tokens)}
    merges = [merge.partition(" ") for merge in described.texts("merges")]
    for left, _, right in merges:
        if not right or not vocabulary.keys() >= {left, right, left + right}:
            shown = printable(f"{left} {right}")
            raise ModelFormatError(
                f"{where}: metadata 'tokenizer.ggml.merges' has {shown!r}, which does not form a token"
            )
    begin, end = described.around(begins=pieces in _WHOLE)
    names = [described.tokens[token] for token in (*begin, *end)]
    cuts: list[dict[str, Any]] = [
        {"type": "Split", "pattern": {"Regex": each}, "behavior": "Isolated", "invert": False}
        for each in _PIECES[pieces]
    ]
    in_bytes = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    whole = [
        *({"SpecialToken": {"id": described.tokens[token], "type_id": 0}} for token in begin),
        {"Sequence": {"id": "A", "type_id": 0}},
        *({"SpecialToken": {"id": described.tokens[token], "type_id": 0}} for token in end),
    ]
    control = set(described.of(CONTROL, UNKNOWN))
    added = [
        {
            "id": token,
            "content": described.tokens[token],
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": token in control,
        }
        for token in described.of(CONTROL, UNKNOWN, USER)
    ]
    ids = dict(zip(names, (*begin, *end), strict=True))
    return _made(
        {
            "version": "1.0",
            "added_tokens": added,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*cuts, in_bytes]},
            "post_processor": {
                "type": "TemplateProcessing",
                "single": whole,
                "pair": whole,
                "special_tokens": {name: {"id": name, "ids": [token], "tokens": [name]} for name, token in ids.items()},
            },
            "decoder": in_bytes,
            "model": {
                "type": "BPE",
                "vocab": vocabulary,
                "merges": [[left, right] for left, _, right in merges],
                "ignore_merges": pieces in _WHOLE,
            },
        },
        where,
    )


def _made(plain: dict[str, Any], where: str) -> Tokenizer:
    """A tokenizer of the package tokenizers, by its description."""
    try:
        from tokenizers import Tokenizer as Made
        from tokenizers import pre_tokenizers
    except ImportError:
        raise UnsupportedOperator(
            f"{where}: its tokenizer needs the package tokenizers (pip install 'tvm_tiling[text]'); or pass ids with "
            "--tokens"
        ) from None
    if not plain["model"]["vocab"].keys() >= set(pre_tokenizers.ByteLevel.alphabet()):
        raise UnsupportedOperator(f"{where} has a tokenizer without byte tokens; {_ACCEPTED}")
    try:
        return OfPackage(Made.from_str(json.dumps(plain)))
    except Exception as error:
        said = " ".join(str(error).split())[:100]
        raise ModelFormatError(f"{where}: cannot build a tokenizer from its metadata ({said})") from None


class OfPackage:
    """A tokenizer of the package tokenizers."""

    def __init__(self, made: Any) -> None:
        self._made = made

    def encode(self, text: str) -> list[int]:
        return list(self._made.encode(text).ids)

    def decode(self, ids: Sequence[int]) -> str:
        return str(self._made.decode(list(ids)))


class SentencePieces:
    """A SentencePiece tokenizer as implemented by llama.cpp: among neighbours whose combined text is a token, those
    with the highest score are merged first, the leftmost on a tie; remaining pieces that are not tokens become
    bytes."""

    def __init__(self, described: _Described) -> None:
        self._tokens = described.tokens
        self._ids = {text: token for token, text in reversed(list(enumerate(described.tokens)))}
        self._scores = described.scores()
        self._around = described.around(begins=True)
        self._prefix = described.flag("add_space_prefix", True)
        self._control = {*described.of(CONTROL, UNKNOWN)}
        # Byte tokens are named <0x41>, whatever their types are.
        named = {byte: self._ids.get(f"<0x{byte:02X}>") for byte in range(256)}
        if None in named.values():
            raise UnsupportedOperator(f"{described.where} has a tokenizer without byte tokens; {_ACCEPTED}")
        self._of_bytes = {byte: token for byte, token in named.items() if token is not None}
        self._bytes = {token: byte for byte, token in self._of_bytes.items()}
        apart = {self._tokens[token] for token in described.of(CONTROL, UNKNOWN, USER)} - {""}
        self._apart = sorted(apart, key=len, reverse=True)

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, in which control tokens are recognised by name."""
        parts: list[str | int] = [text]
        for apart in self._apart:
            if apart in text:
                parts = [new for part in parts for new in self._without(part, apart)]
        found = list(self._around[0])
        for part in parts:
            if isinstance(part, int):
                found.append(part)
            else:
                self._add(part, found)
        return [*found, *self._around[1]]

    def _without(self, part: str | int, apart: str) -> Iterator[str | int]:
        """Yield the text around the occurrences of a special token, and its id for each occurrence."""
        if isinstance(part, int):
            yield part
            return
        for number, text in enumerate(part.split(apart)):
            if number:
                yield self._ids[apart]
            yield text

    def _add(self, text: str, found: list[int]) -> None:
        if not text:
            return
        for piece in self._pieces((" " * self._prefix + text).replace(" ", _SPACE)):
            token = self._ids.get(piece)
            found += [self._of_bytes[byte] for byte in piece.encode("utf-8", "replace")] if token is None else [token]

    def _pieces(self, text: str) -> list[str]:
        """Return the text split into pieces that cannot be merged further."""
        pieces = list(text)
        after, before = [*range(1, len(pieces) + 1)], [*range(-1, len(pieces) - 1)]
        waiting: list[tuple[float, int, str]] = []

        def offer(left: int) -> None:
            right = after[left] if left >= 0 else len(pieces)
            if right < len(pieces):
                joined = pieces[left] + pieces[right]
                if (token := self._ids.get(joined)) is not None:
                    heapq.heappush(waiting, (-float(self._scores[token]), left, joined))

        for left in range(len(pieces)):
            offer(left)
        while waiting:
            _, left, joined = heapq.heappop(waiting)
            right = after[left]
            if not pieces[left] or right == len(pieces) or pieces[left] + pieces[right] != joined:
                continue  # one of the two has already been merged
            pieces[left], pieces[right] = joined, ""
            after[left] = after[right]
            if after[left] < len(pieces):
                before[after[left]] = left
            offer(before[left])
            offer(left)
        return [piece for piece in pieces if piece]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids."""
        found = bytearray()
        for token in ids:
            if token in self._bytes:
                found.append(self._bytes[token])
            elif 0 <= token < len(self._tokens) and token not in self._control:
                found += self._tokens[token].replace(_SPACE, " ").encode("utf-8", "replace")
        return found.decode("utf-8", "replace")
