"""Table of multiply-add and dot-product instructions: types, elements of K per lane, packing, rate and latency.

Cost models, packed panels, kernel emitters and measured peaks know nothing about an instruction except its row. A dot
product consumes a `group` of adjacent elements of K per lane; its operands are interleaved, group by group. A
multiply-add is a group of one. A matrix instruction multiplies several `rows` of A by as many columns of B, so that it
uses each group more than once. Rates are relative to the fused multiply-add of the same width, which the hardware
description counts.

Sources: Intel's and AMD's optimisation manuals, uops.info, Arm's software optimisation guides; for the latency of
bfmmla, LLVM's model of Neoverse V1. dpbf16ps was measured:
Zen 4 starts as many as multiply-adds, a Sapphire Rapids core a quarter of them, because it leaves bfloat16
multiplication to its tiles (AMX).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ..operand_types import OPERAND_TYPES, element_bytes, held_as, is_integer
from .cpu import Cpu


class Form(NamedTuple):
    """An instruction at one vector width: LLVM's intrinsic, empty for arithmetic that LLVM selects instructions for;
    alternative sets of required features, by LLVM's names; and the intrinsic that adds pairs of its 16-bit sums, empty
    if its sums are the accumulator's."""

    intrinsic: str = ""
    needs: tuple[tuple[str, ...], ...] = ((),)
    joins: str = ""


ARITHMETIC: Mapping[int, Form] = {bits: Form() for bits in (128, 256, 512)}


@dataclass(frozen=True, kw_only=True)
class DotInstruction:
    """An instruction that adds the products of `group` elements of A and of B to each accumulator of type `acc`.

    `forms`: by vector width in bits. `takes`: operand types that are converted to `a` and `b` without loss during
    packing or reading; empty: only `a` and `b`. `offset` is added to elements of A during packing, which makes signed
    values unsigned; its contribution is subtracted from the initial value of the sums. `adds`: the intrinsic adds to
    the accumulator. `rate`: how many start per fused multiply-add slot, `slower`: rates of particular cores, by LLVM's
    names; `latency` in cycles, None: that of the multiply-add. `emitted`: kernels use it; the others only describe what
    a machine could do. `tiled`: it multiplies tiles, not vectors; `group` and `rate` are then those of a vector
    instruction that does as many multiply-adds per cycle. `stored`: the 16-bit type in which packed panels of B are
    stored and from which they are converted on reading, empty: `operand`; see decide/gemm/dot_engine.py. `by_lane`: the
    kernels let it take a group of A from one lane of a vector, so that nothing broadcasts the group; `b_first`: its
    intrinsic then takes B before A. `rows`: a register of sums holds this many rows of A by as many columns of B as
    fill it; the register of A has a group of each row, that of B a group of each column. `b_limit`: it is exact only if
    every element of B lies between -b_limit and b_limit, None: for all values.
    """

    name: str
    a: str
    b: str
    acc: str
    group: int = 1
    arch: str = ""  # empty: any
    forms: Mapping[int, Form]
    takes: tuple[str, ...] = ()
    offset: int = 0
    adds: bool = True
    rate: float = 1.0
    slower: Mapping[str, float] = field(default_factory=dict)
    latency: float | None = None
    emitted: bool = True
    tiled: bool = False
    stored: str = ""
    by_lane: bool = False
    b_first: bool = False
    rows: int = 1
    b_limit: int | None = None

    @property
    def panel(self) -> str:
        """The element type of packed panels of B."""
        return held_as(self.stored or self.b)

    @property
    def operand(self) -> str:
        """The element type of packed buffers: that of B, or its bits if TVM would convert elements to floats."""
        return held_as(self.b)

    @property
    def alone(self) -> str:
        """The element type for packing elements that are multiplied one by one, as in kernels of depthwise
        convolutions."""
        return self.operand if self.operand == self.b else self.acc

    @property
    def word(self) -> str:
        """An integer type of the size of a group of packed elements."""
        return f"int{8 * self.group_bytes}"

    @property
    def lane_word(self) -> str:
        """An integer type of the size of an accumulator."""
        return f"int{8 * self.acc_bytes}"

    @property
    def acc_bytes(self) -> int:
        """Bytes of an accumulator."""
        return element_bytes(self.acc)

    @property
    def group_bytes(self) -> int:
        """Bytes of a group of packed elements: those of an accumulator, or a multiple for a matrix instruction."""
        return self.group * element_bytes(self.operand)

    @property
    def speed(self) -> float:
        """Multiply-adds per lane relative to a fused multiply-add, without accounting for the fewer lanes of a wider
        type."""
        return self.group * self.rate

    @property
    def in_place(self) -> bool:
        """Whether operands can be read in place; groups must be interleaved."""
        return self.group == 1

    def widens(self, dtype: str) -> bool:
        """Return whether elements of that type, read in place, are converted to a wider one on every read."""
        return self.in_place and element_bytes(self.a) > element_bytes(dtype)

    def on(self, cpu: Cpu) -> DotInstruction:
        """Return the instruction with the rate and latency of that CPU."""
        rate = cpu.dot_rates.get(self.name, self.slower.get(cpu.mcpu, self.rate))
        latency = cpu.dot_latencies.get(self.name, self.latency)
        return (
            self
            if (rate, latency) == (self.rate, self.latency)
            else replace(self, rate=rate, latency=latency, slower={})
        )

    def form(self, cpu: Cpu, bits: int | None = None) -> Form | None:
        """Return the form at a vector width (None: that of the CPU), or None if the CPU does not have it."""
        found = self.forms.get(bits or cpu.vector_bits) if self.arch in ("", cpu.arch) else None
        return found if found and any(set(needed) <= set(cpu.features) for needed in found.needs) else None

    def supports(self, a: str, b: str, acc: str, b_limit: int | None = None) -> bool:
        """Return whether it multiplies operands of those types, with conversion if needed, and accumulates as exactly
        as `acc`, if no element of B exceeds `b_limit` (None: unknown)."""
        if self.b_limit is not None and (b_limit is None or b_limit > self.b_limit):
            return False
        if is_integer(acc) or is_integer(self.acc):
            exact = acc == self.acc
        else:
            exact = element_bytes(acc) <= element_bytes(self.acc)
        return exact and (a in self.takes and b in self.takes if self.takes else (a, b) == (self.a, self.b))


FMA_FLOAT32 = DotInstruction(
    name="fma.float32", a="float32", b="float32", acc="float32", forms=ARITHMETIC,
    takes=("float32", "float16", "bfloat16"),
)  # fmt: skip
_VPDPBUSD = DotInstruction(
    name="vpdpbusd", arch="x86_64", a="uint8", b="int8", acc="int32", group=4,
    forms={
        512: Form("llvm.x86.avx512.vpdpbusd.512", (("avx512vnni",),)),
        256: Form("llvm.x86.avx512.vpdpbusd.256", (("avxvnni",), ("avx512vnni",))),
        128: Form("llvm.x86.avx512.vpdpbusd.128", (("avxvnni",), ("avx512vnni",))),
    },
)  # fmt: skip
# Bytes without VNNI, three instructions for four elements of K: a multiplication that adds pairs of products in 16 bits
# with saturation, another that adds pairs of these sums, and an addition. It cannot saturate if no element of B
# exceeds 64: 2 * 255 * 64 = 32640 is below 2**15.
_PMADDUBSW = DotInstruction(
    name="pmaddubsw", arch="x86_64", a="uint8", b="int8", acc="int32", group=4, rate=0.5, adds=False, b_limit=64,
    forms={
        512: Form("llvm.x86.avx512.pmaddubs.w.512", (("avx512bw",),), "llvm.x86.avx512.pmaddw.d.512"),
        256: Form("llvm.x86.avx2.pmadd.ub.sw", joins="llvm.x86.avx2.pmadd.wd"),
        128: Form("llvm.x86.ssse3.pmadd.ub.sw.128", joins="llvm.x86.sse2.pmadd.wd"),
    },
)  # fmt: skip
# AMX, tiles of 16 rows of 64 bytes: a multiplication starts every 16 cycles, 8192 multiply-adds of bfloat16 or 16384 of
# bytes (Intel's optimisation manual, chapter on AMX). That is 512 and 1024 per cycle, beside 32 of float32 by vectors.
_TDPBSSD = DotInstruction(
    name="tdpbssd", arch="x86_64", a="int8", b="int8", acc="int32", group=4, rate=8.0, latency=52, emitted=False,
    tiled=True, forms={512: Form(needs=(("amx-tile", "amx-int8"),))},
)  # fmt: skip
_SDOT = DotInstruction(
    name="sdot", arch="aarch64", a="int8", b="int8", acc="int32", group=4, by_lane=True, b_first=True,
    forms={128: Form("llvm.aarch64.neon.sdot.v4i32.v16i8", (("dotprod",),))},
)  # fmt: skip
# Two rows by two columns, of eight bytes each.
_SMMLA = DotInstruction(
    name="smmla", arch="aarch64", a="int8", b="int8", acc="int32", group=8, rows=2,
    forms={128: Form("llvm.aarch64.neon.smmla.v4i32.v16i8", (("i8mm",),))},
)  # fmt: skip

DOT_INSTRUCTIONS: list[DotInstruction] = [
    FMA_FLOAT32,
    DotInstruction(
        name="fma.float64", a="float64", b="float64", acc="float64", forms=ARITHMETIC,
        takes=("float64", "float32", "float16", "bfloat16"),
    ),
    DotInstruction(
        name="fma.float16", a="float16", b="float16", acc="float16", emitted=False,
        forms={512: Form(needs=(("avx512fp16",),)), 256: Form(needs=(("avx512fp16",),)),
               128: Form(needs=(("avx512fp16",), ("fullfp16",)))},
    ),
    DotInstruction(
        name="dpbf16ps", arch="x86_64", a="bfloat16", b="bfloat16", acc="float32", group=2, latency=6,
        slower={"sapphirerapids": 0.25, "graniterapids": 0.25},
        forms={
            512: Form("llvm.x86.avx512bf16.dpbf16ps.512", (("avx512bf16",),)),
            256: Form("llvm.x86.avx512bf16.dpbf16ps.256", (("avx512bf16",),)),
            128: Form("llvm.x86.avx512bf16.dpbf16ps.128", (("avx512bf16",),)),
        },
    ),
    DotInstruction(
        name="bfdot", arch="aarch64", a="bfloat16", b="bfloat16", acc="float32", group=2,
        forms={128: Form("llvm.aarch64.neon.bfdot.v4f32.v8bf16", (("bf16",),))},
    ),
    # Each product of two rows is added as bfdot adds it: pairs of products, with the rounding of FEAT_BF16.
    DotInstruction(
        name="bfmmla", arch="aarch64", a="bfloat16", b="bfloat16", acc="float32", group=4, rows=2, latency=5,
        forms={128: Form("llvm.aarch64.neon.bfmmla", (("bf16",),))},
    ),
    _VPDPBUSD,
    replace(_VPDPBUSD, a="int8", offset=128),
    _PMADDUBSW,
    replace(_PMADDUBSW, a="int8", offset=128),
    _TDPBSSD,
    replace(_TDPBSSD, name="tdpbusd", a="uint8"),
    replace(_TDPBSSD, name="tdpbf16ps", a="bfloat16", b="bfloat16", acc="float32", group=2,
            forms={512: Form(needs=(("amx-tile", "amx-bf16"),))}),
    _SDOT,
    replace(_SDOT, name="udot", a="uint8", b="uint8",
            forms={128: Form("llvm.aarch64.neon.udot.v4i32.v16i8", (("dotprod",),))}),
    replace(_SDOT, name="usdot", a="uint8", b="int8", b_first=False,
            forms={128: Form("llvm.aarch64.neon.usdot.v4i32.v16i8", (("i8mm",),))}),
    _SMMLA,
    replace(_SMMLA, name="ummla", a="uint8", b="uint8",
            forms={128: Form("llvm.aarch64.neon.ummla.v4i32.v16i8", (("i8mm",),))}),
    replace(_SMMLA, name="usmmla", a="uint8", b="int8",
            forms={128: Form("llvm.aarch64.neon.usmmla.v4i32.v16i8", (("i8mm",),))}),
    # 16-bit words: two instructions, a multiplication of pairs and an addition, for two elements of K.
    DotInstruction(
        name="pmaddwd", arch="x86_64", a="int16", b="int16", acc="int32", group=2, rate=0.8, adds=False,
        takes=("int8", "uint8"),
        forms={
            512: Form("llvm.x86.avx512.pmaddw.d.512", (("avx512bw",),)),
            256: Form("llvm.x86.avx2.pmadd.wd"),
            128: Form("llvm.x86.sse2.pmadd.wd"),
        },
    ),
    DotInstruction(
        name="imul", a="int32", b="int32", acc="int32", rate=0.5, forms=ARITHMETIC, takes=("int8", "uint8")
    ),
]  # fmt: skip
"""All instructions. Among those that support the types of a workload, the one with the most multiply-adds per vector is
used."""


def fastest(
    cpu: Cpu,
    a: str,
    b: str,
    acc: str,
    *,
    b_limit: int | None = None,
    emitted: bool = True,
    in_place: bool = False,
    matrix: bool = False,
    tiled: bool = False,
) -> DotInstruction | None:
    """Return the instruction with the most multiply-adds per vector that a CPU has for those types, or None. `b_limit`:
    the largest magnitude of B's elements, None if it is unknown; `emitted`: only those that kernels use; `in_place`:
    only those that read operands in place; `matrix`: also those that take several rows of A; `tiled`: also those of
    tiles."""
    found = [row.on(cpu) for row in DOT_INSTRUCTIONS if row.supports(a, b, acc, b_limit) and row.form(cpu)]
    found = [row for row in found if row.emitted >= emitted and row.in_place >= in_place and row.tiled <= tiled]
    found = [row for row in found if matrix or row.rows == 1]
    return max(found, key=lambda row: row.speed / row.acc_bytes, default=None)


def multiplied() -> tuple[str, ...]:
    """Return the operand types that CPU kernels multiply, on any CPU."""
    taken = {name for row in DOT_INSTRUCTIONS if row.emitted for name in row.takes or (row.a, row.b)}
    return tuple(name for name in OPERAND_TYPES if name in taken)


def useful_limit(cpu: Cpu, a: str, b: str, acc: str, largest: int) -> int | None:
    """Return the bound of the instruction that is taken because no element of B exceeds `largest`; None if this CPU
    takes the same instruction without that knowledge."""
    found = fastest(cpu, a, b, acc, b_limit=largest)
    return None if found is None else found.b_limit
