"""A convolution as a program of loads, matrix operations and stores, tile by tile of a given mapping.

Each tile loads its weights and its part of the image, and one instruction multiplies them. Results are stored after the
last tile that adds to them, saturated to 8 bits. Tiles alternate between two halves of each buffer, so that the loads
of one tile and the stores of another overlap with computation. The program computes what it times.
"""

from __future__ import annotations

import itertools

from ..decide.conv.mapping import ConvMapping
from ..errors import HardwareError
from ..hardware.description import Hardware
from ..workload import ConvWorkload
from .instructions.table import Opcode
from .program.builder import At, ProgramBuilder
from .program.program import Program


def mapped_convolution(workload: ConvWorkload, mapping: ConvMapping, hardware: Hardware) -> Program:
    """Return the program of an int8 `workload` under a `mapping`: inputs x[h, w, ci] and w[kh, kw, ci, co], output
    y[ho, wo, co].

    WorkloadError if the mapping does not divide the workload. HardwareError if a tile does not fit: operands share
    near_tile.buf_a bytes, sums have near_tile.acc_max bytes; both are half of what the chip has.
    """
    build = ProgramBuilder(hardware)
    parts = _Parts(build, workload, mapping)
    t, tiles = mapping, mapping.tiles(workload)
    for number, (k, q, p, s, r, c) in enumerate(itertools.product(*(range(tiles[axis]) for axis in "KQPSRC"))):
        first = (s, r, c) == (0, 0, 0)
        turn = number // (tiles["S"] * tiles["R"] * tiles["C"]) % 2
        parts.load(number % 2, k * t.k, c * t.c, q * t.q, p * t.p, s * t.s, r * t.r)
        parts.multiply(number % 2, turn, accumulate=not first)
        if (s, r, c) == (tiles["S"] - 1, tiles["R"] - 1, tiles["C"] - 1):
            parts.store(turn, k * t.k, q * t.q, p * t.p)
    return build.build()


class _Parts:
    """The instructions of a tile. Halves of buffers are 0 or 1; positions are elements along the axes."""

    def __init__(self, build: ProgramBuilder, workload: ConvWorkload, mapping: ConvMapping) -> None:
        c, t = workload, mapping
        unit = build.machine.hardware.near_tile
        self.build, self.conv, self.tile = build, c, t
        self.high, self.wide = t.lines(c)
        self.sums = t.q * t.p * t.k * 4
        weights, inputs = t.s * t.r * t.c * t.k, self.high * self.wide * t.c
        if unit is None or weights + inputs > unit.buf_a or self.sums > unit.acc_max or c.dtype != "int8":
            raise HardwareError(
                f"{build.machine.hardware.name}: a {c.dtype} tile has {weights} + {inputs} bytes of operands "
                f"and {self.sums} of sums; expected int8, near_tile.buf_a bytes of operands and "
                "near_tile.acc_max of sums"
            )
        self.half = unit.buf_a
        build.region("conv", repr(c), repr(t))
        self.x = build.tensor("x", "int8", (c.h, c.w, c.ci), role="input", operand="b")
        self.w = build.tensor("w", "int8", (c.kh, c.kw, c.ci, c.co), role="input", operand="a")
        self.y = build.tensor("y", "int8", (c.ho, c.wo, c.co), role="output", operand="out")

    def load(self, half: int, k: int, c: int, q: int, p: int, s: int, r: int) -> None:
        """Load the weights and the part of the image."""
        conv, t = self.conv, self.tile
        place = self.w.address + ((s * conv.kw + r) * conv.ci + c) * conv.co + k
        lines = (conv.kw * conv.ci * conv.co, conv.ci * conv.co, conv.co, 1)
        self.build.append(
            Opcode.LOAD,
            "load_a",
            (t.s, t.r, t.c, t.k),
            a=At("external", place, lines, "int8"),
            c=At("a", half * self.half, (t.r * t.c * t.k, t.c * t.k, t.k, 1), "int8"),
        )
        above, left = q * conv.stride[0] + s, p * conv.stride[1] + r
        self.build.append(
            Opcode.LOAD,
            "load_b",
            (1, self.high, self.wide, t.c),
            a=At(
                "external",
                self.x.address + (above * conv.w + left) * conv.ci + c,
                (0, conv.w * conv.ci, conv.ci, 1),
                "int8",
            ),
            c=At("b", half * self.half, (0, self.wide * t.c, t.c, 1), "int8"),
        )

    def multiply(self, half: int, turn: int, *, accumulate: bool) -> None:
        """Multiply a whole tile."""
        conv, t = self.conv, self.tile
        line = self.wide * t.c
        self.build.append(
            Opcode.GEMM,
            "matrix",
            (t.k, t.q, t.p, t.s, t.r, t.c),
            a=At("a", half * self.half, (1, 0, 0, t.r * t.c * t.k, t.c * t.k, t.k), "int8"),
            b=At("b", half * self.half, (0, conv.stride[0] * line, conv.stride[1] * t.c, line, t.c, 1), "int8"),
            c=At("acc", turn * self.sums, (1, t.p * t.k, t.k), "int32"),
            accumulate=accumulate,
        )

    def store(self, turn: int, k: int, q: int, p: int) -> None:
        """Store complete results."""
        conv, t = self.conv, self.tile
        self.build.append(
            Opcode.STORE,
            "store",
            (1, t.q, t.p, t.k),
            a=At("acc", turn * self.sums, (0, t.p * t.k, t.k, 1), "int32"),
            c=At(
                "external", self.y.address + (q * conv.wo + p) * conv.co + k, (0, conv.wo * conv.co, conv.co, 1), "int8"
            ),
        )
