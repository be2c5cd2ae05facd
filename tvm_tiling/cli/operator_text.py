"""Operators as text: "gemm 64 16384 64 dtype=int8", "conv n=1 h=224 w=224 ci=3 co=64 kh=7 kw=7 stride=2",
"lstm steps=100 input_size=256 hidden_size=512", which is short for "rnn cell=lstm ...".

The first word is the operator; the others are `key=value` with fields of its workload as keys. The sizes of a gemm may
be given without keys in the order m k n: C (m x n) = A (m x k) * B (k x n).
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from typing import Any

from ..errors import TilingError, nearest
from ..workload import ConvWorkload, GemmWorkload, RnnWorkload

Workload = GemmWorkload | ConvWorkload | RnnWorkload

OPERATORS: dict[str, type[Workload]] = {
    "gemm": GemmWorkload,
    "conv": ConvWorkload,
    "rnn": RnnWorkload,
    "lstm": RnnWorkload,
    "gru": RnnWorkload,
}
# Fields that the first word sets.
SAID: dict[str, dict[str, Any]] = {"lstm": {"cell": "lstm"}, "gru": {"cell": "gru"}}
# Sizes that may be given without keys, in this order.
BARE_SIZES: dict[str, tuple[str, ...]] = {"gemm": ("m", "k", "n")}
# Fields of several numbers, with their count; a single number sets all of them.
TUPLES = {"stride": 2, "dilation": 2, "padding": 4, "padding_d": 2, "output_padding": 2}
TRUTH = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}


class OperatorTextError(TilingError):
    """An operator's text cannot be parsed. The message quotes the word and gives its place."""


def parse_operator(text: str) -> Workload:
    """The workload that `text` describes.

    Raises OperatorTextError with the word, its place and what is expected; WorkloadError if a size is impossible.
    """
    words = text.split()
    if not words:
        raise OperatorTextError(f"the operator is empty; expected {_EXAMPLES}")
    if words[0] not in OPERATORS:
        raise OperatorTextError(
            f"word 1, {words[0]!r}, is not an operator; {nearest(words[0], OPERATORS)}; examples: {_EXAMPLES}"
        )
    operator, kind = words[0], OPERATORS[words[0]]
    values: dict[str, Any] = dict(SAID.get(operator, {}))
    bare = list(BARE_SIZES.get(operator, ()))
    for place, word in enumerate(words[1:], start=2):
        where = f"{operator}: word {place}, {word!r}"
        key, equals, value = word.partition("=")
        if not equals:
            key, value = _bare(where, operator, word, bare), word
        known = {field.name: str(field.type) for field in dataclasses.fields(kind)}
        if key not in known:
            raise OperatorTextError(f"{where}: unknown key {key!r}; {nearest(key, known)}")
        if key in SAID.get(operator, {}):
            raise OperatorTextError(f"{where}: {operator!r} sets {key} already; use 'rnn' with {key}=...")
        if key in values:
            raise OperatorTextError(f"{where}: {key} is given twice")
        values[key] = _value(where, key, value, known[key])
    _check_complete(operator, kind, values)
    return kind(**values)


def parse_product(text: str) -> GemmWorkload | ConvWorkload:
    """As parse_operator, for matrix multiplications and convolutions. OperatorTextError for recurrent layers."""
    workload = parse_operator(text)
    if isinstance(workload, RnnWorkload):
        word = text.split()[0]
        raise OperatorTextError(
            f"word 1, {word!r}: recurrent layers are not tuned or kept in databases; expected conv or gemm"
        )
    return workload


_EXAMPLES = '"gemm 1024 1024 1024" (m k n) or "conv n=1 h=56 w=56 ci=64 co=64 kh=3 kw=3 padding=1"'


def _bare(where: str, operator: str, word: str, left: list[str]) -> str:
    """The key of a word without one."""
    if left:
        return left.pop(0)
    sizes = BARE_SIZES.get(operator, ())
    if not sizes or not word.isdigit():
        keys = [field.name for field in dataclasses.fields(OPERATORS[operator])]
        raise OperatorTextError(f"{where} is not key=value; {nearest(word, keys)}")
    raise OperatorTextError(f"{where} is one size too many; expected {len(sizes)}: {' '.join(sizes)}")


def _value(where: str, key: str, text: str, annotation: str) -> Any:
    if key in TUPLES:
        return _numbers(where, key, text)
    if annotation == "bool":
        if text.lower() not in TRUTH:
            raise OperatorTextError(f"{where}: {key} is a boolean; expected one of {', '.join(TRUTH)}")
        return TRUTH[text.lower()]
    if annotation.startswith("int"):
        return _number(where, key, text)
    return text


def _number(where: str, key: str, text: str) -> int:
    if not re.fullmatch(r"-?[0-9]{1,18}", text):
        raise OperatorTextError(f"{where}: {key} is an integer; expected up to 18 digits, as in 1024")
    return int(text)


def _numbers(where: str, key: str, text: str) -> tuple[int, ...]:
    count = TUPLES[key]
    parts = tuple(_number(where, key, part) for part in text.split(","))
    if len(parts) not in (1, count):
        raise OperatorTextError(f"{where}: {key} has {len(parts)} numbers; expected {count}, or 1 for all")
    return parts if len(parts) == count else parts * count


def _check_complete(operator: str, kind: type[Workload], given: Iterable[str]) -> None:
    required = [field.name for field in dataclasses.fields(kind) if field.default is dataclasses.MISSING]
    order = BARE_SIZES.get(operator, ()) or required
    missing = [name for name in order if name not in given]
    if missing:
        raise OperatorTextError(
            f"{operator}: {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing; expected "
            f"{' '.join(f'{name}=...' for name in order)}"
        )
