"""Instructions that multiply and add, as one table: types, elements of k a lane, packing, rate and latency.

A row is all that prices, packed panels, kernel emitters and measured peaks know of an instruction. A dot product takes
a `group` of neighbouring elements of k a lane; its operands lie interleaved, group beside group. A multiply-add is a
group of one. Rates are relative to the fused multiply-add of the same width, which a machine's description counts.

Sources: Intel's and AMD's optimisation manuals, uops.info, Arm's software optimisation guides. dpbf16ps was measured:
Zen 4 starts as many as multiply-adds, a core of the Sapphire Rapids kind a quarter of them, as it leaves products of
bfloat16 to its tiles (AMX).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ..operand_types import OPERAND_TYPES, element_bytes, held_as, is_integer
from .cpu import Cpu


class Form(NamedTuple):
    """An instruction at one vector width: LLVM's intrinsic, empty for arithmetic that LLVM chooses instructions for;
    and the features, by LLVM's names, of which one set is needed."""

    intrinsic: str = ""
    needs: tuple[tuple[str, ...], ...] = ((),)


ARITHMETIC: Mapping[int, Form] = {bits: Form() for bits in (128, 256, 512)}


@dataclass(frozen=True, kw_only=True)
class DotInstruction:
    """An instruction that adds to each accumulator of type `acc` the products of `group` elements of A and of B.

    `forms`: by vector width in bits. `takes`: types of operands that are converted to `a` and `b` without loss while
    they are packed or read; empty: `a` and `b` as they are. `offset` is added to elements of A on the way, which makes
    signed ones unsigned; what it adds to the sums is taken off where they start. `adds`: the intrinsic adds to the
    accumulator. `rate`: how many start for each fused multiply-add that could, `slower`: rates of single cores, by
    LLVM's names; `latency` in cycles, None: the multiply-add's. `emitted`: kernels use it; others only tell what a
    machine could do. `stored`: the type of 16 bits that packed panels of B are kept in and converted from as they are
    read, empty: `operand`; see decide/gemm/dot_engine.py. `by_lane`: kernels have it take a group of A from one lane of
    a vector, so that nothing copies the group to all lanes; `b_first`: its intrinsic then takes B before A.
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
    latency: int | None = None
    emitted: bool = True
    stored: str = ""
    by_lane: bool = False
    b_first: bool = False

    @property
    def panel(self) -> str:
        """The type of elements in packed panels of B."""
        return held_as(self.stored or self.b)

    @property
    def operand(self) -> str:
        """The type of elements in packed buffers: B's, or its bits where TVM would turn elements into floats."""
        return held_as(self.b)

    @property
    def alone(self) -> str:
        """The type of elements that are packed to be multiplied one by one, as by kernels of depthwise convolutions."""
        return self.operand if self.operand == self.b else self.acc

    @property
    def word(self) -> str:
        """An integer type of the size of a lane, which holds one group."""
        return f"int{8 * self.acc_bytes}"

    @property
    def acc_bytes(self) -> int:
        """Bytes of an accumulator, and of a group of packed elements."""
        return element_bytes(self.acc)

    @property
    def speed(self) -> float:
        """Multiply-adds of a lane beside those of a fused multiply-add, the fewer lanes of a wider type not counted."""
        return self.group * self.rate

    @property
    def in_place(self) -> bool:
        """Whether operands may be read where they lie; groups have to be interleaved."""
        return self.group == 1

    def widens(self, dtype: str) -> bool:
        """Whether elements of that type, read in place, are converted to a wider one each time they are read."""
        return self.in_place and element_bytes(self.a) > element_bytes(dtype)

    def on(self, cpu: Cpu) -> DotInstruction:
        """The instruction at that CPU's rate."""
        return replace(self, rate=self.slower[cpu.mcpu], slower={}) if cpu.mcpu in self.slower else self

    def form(self, cpu: Cpu, bits: int | None = None) -> Form | None:
        """The form at a vector width, None: the CPU's; None if the CPU does not have it."""
        found = self.forms.get(bits or cpu.vector_bits) if self.arch in ("", cpu.arch) else None
        return found if found and any(set(needed) <= set(cpu.features) for needed in found.needs) else None

    def supports(self, a: str, b: str, acc: str) -> bool:
        """Whether it multiplies operands of those types, converted where needed, and sums as exactly as in `acc`."""
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
_SDOT = DotInstruction(
    name="sdot", arch="aarch64", a="int8", b="int8", acc="int32", group=4, by_lane=True, b_first=True,
    forms={128: Form("llvm.aarch64.neon.sdot.v4i32.v16i8", (("dotprod",),))},
)  # fmt: skip
# Two rows of eight elements by two columns of eight: every element is used twice.
_SMMLA = DotInstruction(
    name="smmla", arch="aarch64", a="int8", b="int8", acc="int32", group=8, emitted=False,
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
    _VPDPBUSD,
    replace(_VPDPBUSD, a="int8", offset=128),
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
    # Words of 16 bits: two instructions, a product of pairs and a sum, for two elements of k.
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
"""Every instruction. The one with the most multiply-adds a vector is taken of those that serve a workload's types."""


def fastest(
    cpu: Cpu, a: str, b: str, acc: str, *, emitted: bool = True, in_place: bool = False
) -> DotInstruction | None:
    """The instruction of the most multiply-adds a vector that a CPU has for those types, None if it has none.
    `emitted`: of those that kernels use; `in_place`: of those that read operands where they lie."""
    found = [row.on(cpu) for row in DOT_INSTRUCTIONS if row.supports(a, b, acc) and row.form(cpu) is not None]
    found = [row for row in found if row.emitted >= emitted and row.in_place >= in_place]
    return max(found, key=lambda row: row.speed / row.acc_bytes, default=None)


def multiplied() -> tuple[str, ...]:
    """Types of operands that kernels for CPUs multiply, of whichever CPU."""
    taken = {name for row in DOT_INSTRUCTIONS if row.emitted for name in row.takes or (row.a, row.b)}
    return tuple(name for name in OPERAND_TYPES if name in taken)
