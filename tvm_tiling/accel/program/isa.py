"""The instruction set of the simulated accelerator (page 06): what a program's instructions are, as columns of numbers.

An instruction belongs to one in-order queue, waits for tokens of other queues before it starts, and gives tokens to
others when its result is there (VTA's way). Every instruction but a token-only one (NOP) is a loop nest of up to six
loops over operands that are walked with fixed strides, so that one record fits all of them:

    LOAD, STORE   c[d0, d1, d2, d3] = a[d0, d1, d2, d3]; a border of `pad` = (before d1, after d1, before d2, after d2)
                  in c gets the value immediate[0]; extents are those of a, c is larger by its border
    FILL          c[d0, d1, d2, d3] = immediate[0]
    GEMM, WCONV,  c[m, n0, n1] (+)= sum over k0, k1, k2 of a[m, k0, k1, k2] * b[n0, n1, k0, k1, k2]; loops in the order
    COLMV         m, n0, n1, k0, k1, k2; adds to c where the flag ACCUMULATE is set, else overwrites it. The three
                  differ in the engine that does it and so in time: the matrix engine of page 01, the rows of page 05
                  (m: output channels, n0, n1: output rows and columns, k0, k1, k2: kernel rows, columns, channels;
                  immediate = (PCI, PCO) in bytes, PCI 0: the one of fewest cycles, PCO 0: results stay on the chip,
                  block: output channels of a sub-unit between two passes over the input, 0: all of them),
                  the columns of page 04 (m: rows, k2: columns; immediate = (EP, VP). All columns in one instruction is
                  row-wise order, which needs the whole vector; columns of x in one and those of h, added to them, in
                  the next is column-wise order, which starts before h is there). Integers are summed in the type of
                  c, int32 or int16, and wrap round there; floats in float32, rounded once
    ALU           c = function(a, b) over d0..d3; b is the number immediate[0] where the flag IMMEDIATE is set. A loop
                  whose stride in c is 0 reduces: c = function(c, a), c being read first
    NOP           nothing but its tokens

All operands are read before c is written. Addresses are bytes within a memory, strides are elements of the operand's
type (`dtype` of a and b, `result_dtype` of c), extents are at least 1. Memories, queues and regions are numbers into
the program's tables.
"""

from __future__ import annotations

import enum

import numpy as np

QUEUES = 8  # most queues of a machine
LOOPS = 6


class Opcode(enum.IntEnum):
    """What an instruction does."""

    NOP = 0
    LOAD = 1
    STORE = 2
    FILL = 3
    GEMM = 4
    WCONV = 5
    COLMV = 6
    ALU = 7


class Flag(enum.IntFlag):
    """How it does it."""

    ACCUMULATE = 1  # a product adds to its result
    IMMEDIATE = 2  # the second operand of ALU is immediate[0]


class Function(enum.IntEnum):
    """Functions of the vector engine, of elements of one type, the results elements of c.

    Integers are computed exactly and saturate once, when they become elements of c; floats are computed in float32 and
    rounded once. A float becomes an integer by dropping its fraction, and saturates. Reductions are ADD, SUB, MUL, MAX
    and MIN; their partial results are kept as exactly until their end, and floats are added in the order of the loops.
    DIV of integers drops the fraction.

    SHIFT is a shift to the right by b, to the left where b is negative, rounding halves away from zero upwards
    (floor(x / 2^b + 1/2)). SCALE is requantisation in one step: round(a * immediate[0]) with halves to even, plus
    immediate[1], as ONNX's QuantizeLinear; a is int32 or float32. CLIP bounds a to immediate[0] .. immediate[1].
    SIGMOID and TANH take and give floats, or 16-bit fixed point by table with immediate[0] fraction bits.
    """

    COPY = 0
    ADD = 1
    SUB = 2
    MUL = 3
    MAX = 4
    MIN = 5
    SHIFT = 6
    CLIP = 7
    RELU = 8
    SIGMOID = 9
    TANH = 10
    SCALE = 11
    DIV = 12
    EXP = 13
    SQRT = 14


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
