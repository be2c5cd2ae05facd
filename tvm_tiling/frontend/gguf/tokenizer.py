"""The tokenizer that a GGUF file holds in its metadata: byte-level BPE by the package tokenizers, or SentencePiece's
merges by score. Ids and texts are those of llama.cpp.
"""

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

UNKNOWN, CONTROL, USER = 2, 3, 4  # of ggml's types of tokens, which are 1 to 6
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3, _QWEN2 = [_WORDS % "{1,3}"], [_WORDS % ""]
# By tokenizer.ggml.pre: expressions that cut a text, one after the other.
_PIECES = {
    "llama-bpe": _LLAMA3,
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
    "qwen2": _QWEN2,
    "deepseek-r1-qwen": _QWEN2,
    "gpt-2": [_GPT2],
    "smollm": [r"\p{N}", _GPT2],
}
_WHOLE = ("llama-bpe", "llama3", "llama-v3")  # pieces that are tokens are not cut, and a text begins with its token
_SPACE = "\u2581"  # stands for a space in SentencePiece models
_ACCEPTED = "accepted: --tokenizer tokenizer.json, or ids by --tokens"


class Tokenizer(Protocol):
    """Texts as ids, and the other way."""

    def encode(self, text: str) -> list[int]:
        """With the tokens that begin and end a text."""

    def decode(self, ids: Sequence[int]) -> str:
        """Without tokens that control a model; bytes that are no letter yet as U+FFFD."""


def tokenizer_of(path: str) -> Tokenizer:
    """The tokenizer of a file. ModelFormatError for one that is damaged, UnsupportedOperator for one that is not
    served."""
    try:
        held = FileContents(Path(path))
    except OSError as error:
        raise ModelFormatError(f"{path} cannot be read: {error.strerror or error}") from None
    return read_tokenizer(GgufFile(held, path))


def read_tokenizer(file: GgufFile) -> Tokenizer:
    """That of a file whose header has been read."""
    kind = file.metadata.get("tokenizer.ggml.model")
    if kind == "gpt2":
        return _bytes_tokenizer(_Described(file))
    if kind == "llama":
        return SentencePieces(_Described(file))
    shown = "no tokenizer" if kind in (None, "none") else f"a tokenizer {printable(str(kind))!r}"
    raise UnsupportedOperator(f"{file.where} holds {shown}; {_ACCEPTED}, or a tokenizer 'gpt2' or 'llama' in the file")


class _Described:
    """What the metadata says of a tokenizer, checked."""

    def __init__(self, file: GgufFile) -> None:
        self.where, self._metadata = file.where, file.metadata
        self.tokens = self.texts("tokens")
        self.types = self._numbers("token_type")
        if self.types is not None and not np.isin(self.types, range(1, 7)).all():
            raise ModelFormatError(f"{self.where}: metadata 'tokenizer.ggml.token_type' has other types than 1 to 6")

    def texts(self, name: str) -> list[str]:
        """An array of texts."""
        found = self._metadata.get(f"tokenizer.ggml.{name}")
        if not isinstance(found, Texts):
            raise ModelFormatError(
                f"{self.where}: metadata 'tokenizer.ggml.{name}' is not an array of strings; {_ACCEPTED}"
            )
        return [text.decode("utf-8", "replace") for text in found.read()]

    def _numbers(self, name: str) -> np.ndarray | None:
        """An array with a number for each token; None where there is none."""
        found = self._metadata.get(f"tokenizer.ggml.{name}")
        if found is None:
            return None
        if not isinstance(found, np.ndarray) or len(found) != len(self.tokens):
            raise ModelFormatError(
                f"{self.where}: metadata 'tokenizer.ggml.{name}' is not an array of {len(self.tokens)} numbers, one "
                f"for each token; {_ACCEPTED}"
            )
        return found

    def scores(self) -> np.ndarray:
        """Of every token."""
        found = self._numbers("scores")
        if found is None or not np.isfinite(found).all():
            raise ModelFormatError(f"{self.where}: metadata 'tokenizer.ggml.scores' is missing, or not finite")
        return found

    def text(self, name: str) -> str:
        """A text of metadata; empty where there is none."""
        return str(self._metadata.get(f"tokenizer.ggml.{name}", ""))

    def flag(self, name: str, usual: bool) -> bool:
        """Whether something is asked for."""
        return bool(self._metadata.get(f"tokenizer.ggml.{name}", usual))

    def around(self, *, begins: bool) -> tuple[list[int], list[int]]:
        """The ids that begin and end every text; `begins`: whether one does where nothing is said."""
        return self._asked("bos", begins), self._asked("eos", False)

    def _asked(self, called: str, usual: bool) -> list[int]:
        token = self._metadata.get(f"tokenizer.ggml.{called}_token_id")
        if token is None or not self.flag(f"add_{called}_token", usual):
            return []
        if not isinstance(token, int) or not 0 <= token < len(self.tokens):
            raise ModelFormatError(f"{self.where}: metadata 'tokenizer.ggml.{called}_token_id' is {token!r}")
        return [token]

    def of(self, *types: int) -> list[int]:
        """The ids of tokens of these types."""
        return [] if self.types is None else [int(token) for token in np.flatnonzero(np.isin(self.types, types))]


def _bytes_tokenizer(described: _Described) -> Tokenizer:
    """Byte-level BPE."""
    pieces, where = described.text("pre"), described.where
    if pieces not in _PIECES:
        shown = f"a tokenizer whose pieces are {printable(pieces)!r}" if pieces else "a tokenizer without 'pre'"
        raise UnsupportedOperator(f"{where} holds {shown}; {_ACCEPTED}, or {', '.join(_PIECES)} in the file")
    if len(set(described.tokens)) != len(described.tokens):
        raise ModelFormatError(f"{where}: metadata 'tokenizer.ggml.tokens' has tokens twice; {_ACCEPTED}")
    vocabulary = {text: token for token, text in enumerate(described.tokens)}
    merges = [merge.partition(" ") for merge in described.texts("merges")]
    for left, _, right in merges:
        if not right or not vocabulary.keys() >= {left, right, left + right}:
            shown = printable(f"{left} {right}")
            raise ModelFormatError(f"{where}: metadata 'tokenizer.ggml.merges' has {shown!r}, which makes no token")
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
            f"{where}: its tokenizer needs the package tokenizers (pip install 'tvm_tiling[text]'); or give ids by "
            "--tokens"
        ) from None
    if not plain["model"]["vocab"].keys() >= set(pre_tokenizers.ByteLevel.alphabet()):
        raise UnsupportedOperator(f"{where} holds a tokenizer without tokens for bytes; {_ACCEPTED}")
    try:
        return OfPackage(Made.from_str(json.dumps(plain)))
    except Exception as error:
        said = " ".join(str(error).split())[:100]
        raise ModelFormatError(f"{where}: no tokenizer can be made of its metadata ({said})") from None


class OfPackage:
    """A tokenizer of the package tokenizers."""

    def __init__(self, made: Any) -> None:
        self._made = made

    def encode(self, text: str) -> list[int]:
        return list(self._made.encode(text).ids)

    def decode(self, ids: Sequence[int]) -> str:
        return str(self._made.decode(list(ids)))


class SentencePieces:
    """A tokenizer of SentencePiece's kind, as llama.cpp runs it: of neighbours whose text together is a token those of
    the highest score are joined first, the first ones of these; what is no token in the end becomes its bytes."""

    def __init__(self, described: _Described) -> None:
        self._tokens = described.tokens
        self._ids = {text: token for token, text in reversed(list(enumerate(described.tokens)))}
        self._scores = described.scores()
        self._around = described.around(begins=True)
        self._prefix = described.flag("add_space_prefix", True)
        self._control = {*described.of(CONTROL, UNKNOWN)}
        # Byte tokens are called <0x41>, whatever their types say.
        named = {byte: self._ids.get(f"<0x{byte:02X}>") for byte in range(256)}
        if None in named.values():
            raise UnsupportedOperator(f"{described.where} holds a tokenizer without tokens for bytes; {_ACCEPTED}")
        self._of_bytes = {byte: token for byte, token in named.items() if token is not None}
        self._bytes = {token: byte for byte, token in self._of_bytes.items()}
        apart = {self._tokens[token] for token in described.of(CONTROL, UNKNOWN, USER)} - {""}
        self._apart = sorted(apart, key=len, reverse=True)

    def encode(self, text: str) -> list[int]:
        """The ids of a text, tokens of control in it by their names."""
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
        """A text around the places of a token that is no part of one, and its id at these."""
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
        """The text in pieces, as far as they can be joined."""
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
                continue  # one of both has been joined with another
            pieces[left], pieces[right] = joined, ""
            after[left] = after[right]
            if after[left] < len(pieces):
                before[after[left]] = left
            offer(before[left])
            offer(left)
        return [piece for piece in pieces if piece]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids."""
        found = bytearray()
        for token in ids:
            if token in self._bytes:
                found.append(self._bytes[token])
            elif 0 <= token < len(self._tokens) and token not in self._control:
                found += self._tokens[token].replace(_SPACE, " ").encode("utf-8", "replace")
        return found.decode("utf-8", "replace")
