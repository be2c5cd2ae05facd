"""Tensor types of GGUF files, and their lossless conversion to the blocks used here.

Layouts are those of ggml's ggml-common.h and of quants.py of the package gguf, which the tests compare with. A file
block of 32 weights becomes one block here; one of 256 becomes a group of blocks of 16 or 32, whose scales and minima
are integers times the two float16 values of the group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ...lowering.weight_panels import Blocks
from ...operand_types import Encoding

_SUPER = 256


@dataclass(frozen=True)
class TensorType:
    """`elements` are stored together in `bytes`. `dtype`: NumPy's name of plain elements, or "bfloat16"; otherwise the
    block encoding, and the function that returns blocks from uint8[rows, bytes of a row]. With none of the three, the
    type is not supported."""

    name: str
    elements: int
    bytes: int
    dtype: str | None = None
    encoding: Encoding | None = None
    blocks: Callable[[np.ndarray], Blocks] | None = None

    def read(self, parts: Sequence[np.ndarray], _: object) -> Blocks:
        """Return the blocks of rows, whose bytes are the only part."""
        assert self.blocks is not None
        return self.blocks(parts[0])

    @property
    def is_supported(self) -> bool:
        """Whether matrix multiplications and tables of this type are supported."""
        return self.dtype is not None or self.encoding is not None


def _parts(data: np.ndarray, *sizes: int) -> list[np.ndarray]:
    """Return the bytes of rows, [rows, bytes], as parts of blocks: [rows, blocks, size] for each size."""
    whole = data.reshape(len(data), -1, sum(sizes))
    ends = np.cumsum(sizes)
    return [whole[..., end - size : end] for size, end in zip(sizes, ends, strict=True)]


def _halves(part: np.ndarray) -> np.ndarray:
    """Return float16[rows, blocks] from two bytes each."""
    return np.ascontiguousarray(part).view("<f2")[..., 0]


def _fields(part: np.ndarray, bits: int) -> np.ndarray:
    """Return the bit fields of bytes [rows, blocks, n], lower ones first: [rows, blocks, 8 / bits, n]."""
    whole, mask = np.ascontiguousarray(part), np.uint8((1 << bits) - 1)
    made = np.empty((*part.shape[:-1], 8 // bits, part.shape[-1]), np.uint8)
    for place in range(8 // bits):
        made[..., place, :] = (whole >> np.uint8(bits * place)) & mask
    return made


def _whole(values: np.ndarray, block: int) -> np.ndarray:
    """Return values [rows, ...] as [rows, blocks, elements] in the order of K."""
    return values.reshape(len(values), -1, block)


# ---- blocks of 32 ----------------------------------------------------------------------------------------------------


def _q4_0(data: np.ndarray) -> Blocks:
    scales, low = _parts(data, 2, 16)
    return Blocks(_whole(_fields(low, 4), 32), _halves(scales))


def _q4_1(data: np.ndarray) -> Blocks:
    scales, least, low = _parts(data, 2, 2, 16)
    return Blocks(_whole(_fields(low, 4), 32), _halves(scales), offsets=-_halves(least))


def _fifth_bits(high: np.ndarray) -> np.ndarray:
    """Return 0 or 16 for each weight, from bit k of 32."""
    return _whole(np.unpackbits(np.ascontiguousarray(high), axis=-1, bitorder="little") << np.uint8(4), 32)


def _q5_0(data: np.ndarray) -> Blocks:
    scales, high, low = _parts(data, 2, 4, 16)
    # the midpoint is 16, that of 6-bit values 32
    values = (_whole(_fields(low, 4), 32) | _fifth_bits(high)) + np.uint8(16)
    return Blocks(values, _halves(scales))


def _q5_1(data: np.ndarray) -> Blocks:
    scales, least, high, low = _parts(data, 2, 2, 4, 16)
    values = _whole(_fields(low, 4), 32) | _fifth_bits(high)
    return Blocks(values, _halves(scales), offsets=-_halves(least))


def _q8_0(data: np.ndarray) -> Blocks:
    scales, values = _parts(data, 2, 32)
    return Blocks(values ^ np.uint8(128), _halves(scales))


# ---- groups of 256 ---------------------------------------------------------------------------------------------------


def _scales_and_minima(packed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return int8[rows, blocks] scales and minima from 12 bytes that hold eight of each in 6 bits."""
    d, m, both = packed[..., 0:4], packed[..., 4:8], packed[..., 8:12]
    scales = np.concatenate([d & 63, (both & 15) | ((d >> 2) & 48)], axis=-1)
    minima = np.concatenate([m & 63, (both >> 4) | ((m >> 2) & 48)], axis=-1)
    rows = len(packed)
    return scales.reshape(rows, -1).astype(np.int8), minima.reshape(rows, -1).astype(np.int8)


def _q2_k(data: np.ndarray) -> Blocks:
    both, low, d, least = _parts(data, 16, 64, 2, 2)
    values = _fields(low.reshape(len(data), -1, 32), 2)
    scales, minima = (part.reshape(len(data), -1).astype(np.int8) for part in (both & 15, both >> 4))
    packed = _whole(values, 16)
    return Blocks(packed, scales, offsets=minima, factors=(_halves(d), _halves(least)))


def _q3_k(data: np.ndarray) -> Blocks:
    high, low, packed, d = _parts(data, 32, 64, 12, 2)
    rows = len(data)
    four = _fields(packed[..., :8], 4).reshape(rows, -1, 16)
    two = _fields(packed[..., 8:], 2).reshape(rows, -1, 16)
    scales = (four | (two << np.uint8(4))).astype(np.int8) - np.int8(32)
    third = _fields(high, 1).reshape(rows, -1, 256)  # a set bit: no subtraction
    values = _fields(low.reshape(rows, -1, 32), 2).reshape(rows, -1, 256) | (third << np.uint8(2))
    return Blocks(_whole(values + np.uint8(4), 16), scales.reshape(rows, -1), factors=(_halves(d),))


def _q4_k(data: np.ndarray) -> Blocks:
    d, least, packed, low = _parts(data, 2, 2, 12, 128)
    scales, minima = _scales_and_minima(packed)
    values = _fields(low.reshape(len(data), -1, 32), 4)
    factors = (_halves(d), _halves(least))
    return Blocks(_whole(values, 32), scales, offsets=minima, factors=factors)


def _q5_k(data: np.ndarray) -> Blocks:
    d, least, packed, high, low = _parts(data, 2, 2, 12, 32, 128)
    rows = len(data)
    scales, minima = _scales_and_minima(packed)
    fifth = _fields(high, 1).reshape(rows, -1, 256)
    values = _fields(low.reshape(rows, -1, 32), 4).reshape(rows, -1, 256) | (fifth << np.uint8(4))
    return Blocks(_whole(values, 32), scales, offsets=minima, factors=(_halves(d), _halves(least)))


def _q6_k(data: np.ndarray) -> Blocks:
    low, high, scales, d = _parts(data, 128, 64, 16, 2)
    rows = len(data)
    four = _fields(low.reshape(rows, -1, 64), 4).reshape(rows, -1, 256)
    two = _fields(high.reshape(rows, -1, 32), 2).reshape(rows, -1, 256)
    values = four | (two << np.uint8(4))
    return Blocks(_whole(values, 16), scales.reshape(rows, -1).view(np.int8), factors=(_halves(d),))


TENSOR_TYPES = {
    0: TensorType("F32", 1, 4, dtype="<f4"),
    1: TensorType("F16", 1, 2, dtype="<f2"),
    30: TensorType("BF16", 1, 2, dtype="bfloat16"),
    2: TensorType("Q4_0", 32, 18, encoding=Encoding.parse("int4:32:float16"), blocks=_q4_0),
    3: TensorType("Q4_1", 32, 20, encoding=Encoding.parse("int4:32:float16:offsets"), blocks=_q4_1),
    6: TensorType("Q5_0", 32, 22, encoding=Encoding.parse("int6:32:float16"), blocks=_q5_0),
    7: TensorType("Q5_1", 32, 24, encoding=Encoding.parse("int6:32:float16:offsets"), blocks=_q5_1),
    8: TensorType("Q8_0", 32, 34, encoding=Encoding.parse("int8:32:float16"), blocks=_q8_0),
    10: TensorType("Q2_K", _SUPER, 84, encoding=Encoding.parse("int4:16:int8/16:offsets"), blocks=_q2_k),
    11: TensorType("Q3_K", _SUPER, 110, encoding=Encoding.parse("int4:16:int8/16"), blocks=_q3_k),
    12: TensorType("Q4_K", _SUPER, 144, encoding=Encoding.parse("int4:32:int8/8:offsets"), blocks=_q4_k),
    13: TensorType("Q5_K", _SUPER, 176, encoding=Encoding.parse("int6:32:int8/8:offsets"), blocks=_q5_k),
    14: TensorType("Q6_K", _SUPER, 210, encoding=Encoding.parse("int6:16:int8/16"), blocks=_q6_k),
    9: TensorType("Q8_1", 32, 36),
    15: TensorType("Q8_K", _SUPER, 292),
    16: TensorType("IQ2_XXS", _SUPER, 66),
    17: TensorType("IQ2_XS", _SUPER, 74),
    18: TensorType("IQ3_XXS", _SUPER, 98),
    19: TensorType("IQ1_S", _SUPER, 50),
    20: TensorType("IQ4_NL", 32, 18),
    21: TensorType("IQ3_S", _SUPER, 110),
    22: TensorType("IQ2_S", _SUPER, 82),
    23: TensorType("IQ4_XS", _SUPER, 136),
    24: TensorType("I8", 1, 1),
    25: TensorType("I16", 1, 2),
    26: TensorType("I32", 1, 4),
    27: TensorType("I64", 1, 8),
    28: TensorType("F64", 1, 8),
    29: TensorType("IQ1_M", _SUPER, 56),
    34: TensorType("TQ1_0", _SUPER, 54),
    35: TensorType("TQ2_0", _SUPER, 66),
    39: TensorType("MXFP4", 32, 17),
}
"""Tensor types by ggml's number."""
