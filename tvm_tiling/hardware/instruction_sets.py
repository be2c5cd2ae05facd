"""Instruction set extensions that machine code requires, and those of this CPU.

One table lists the extensions whose instructions LLVM generates for plain loops, or that kernels request by name; other
extensions of a processor (cryptography, system instructions) are never required. Python reads them from /proc/cpuinfo,
an exported C library queries the processor.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

MACHINES = {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}
_BASE = {"x86_64": "sse2", "aarch64": "asimd"}  # flags without which an entry of /proc/cpuinfo is not conclusive
_FLAGS = ("flags", "Features")  # the name of the field on x86 and on Arm
_FIRST_ENTRY = 1 << 14  # bytes; the entries of other processors repeat it and are slow to generate

EAX, EBX, ECX, EDX = range(4)
YMM, ZMM = 0x6, 0xE6  # bits of XCR0: register state saved by the system
HWCAP, HWCAP2 = 16, 26  # entries of the auxiliary vector on Linux


class Extension(NamedTuple):
    """An extension by LLVM's `name` and the Linux kernel's `flag`, and the location of its `bit` for C code.

    On x86-64: in a `word` of CPUID's `leaf` and `subleaf`, provided the system saves the registers `state`. On AArch64:
    in the entry `leaf` of the auxiliary vector.
    """

    name: str
    flag: str
    leaf: int
    subleaf: int
    word: int
    bit: int
    state: int = 0


EXTENSIONS = {
    "x86_64": (
        Extension("sse3", "pni", 1, 0, ECX, 0),
        Extension("ssse3", "ssse3", 1, 0, ECX, 9),
        Extension("sse4.1", "sse4_1", 1, 0, ECX, 19),
        Extension("sse4.2", "sse4_2", 1, 0, ECX, 20),
        Extension("movbe", "movbe", 1, 0, ECX, 22),
        Extension("popcnt", "popcnt", 1, 0, ECX, 23),
        Extension("fma", "fma", 1, 0, ECX, 12, YMM),
        Extension("avx", "avx", 1, 0, ECX, 28, YMM),
        Extension("f16c", "f16c", 1, 0, ECX, 29, YMM),
        Extension("bmi", "bmi1", 7, 0, EBX, 3),
        Extension("avx2", "avx2", 7, 0, EBX, 5, YMM),
        Extension("bmi2", "bmi2", 7, 0, EBX, 8),
        Extension("avx512f", "avx512f", 7, 0, EBX, 16, ZMM),
        Extension("avx512dq", "avx512dq", 7, 0, EBX, 17, ZMM),
        Extension("avx512ifma", "avx512ifma", 7, 0, EBX, 21, ZMM),
        Extension("avx512cd", "avx512cd", 7, 0, EBX, 28, ZMM),
        Extension("avx512bw", "avx512bw", 7, 0, EBX, 30, ZMM),
        Extension("avx512vl", "avx512vl", 7, 0, EBX, 31, ZMM),
        Extension("avx512vbmi", "avx512vbmi", 7, 0, ECX, 1, ZMM),
        Extension("avx512vbmi2", "avx512_vbmi2", 7, 0, ECX, 6, ZMM),
        Extension("gfni", "gfni", 7, 0, ECX, 8),
        Extension("avx512vnni", "avx512_vnni", 7, 0, ECX, 11, ZMM),
        Extension("avx512bitalg", "avx512_bitalg", 7, 0, ECX, 12, ZMM),
        Extension("avx512vpopcntdq", "avx512_vpopcntdq", 7, 0, ECX, 14, ZMM),
        Extension("avx512fp16", "avx512_fp16", 7, 0, EDX, 23, ZMM),
        Extension("avxvnni", "avx_vnni", 7, 1, EAX, 4, YMM),
        Extension("avx512bf16", "avx512_bf16", 7, 1, EAX, 5, ZMM),
        Extension("avxifma", "avx_ifma", 7, 1, EAX, 23, YMM),
        Extension("avxvnniint8", "avx_vnni_int8", 7, 1, EDX, 4, YMM),
        Extension("avxneconvert", "avx_ne_convert", 7, 1, EDX, 5, YMM),
        Extension("avxvnniint16", "avx_vnni_int16", 7, 1, EDX, 10, YMM),
        Extension("lzcnt", "abm", 0x80000001, 0, ECX, 5),
        Extension("sse4a", "sse4a", 0x80000001, 0, ECX, 6),
        Extension("xop", "xop", 0x80000001, 0, ECX, 11, YMM),
        Extension("fma4", "fma4", 0x80000001, 0, ECX, 16, YMM),
        Extension("tbm", "tbm", 0x80000001, 0, ECX, 21),
    ),
    "aarch64": (
        Extension("neon", "asimd", HWCAP, 0, 0, 1),
        Extension("lse", "atomics", HWCAP, 0, 0, 8),
        Extension("fullfp16", "asimdhp", HWCAP, 0, 0, 10),
        Extension("rdm", "asimdrdm", HWCAP, 0, 0, 12),
        Extension("complxnum", "fcma", HWCAP, 0, 0, 14),
        Extension("dotprod", "asimddp", HWCAP, 0, 0, 20),
        Extension("sve", "sve", HWCAP, 0, 0, 22),
        Extension("fp16fml", "asimdfhm", HWCAP, 0, 0, 23),
        Extension("sve2", "sve2", HWCAP2, 0, 0, 1),
        Extension("i8mm", "i8mm", HWCAP2, 0, 0, 13),
        Extension("bf16", "bf16", HWCAP2, 0, 0, 14),
    ),
}


@dataclass(frozen=True)
class InstructionSet:
    """`arch` as in Cpu, and the sorted names of extensions in EXTENSIONS."""

    arch: str
    extensions: tuple[str, ...]

    @classmethod
    def of(cls, arch: str, names: Iterable[str]) -> InstructionSet:
        """Return the instruction set with those of LLVM's feature names that are in the table."""
        known = {each.name for each in EXTENSIONS[arch]}
        return cls(arch, tuple(sorted(known.intersection(names))))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; from_dict() reads them."""
        return {"arch": self.arch, "extensions": list(self.extensions)}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> InstructionSet:
        """Read the output of to_dict(). Extensions unknown to this version are kept, and count as missing on every CPU.
        ValueError, TypeError or KeyError if it is invalid."""
        arch, names = plain["arch"], plain["extensions"]
        if not isinstance(arch, str) or not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ValueError("its instruction set is not an architecture and a list of names")
        return cls(arch, tuple(names))

    def lacking(self, root: Path = Path("/")) -> str:
        """Return the parts of this instruction set that this CPU lacks, in words; empty if none, or if the system does
        not report them."""
        own = instruction_set_of_this_cpu(root)
        if own is None:
            return ""
        if own.arch != self.arch:
            return f"the architecture {self.arch[:40]} (this CPU is {own.arch})"
        return ", ".join(name[:40] for name in self.extensions if name not in own.extensions)

    def records(self) -> list[Extension]:
        """Return the extensions as rows of the table."""
        return [each for each in EXTENSIONS.get(self.arch, ()) if each.name in self.extensions]


def host_arch() -> str | None:
    """Return the architecture of this process, as in Cpu, or None if kernels are not compiled for it."""
    return MACHINES.get(platform.machine().lower())


def instruction_set_of_this_cpu(root: Path = Path("/")) -> InstructionSet | None:
    """Return the instruction set of this CPU, or None if the system does not report it. `root` stands for "/"."""
    arch = host_arch()
    try:
        with (root / "proc/cpuinfo").open("rb") as file:
            text = file.read(_FIRST_ENTRY).decode(errors="replace")
    except OSError:
        return None
    fields = (line.partition(":") for line in text.partition("\n\n")[0].splitlines())
    flags = next((set(value.split()) for name, _, value in fields if name.strip() in _FLAGS), set())
    if arch is None or _BASE[arch] not in flags:
        return None
    return InstructionSet.of(arch, (each.name for each in EXTENSIONS[arch] if each.flag in flags))
