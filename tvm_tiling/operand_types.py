"""Element types, the types of a matrix multiplication's operands, and the storage of its second operand."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from .errors import WorkloadError, nearest


class Element(NamedTuple):
    """Bits of an element, and the type in which its products are accumulated; None if it is not multiplied."""

    bits: int
    accumulator: str | None


ELEMENTS = {
    "float64": Element(64, "float64"),
    "float32": Element(32, "float32"),
    "float16": Element(16, "float32"),
    "bfloat16": Element(16, "float32"),
    "int32": Element(32, None),
    "int16": Element(16, "int32"),
    "int8": Element(8, "int32"),
    "uint8": Element(8, "int32"),
}
OPERAND_TYPES = tuple(name for name, element in ELEMENTS.items() if element.accumulator)
"""Operand types of multiplications. The types supported by a CPU depend on its instructions
(decide/gemm/dot_engine.py), those of an accelerator on its description."""

HALVES = ("bfloat16", "float16")


def holds_sums(dtype: str) -> bool:
    """Return whether results of `dtype` may hold partial sums: half precision would round them, and its products
    are added in float32."""
    return dtype not in HALVES


def held_as(dtype: str) -> str:
    """The type of packed elements of `dtype`: TVM converts bfloat16 to float32 wherever it computes with it, so packed
    elements are kept as bits."""
    return "int16" if dtype == "bfloat16" else dtype


def element_bytes(dtype: str) -> int:
    """Bytes of one element of `dtype`. Raises WorkloadError if the type is unknown."""
    if dtype not in ELEMENTS:
        raise WorkloadError(f"unknown element type {dtype!r}; {nearest(dtype, ELEMENTS)}")
    return ELEMENTS[dtype].bits // 8


def is_integer(dtype: str) -> bool:
    """Return whether elements are integers."""
    return dtype.lstrip("u").startswith("int")


@dataclass(frozen=True)
class OperandTypes:
    """Types of A, of B after decoding, of the accumulators, and of the result. For a convolution A is the input and B
    the kernels; for recurrent layers B is the weights."""

    a: str
    b: str
    acc: str
    out: str

    @property
    def operands(self) -> str:
        """Types of A and B as text: one name if they are equal."""
        return self.a if self.a == self.b else f"{self.a} by {self.b}"

    @classmethod
    def of(cls, owner: str, a: str, b: str | None, acc: str | None, out: str | None) -> OperandTypes:
        """The types of a workload, by default: B as A, accumulators of the wider operand's accumulator type, and
        results as accumulators. Raises WorkloadError with the name of the workload for incompatible types."""
        b = b or a
        for dtype in (a, b):
            if dtype not in OPERAND_TYPES:
                raise WorkloadError(f"{owner}: unknown element type {dtype!r}; {nearest(dtype, OPERAND_TYPES)}")
        if is_integer(a) != is_integer(b):
            raise WorkloadError(f"{owner}: b_dtype = {b!r} with dtype = {a!r}; expected integers or floats for both")
        usual = ELEMENTS[max(a, b, key=lambda dtype: ELEMENTS[dtype].bits)].accumulator
        assert usual is not None  # operand types have an accumulator
        acc = acc or usual
        for dtype in (acc, out or acc):
            element_bytes(dtype)
        if is_integer(acc) != is_integer(usual):
            raise WorkloadError(f"{owner}: acc_dtype = {acc!r} cannot accumulate products of {a}; expected {usual}")
        return cls(a, b, acc, out or acc)


@dataclass(frozen=True, kw_only=True)
class WeightFormat:
    """A storage format of B.

    `bits` of an element in blocks that share a scale, None: elements stored unchanged; `decode`: vector instructions
    that make a vector of floats from the stored elements, without loads; `separate`: those that make a vector of a dot
    instruction's bytes; `emitted`: whether kernels can read it.
    """

    bits: int | None = None
    decode: float = 0.0
    separate: float = 0.0
    emitted: bool = False


WEIGHT_FORMATS = {
    "plain": WeightFormat(emitted=True),
    "prepacked": WeightFormat(emitted=True),  # in the panels of the kernel that reads it
    "int8": WeightFormat(bits=8, decode=3.0, emitted=True),  # shift, mask, convert
    "int6": WeightFormat(bits=6, decode=4.25, separate=5.0, emitted=True),  # four bits and two joined before
    "int4": WeightFormat(bits=4, decode=3.0, separate=1.5, emitted=True),  # as 8 bits
}
"""All storage formats of B, by name."""

BLOCK = 32  # elements along k that share a scale by default
_ZERO_POINTS, _OFFSETS = "zero_points", "offsets"


@dataclass(frozen=True, kw_only=True)
class Encoding:
    """The encoding of B: its `format`, a row of WEIGHT_FORMATS.

    For a blocked format also the elements along k of a `block`, the type of its `scales`, and whether it has a zero
    point with as many bits as an element, or `offsets`: q scale - offset, with an offset of the scales' type for each
    block. Scales and offsets of "int8" are integers times float16 values shared by `grouped` blocks.

    As text: "int4:32:float16:zero_points", of which all but the format are optional; "int4:32:int8/8:offsets".
    """

    format: str = "plain"
    block: int = 0
    scales: str = ""
    zero_points: bool = False
    offsets: bool = False
    grouped: int = 0

    def __post_init__(self) -> None:
        if self.format not in WEIGHT_FORMATS:
            raise WorkloadError(f"encoding: unknown format {self.format!r}; {nearest(self.format, WEIGHT_FORMATS)}")
        if self.how.bits is None:
            if self.block or self.scales or self.zero_points or self.offsets or self.grouped:
                raise WorkloadError(f"encoding: format {self.format!r} has no blocks; expected the format alone")
            return
        object.__setattr__(self, "block", self.block or BLOCK)
        object.__setattr__(self, "scales", self.scales or "float32")
        if type(self.block) is not int or self.block < 1:
            raise WorkloadError(f"encoding: block = {self.block!r}; expected a whole number of at least 1")
        element_bytes(self.scales)
        if type(self.grouped) is not int or self.grouped < 0:
            raise WorkloadError(f"encoding: grouped = {self.grouped!r}; expected a whole number")
        if (self.scales != "int8" and is_integer(self.scales)) or (self.scales == "int8") != (self.grouped > 0):
            blocks = f"{self.scales}/{self.grouped}" if self.grouped else self.scales
            raise WorkloadError(
                f"encoding: scales of {blocks}; expected a floating-point type, or as in int8/8 if 8 blocks "
                "share a factor"
            )
        if self.offsets and self.zero_points:
            raise WorkloadError("encoding: offsets and zero_points are both given; expected one of them")

    @classmethod
    def parse(cls, text: str) -> Encoding:
        """The encoding for the result of `str`."""
        name, *rest = text.split(":")
        last = rest[-1] if rest and rest[-1] in (_ZERO_POINTS, _OFFSETS) else ""
        block, scales, *more = [*rest[: len(rest) - bool(last)], "", ""]
        scales, slash, grouped = scales.partition("/")
        numbers = re.fullmatch("[0-9]{0,9}", block) and re.fullmatch("[0-9]{1,9}" if slash else "", grouped)
        if any(more) or not numbers:
            raise WorkloadError(f"encoding: {text!r}; expected as in 'plain' or 'int4:32:float16:zero_points'")
        return cls(
            format=name,
            block=int(block or 0),
            scales=scales,
            zero_points=last == _ZERO_POINTS,
            offsets=last == _OFFSETS,
            grouped=int(grouped or 0),
        )

    def __str__(self) -> str:
        if self.how.bits is None:
            return self.format
        scales = f"{self.scales}/{self.grouped}" if self.grouped else self.scales
        last = [_ZERO_POINTS] * self.zero_points + [_OFFSETS] * self.offsets
        return ":".join((self.format, str(self.block), scales, *last))

    @property
    def how(self) -> WeightFormat:
        """The format's row."""
        return WEIGHT_FORMATS[self.format]

    def element_bytes(self, dtype: str) -> float:
        """Bytes of one element of `dtype`, including its share of the values common to its block."""
        if self.how.bits is None:
            return element_bytes(dtype)
        own = 8 * element_bytes(self.scales) + (16 / self.grouped if self.grouped else 0)
        shared = own * (1 + self.offsets) + self.how.bits * self.zero_points
        return (self.how.bits + shared / self.block) / 8


PLAIN, PREPACKED = Encoding(), Encoding(format="prepacked")
