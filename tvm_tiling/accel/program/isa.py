"""How an instruction of the simulated accelerator is recorded: one record of numbers that fits every instruction.

An instruction belongs to one in-order queue, waits for tokens of other queues before it starts, and signals tokens to
others when its result is there (VTA's way). It is a loop nest of up to six loops over operands that are walked with
fixed strides. Which loops an instruction walks, and what it does with a, b and c, the table of instructions says
(:mod:`tvm_tiling.accel.instructions.table`).

All operands are read before c is written. Addresses are bytes within a memory, strides are elements of the operand's
type (`dtype` of a and b, `result_dtype` of c), extents are at least 1. Memories, queues and regions are numbers into
the program's tables.
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
    """How an instruction does it."""

    ACCUMULATE = 1  # sums of products are added to c
    IMMEDIATE = 2  # the second operand of a vector function is immediate[0]


class ElementType(enum.IntEnum):
    """Types of elements, in the order of their numbers in a program file."""

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
        ("region", "<u2"),  # of the program's regions: the operator of the source that it belongs to
        ("wait", "<u2", (QUEUES,)),  # tokens taken from each queue's channel to this one before it starts
        ("signal", "<u2", (QUEUES,)),  # tokens put into the channel to each queue when its result is there
        ("a_memory", "u1"),
        ("b_memory", "u1"),
        ("c_memory", "u1"),
        ("block", "u1"),  # of a WCONV, else 0
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
"""One instruction; a program holds an array of them."""

_ELEMENT_BYTES = np.array([kind.bytes for kind in ElementType], dtype=np.int64)


def element_bytes(instructions: np.ndarray, operand: Operand) -> np.ndarray:
    """Bytes of an element of the operand, of each instruction of an INSTRUCTION array."""
    return _ELEMENT_BYTES[instructions["result_dtype" if operand == "c" else "dtype"]]
