"""A convolution on a row-stationary array as a program, pass by pass of a given mapping.

Each processing element convolves a row of a kernel with a row of the image. R stacked elements produce a row of
results, e such columns form a set; r sets add their sums, t sets use different kernels. An element interleaves the rows
of p kernels and q channels. A pass is what is computed with one load of the kernels:

    passes     n images, e rows of results, m output channels at a time; of these q * r input channels and p * t kernels
    ramp       loads the kernels of the pass and the first window of the image from the global buffer into the elements
    step       one column of results: loads the next image columns and the partial sums from the global buffer, takes
               p * q * S cycles of every element, stores the sums to the global buffer

Sums stay in the global buffer until all input channels are processed. The block of the engine is t x e x (r * R), the
elements that the mapping uses, each doing one multiply-accumulate per cycle. The program computes what it times.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

from ..errors import HardwareError, WorkloadError
from ..hardware.description import Hardware
from ..workload import ConvWorkload
from .instructions.table import Opcode
from .program.builder import At, ProgramBuilder
from .program.program import Program

QUEUES = ("dram", "kernels", "image", "sums_in", "matrix", "sums_out", "results")
MOST_IN_FLIGHT = 16


@dataclass(frozen=True, kw_only=True)
class RowMapping:
    """The sizes of a pass: `n` images, `e` rows of results, `p` * `t` kernels, `q` * `r` channels; the sums of `m`
    output channels are in the global buffer."""

    n: int
    m: int
    e: int
    p: int
    q: int
    r: int
    t: int

    def elements(self, workload: ConvWorkload) -> int:
        """Return the number of processing elements used."""
        return self.t * self.e * self.r * workload.kh


def configured(workload: ConvWorkload, mapping: RowMapping, hardware: Hardware) -> Hardware:
    """Return the machine with its array configured for a mapping. HardwareError if it has too few elements."""
    unit = hardware.near_tile
    working = mapping.elements(workload)
    if unit is None or working > unit.macs_per_cycle:
        raise HardwareError(
            f"{hardware.name}: the mapping needs {working} elements; expected at most near_tile.macs_per_cycle"
        )
    return replace(
        hardware,
        near_tile=replace(
            unit, block_m=mapping.t, block_n=mapping.e, block_k=mapping.r * workload.kh, macs_per_cycle=working
        ),
    )


def row_stationary_convolution(workload: ConvWorkload, mapping: RowMapping, hardware: Hardware) -> Program:
    """Return the program of an int16 `workload` in NCHW on `hardware` as :func:`configured` configures it: inputs x[n,
    ci, h, w] and w[co, ci / groups, kh, kw], output y[n, co, ho, wo], 16-bit sums with wraparound.

    WorkloadError for other layouts and types, dilation, and numbers of images or channels that the mapping does not
    divide. HardwareError if there are too few elements or a buffer is too small.
    """
    c, t = workload, mapping
    inner, outer = c.ci // c.groups, c.co // c.groups
    plain = not c.transposed and c.dilation == (1, 1) and c.d == c.kd == 1
    if c.layout != "NCHW" or c.dtype != "int16" or not plain or max(c.padding) >= min(c.kh, c.kw):
        raise WorkloadError(
            f"row-stationary: {c}; expected int16 in NCHW, two-dimensional, not transposed, not dilated, a "
            "border narrower than the kernel"
        )
    if c.n % t.n or outer % t.m or t.m % (t.p * t.t) or inner % (t.q * t.r):
        raise WorkloadError(
            f"row-stationary: {t} does not divide {c.n} images, {inner} and {outer} channels of a group; "
            "expected n, q * r and m that divide them, and p * t that divides m"
        )
    parts = _Passes(c, t, configured(c, t, hardware))
    for group, n, e, m in itertools.product(
        range(c.groups), range(0, c.n, t.n), range(0, c.ho, t.e), range(0, outer, t.m)
    ):
        rows = min(t.e, c.ho - e)
        for channel in range(0, inner, t.q * t.r):
            parts.load_image(n, group * inner + channel, e, rows)
            for kernel in range(0, t.m, t.p * t.t):
                parts.load_kernels(group * outer + m + kernel, channel)
                parts.run(kernel, rows, first=channel == 0)
        parts.store(n, group * outer + m, e, rows)
    return parts.build.build()


class _Passes:
    """The instructions of passes. The global buffer holds rows of the image [n, channel, row, column] with their
    border, the kernels of a pass, and the sums [n, m, row, column]. As many columns of sums are in flight as the
    elements hold, so that transferring them overlaps with computation."""

    def __init__(self, workload: ConvWorkload, mapping: RowMapping, hardware: Hardware) -> None:
        c, t = workload, mapping
        self.conv, self.map, self.build = c, t, ProgramBuilder(hardware, QUEUES)
        self.channels, self.kernels = t.q * t.r, t.p * t.t
        self.rows = (t.e - 1) * c.stride[0] + c.kh
        self.width = (c.wo - 1) * c.stride[1] + c.kw
        self.taps = c.kh * c.kw
        self.sums_of_column = self.kernels * t.e
        room = self.build.machine.capacity("acc")
        fitting = MOST_IN_FLIGHT if room is None else room // (2 * self.sums_of_column)
        self.in_flight = max(1, min(MOST_IN_FLIGHT, fitting))
        window = -(-c.kw // c.stride[1]) * c.stride[1]
        self.ring = window + c.stride[1]  # columns of the image in the elements: a window, and the next columns
        self.at_kernels = _up(2 * t.n * self.channels * self.rows * self.width)
        self.at_sums = self.at_kernels + _up(2 * self.kernels * self.channels * self.taps)
        self._check_room()
        self.build.region("conv", repr(c), repr(t))
        tensor = self.build.tensor
        self.x = tensor("x", "int16", (c.n, c.ci, c.h, c.w), role="input", operand="b")
        self.w = tensor("w", "int16", (c.co, c.ci // c.groups, c.kh, c.kw), role="input", operand="a")
        self.y = tensor("y", "int16", (c.n, c.co, c.ho, c.wo), role="output", operand="out")
        self.turn = 0

    def _check_room(self) -> None:
        """Raise HardwareError if a buffer is too small for a pass."""
        c, t = self.conv, self.map
        needed = {
            "a": self.kernels * self.channels * self.taps,
            "b": self.ring * self.channels * self.rows,
            "acc": self.sums_of_column,
            "internal": self.at_sums // 2 + t.n * t.m * t.e * c.wo,
        }
        for memory, numbers in needed.items():
            room = self.build.machine.capacity(memory)
            if room is not None and 2 * numbers > room:
                name = self.build.machine.hardware.name
                raise HardwareError(
                    f"{name}: a pass of {t} needs {2 * numbers} bytes of memory {memory!r}; expected at most {room}"
                )

    def load_image(self, n: int, channel: int, e: int, rows: int) -> None:
        """Load rows of each image from DRAM."""
        c, (top, left, _, _) = self.conv, self.conv.padding
        high = (rows - 1) * c.stride[0] + c.kh
        above, begin = max(0, top - e * c.stride[0]), e * c.stride[0] - top
        there = min(c.h, begin + high) - max(0, begin)
        columns = min(c.w, self.width - left)
        for image in range(self.map.n):
            place = ((n + image) * c.ci + channel) * c.h * c.w + max(0, begin) * c.w
            self.build.append(
                Opcode.LOAD,
                "dram",
                (self.channels, there, columns, 1),
                a=At("external", self.x.address + 2 * place, (c.h * c.w, c.w, 1), "int16"),
                c=At("internal", 2 * self._image(image), (self.rows * self.width, self.width, 1), "int16"),
                pad=(above, high - there - above, left, self.width - columns - left),
            )

    def _image(self, image: int) -> int:
        return image * self.channels * self.rows * self.width

    def load_kernels(self, kernel: int, channel: int) -> None:
        """Load the kernels of a pass from DRAM and, once the elements are free, into them."""
        inner = self.conv.ci // self.conv.groups
        row = self.channels * self.taps
        near = At("internal", self.at_kernels, (row, 1), "int16")
        place = self.w.address + 2 * (kernel * inner + channel) * self.taps
        far, extent = At("external", place, (inner * self.taps, 1), "int16"), (self.kernels, row)
        self.build.append(Opcode.LOAD, "dram", extent, a=far, c=near)
        self.build.append(Opcode.LOAD, "kernels", extent, a=near, c=At("a", 0, (row, 1), "int16"))

    def run(self, kernel: int, rows: int, *, first: bool) -> None:
        """Run a pass, `first` if there are no partial sums yet. Images follow each other without a gap."""
        c, step = self.conv, self.conv.stride[1]
        for image in range(self.map.n):
            there, start = (
                0,
                image * self.width,
            )  # columns of this image already loaded, and columns of the images before
            for column in range(c.wo):
                needed = min(self.width, -(-(column * step + c.kw) // step) * step)
                together = needed if not image and not column else step
                for begin in range(there, needed, together):
                    self._columns(image, begin, min(needed, begin + together), start, rows)
                there = max(there, needed)
                self._step(image, kernel, column, start + column * step, rows, first)

    def _columns(self, image: int, begin: int, end: int, start: int, rows: int) -> None:
        """Load columns of the image into the elements, which have received `start` columns of other images before."""
        high = (rows - 1) * self.conv.stride[0] + self.conv.kh
        while begin < end:
            slot = (start + begin) % self.ring
            count = min(end - begin, self.ring - slot)
            self.build.append(
                Opcode.LOAD,
                "image",
                (count, self.channels, high),
                a=At("internal", 2 * (self._image(image) + begin), (1, self.rows * self.width, self.width), "int16"),
                c=At("b", 2 * slot * self.channels * self.rows, (self.channels * self.rows, self.rows, 1), "int16"),
            )
            begin += count

    def _step(self, image: int, kernel: int, column: int, begin: int, rows: int, first: bool) -> None:
        """Compute one column of results of all kernels, whose window begins with column `begin` of the pass."""
        c, build = self.conv, self.build
        near = 2 * (self.turn % self.in_flight) * self.sums_of_column
        self.turn += 1
        place = self.at_sums + 2 * (((image * self.map.m + kernel) * self.map.e) * c.wo + column)
        sums = At("acc", near, (rows, 1), "int16")
        kept = At("internal", place, (self.map.e * c.wo, c.wo), "int16")
        extent = (self.kernels, rows)
        if not first:
            build.append(Opcode.LOAD, "sums_in", extent, a=kept, c=sums)
        tap = 0
        while tap < c.kw:
            slot = (begin + tap) % self.ring
            count = min(c.kw - tap, self.ring - slot)
            build.append(
                Opcode.GEMM,
                "matrix",
                (self.kernels, 1, rows, self.channels, c.kh, count),
                a=At("a", 2 * tap, (self.channels * self.taps, 0, 0, self.taps, c.kw, 1), "int16"),
                b=At(
                    "b",
                    2 * slot * self.channels * self.rows,
                    (0, 0, c.stride[0], self.rows, 1, self.channels * self.rows),
                    "int16",
                ),
                c=At("acc", near, (rows, 0, 1), "int16"),
                accumulate=not first or tap > 0,
            )
            tap += count
        build.append(Opcode.STORE, "sums_out", extent, a=sums, c=kept)

    def store(self, n: int, channel: int, e: int, rows: int) -> None:
        """Store complete sums to DRAM."""
        c, t = self.conv, self.map
        for image in range(t.n):
            place = ((n + image) * c.co + channel) * c.ho * c.wo + e * c.wo
            self.build.append(
                Opcode.STORE,
                "results",
                (t.m, rows * c.wo),
                a=At("internal", self.at_sums + 2 * image * t.m * t.e * c.wo, (t.e * c.wo, 1), "int16"),
                c=At("external", self.y.address + 2 * place, (c.ho * c.wo, 1), "int16"),
            )


def _up(size: int) -> int:
    return -(-size // 64) * 64
