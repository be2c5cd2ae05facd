"""Parsing of /proc/cpuinfo: vendor and extensions of a core. Pure functions over its text."""

from __future__ import annotations

from dataclasses import dataclass

# The kernel's flag -> LLVM's feature, for the extensions that kernels or LLVM's processor names depend on.
X86_FEATURES = {
    "avx": "avx",
    "avx2": "avx2",
    "fma": "fma",
    "f16c": "f16c",
    "bmi1": "bmi",
    "bmi2": "bmi2",
    "avx512f": "avx512f",
    "avx512cd": "avx512cd",
    "avx512bw": "avx512bw",
    "avx512dq": "avx512dq",
    "avx512vl": "avx512vl",
    "avx512ifma": "avx512ifma",
    "avx512vbmi": "avx512vbmi",
    "avx512_vbmi2": "avx512vbmi2",
    "avx512_vnni": "avx512vnni",
    "avx512_bitalg": "avx512bitalg",
    "avx512_vpopcntdq": "avx512vpopcntdq",
    "avx512_bf16": "avx512bf16",
    "avx512_fp16": "avx512fp16",
    "avx_vnni": "avxvnni",
    "amx_tile": "amx-tile",
    "amx_int8": "amx-int8",
    "amx_bf16": "amx-bf16",
    "gfni": "gfni",
    "vaes": "vaes",
    "vpclmulqdq": "vpclmulqdq",
}
ARM_FEATURES = {
    "asimd": "neon",
    "asimdhp": "fullfp16",
    "asimddp": "dotprod",
    "bf16": "bf16",
    "i8mm": "i8mm",
    "sve": "sve",
    "sve2": "sve2",
}


@dataclass(frozen=True, kw_only=True)
class CpuInfo:
    """The entry of one processor. Numbers are -1 and strings empty if the entry does not have them."""

    vendor: str  # CPUID vendor on x86, empty on Arm
    family: int
    model: int
    implementer: int  # MIDR fields, Arm only
    part: int
    name: str
    features: tuple[str, ...]  # LLVM's names, sorted
    has_flags: bool  # False: the entry lists no extensions at all, so none can be assumed missing
    mhz: float  # 0: unknown


def parse_cpuinfo(text: str, cpu: int = 0) -> CpuInfo | None:
    """Return the entry of processor number `cpu`, or the first entry if there is none; None if `text` has no entry."""
    entries = [entry for entry in map(_fields, text.split("\n\n")) if "processor" in entry]
    if not entries:
        return None
    entry = next((e for e in entries if e["processor"] == str(cpu)), entries[0])
    flags = set((entry.get("flags") or entry.get("Features") or "").split())
    known = X86_FEATURES if "vendor_id" in entry or "flags" in entry else ARM_FEATURES
    return CpuInfo(
        vendor=entry.get("vendor_id", ""),
        family=_integer(entry.get("cpu family")),
        model=_integer(entry.get("model")),
        implementer=_integer(entry.get("CPU implementer")),
        part=_integer(entry.get("CPU part")),
        name=entry.get("model name", ""),
        features=tuple(sorted(known[flag] for flag in flags & known.keys())),
        has_flags=bool(flags),
        mhz=_megahertz(entry.get("cpu MHz")),
    )


def _fields(entry: str) -> dict[str, str]:
    pairs = (line.partition(":") for line in entry.splitlines())
    return {key.strip(): value.strip() for key, colon, value in pairs if colon}


def _integer(text: str | None) -> int:
    """Return a decimal or 0x number, or -1 if there is none."""
    try:
        return int(text or "", 0)
    except ValueError:
        return -1


def _megahertz(text: str | None) -> float:
    try:
        return max(0.0, float(text or 0))
    except ValueError:
        return 0.0
