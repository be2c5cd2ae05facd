"""Encoding of an instruction of the simulated accelerator: one record of numbers that fits every instruction.

An instruction belongs to one in-order queue, waits for tokens of other queues before it starts, and signals tokens to
others when its result is available, as in VTA. It is a loop nest of up to six loops over operands with constant
strides. The instruction table (:mod:`tvm_tiling.accel.instructions.table`) defines which loops each instruction uses
and what it does with a, b and c.

All operands are read before c is written. Addresses are bytes within a memory, strides are elements of the operand's
type (`dtype` of a and b, `result_dtype` of c), extents are at least 1. Memories, queues and regions are indices into
the tables of the program.
"""

from __future__ import annotations

import enum
from typing import Literal

import numpy as np

Operand = Literal["a", "b", "c"]
OPERANDS: tuple[Operand, ...] = ("a", "b", "c")

QUEUES = 8  # most queues of a machine
LOOPS = 6


class Flag(enum.IntFlag):
    """Modifiers of an instruction."""

    ACCUMULATE = 1  # accumulate onto c
    IMMEDIATE = 2  # the second operand of a vector function is immediate[0]


class ElementType(enum.IntEnum):
    """Element types, in the order of their numbers in a program file."""

    INT8 = 0
    INT16 = 1
    INT32 = 2
    FLOAT32 = 3
    BFLOAT16 = 4
    UINT8 = 5
    FLOAT16 = 6

    @property
    def bytes(self) -> int:
        return _BYTES[self]


_BYTES = {
    ElementType.INT8: 1,
    ElementType.INT16: 2,
    ElementType.INT32: 4,
    ElementType.FLOAT32: 4,
    ElementType.BFLOAT16: 2,
    ElementType.UINT8: 1,
    ElementType.FLOAT16: 2,
}

INSTRUCTION = np.dtype(
    [
        ("op", "u1"),
        ("queue", "u1"),
        ("function", "u1"),
        ("flags", "u1"),
        ("dtype", "u1"),
        ("result_dtype", "u1"),
        ("region", "<u2"),  # the region of the program, that is, the source operator it belongs to
        ("wait", "<u2", (QUEUES,)),  # tokens taken from the channel of each queue before it starts
        ("signal", "<u2", (QUEUES,)),  # tokens put into the channel to each queue when its result is available
        ("a_memory", "u1"),
        ("b_memory", "u1"),
        ("c_memory", "u1"),
        ("block", "u1"),  # of a WCONV, otherwise 0
        ("a", "<i8"),  # byte addresses
        ("b", "<i8"),
        ("c", "<i8"),
        ("extent", "<i4", (LOOPS,)),
        ("a_stride", "<i4", (LOOPS,)),  # elements
        ("b_stride", "<i4", (LOOPS,)),
        ("c_stride", "<i4", (LOOPS,)),
        ("pad", "<i4", (4,)),
        ("immediate", "<f8", (2,)),
    ]
)
"""One instruction; a program holds an array of these."""

_ELEMENT_BYTES = np.array([kind.bytes for kind in ElementType], dtype=np.int64)


def element_bytes(instructions: np.ndarray, operand: Operand) -> np.ndarray:
    """Return the bytes per element of the operand for each instruction of an INSTRUCTION array."""
    return _ELEMENT_BYTES[instructions["result_dtype" if operand == "c" else "dtype"]]
