"""Detection of this CPU. Reads /proc and /sys only: milliseconds, no child process, no TVM.

Values that a system hides are filled in as follows, and the field is listed in `Cpu.assumed`:

- caches: those of the core in microarchitecture.py (`caches`, or `caches.l2`, `caches.l1.ways` for a part)
- which processors are threads of one core (`cores`): every processor counts as a core
- extensions (`features`): AVX2 with FMA on x86-64, NEON on AArch64
- a core that the table does not contain (`fma_units`, `fma_latency`, the three rates): its GENERIC row

macOS, Windows and other systems without /proc get all of this, with the M1's values from the table on Apple silicon. A
clock that cannot be read is 0, which means unknown.

The environment variable TVM_TILING_MAX_ISA hides extensions of an x86-64 CPU, as oneDNN's ONEDNN_MAX_CPU_ISA does.
"""

from __future__ import annotations

import os
import platform
from pathlib import Path

from ..errors import HardwareError
from .caches import read_caches
from .cpu import Cpu
from .cpuinfo import CpuInfo, parse_cpuinfo
from .instruction_sets import MACHINES
from .kernel_costs import KernelCosts
from .microarchitecture import APPLE_M1, AVX512, GENERIC, Microarchitecture, find_arm, find_x86
from .usable import affinity, cpu_limit, group_by_core, read_text, whole_cpus

LIMIT = "TVM_TILING_MAX_ISA"
# Each value hides the features that start with one of these.
LIMITS = {"avx2": ("avx512", "avxvnni", "avxifma", "avxneconvert", "amx"), "avx2-vnni": ("avx512", "amx")}
RATES = ("l2_bytes_per_cycle", "l3_bytes_per_cycle", "memory_bytes_per_cycle")


def detect_cpu(
    root: Path = Path("/"), *, machine: str | None = None, system: str | None = None, cpus: set[int] | None = None
) -> Cpu:
    """Return the CPU of the system whose files are under `root`.

    `machine` and `system` are the values of platform.machine() and platform.system(), `cpus` the processors that this
    process may use; the defaults are those of the running system. HardwareError if there is no vector unit that the
    kernels support.
    """
    machine = machine or platform.machine()
    arch = MACHINES.get(machine.lower())
    if arch is None:
        raise HardwareError(
            f"unsupported processor architecture {machine!r}; expected x86_64 with AVX2 and FMA, aarch64"
        )
    cpus = cpus or affinity()
    first = min(cpus)
    info = parse_cpuinfo(read_text(root / "proc/cpuinfo"), first)
    assumed: list[str] = []

    features = _limited(_features(arch, info, assumed), arch)
    vector_bits, registers = _vectors(arch, features, info)
    core = _core(arch, features, info, system or platform.system(), assumed)

    tree = root / "sys/devices/system/cpu"
    groups = group_by_core(tree, cpus)
    if groups is None:
        groups = [{cpu} for cpu in cpus]
        assumed.append("cores")
    limit = cpu_limit(root)
    most = len(cpus) if limit is None else whole_cpus(limit)
    cores = min(len(groups), most)
    caches, hidden = read_caches(tree / f"cpu{first}", core, max(map(len, groups)), cores)
    assumed += hidden

    return Cpu(
        arch=arch,
        features=features,
        vector_bits=vector_bits,
        vector_registers=registers,
        fma_units=core.fma_units.get(vector_bits, 1),
        fma_latency=core.fma_latency,
        cores=cores,
        threads=min(len(cpus), most),
        caches=tuple(caches),
        mcpu=core.mcpu if set(core.needs) <= set(features) else "",
        clock_mhz=_clock(tree / f"cpu{first}", info),
        l2_bytes_per_cycle=core.rates[0],
        l3_bytes_per_cycle=core.rates[1],
        memory_bytes_per_cycle=core.rates[2],
        handed_over_bytes_per_cycle=core.handed_over,
        assumed=tuple(assumed),
        costs=KernelCosts(**core.costs) if core.costs else None,
    )


def _features(arch: str, info: CpuInfo | None, assumed: list[str]) -> tuple[str, ...]:
    if info is not None and info.has_flags:
        return info.features
    assumed.append("features")
    return ("avx", "avx2", "bmi", "bmi2", "f16c", "fma") if arch == "x86_64" else ("neon",)


def _limited(features: tuple[str, ...], arch: str) -> tuple[str, ...]:
    """Return the features without those that the environment variable hides."""
    limit = os.environ.get(LIMIT, "")
    if not limit:
        return features
    if arch != "x86_64":
        raise HardwareError(f"{LIMIT} is not supported on {arch}: {limit!r}; expected no value")
    if limit not in LIMITS:
        raise HardwareError(f"{LIMIT} = {limit!r} is not supported; expected {' or '.join(LIMITS)}")
    return tuple(feature for feature in features if not feature.startswith(LIMITS[limit]))


def _vectors(arch: str, features: tuple[str, ...], info: CpuInfo | None) -> tuple[int, int]:
    """Return (bits, registers) of the vector unit that kernels use."""
    name = f" ({info.name})" if info is not None and info.name else ""
    if arch == "aarch64":
        if "neon" not in features:
            raise HardwareError(
                f"this CPU{name} lacks NEON (asimd); expected x86_64 with AVX2 and FMA, aarch64 with NEON"
            )
        return 128, 30  # of 32: LLVM needs two for loads in advance, otherwise it copies sums in every step
    if set(AVX512) <= set(features):
        return 512, 32
    lacking = [wanted.upper() for wanted in ("avx2", "fma") if wanted not in features]
    if lacking:
        raise HardwareError(
            f"this CPU{name} lacks {' and '.join(lacking)}; expected x86_64 with AVX2 and FMA, aarch64 with NEON"
        )
    return 256, 16


def _core(
    arch: str, features: tuple[str, ...], info: CpuInfo | None, system: str, assumed: list[str]
) -> Microarchitecture:
    core = None
    if info is not None:
        core = (
            find_x86(info.vendor, info.family, info.model, features)
            if arch == "x86_64"
            else find_arm(info.implementer, info.part)
        )
    if core is not None:
        return core
    assumed += ["fma_units", "fma_latency", *RATES]
    return APPLE_M1 if arch == "aarch64" and system == "Darwin" else GENERIC[arch]


def _clock(cpu_dir: Path, info: CpuInfo | None) -> float:
    """Return MHz: the maximum that the system reports, else the current reading, else 0."""
    highest = read_text(cpu_dir / "cpufreq/cpuinfo_max_freq")
    if highest.isdigit() and int(highest) > 0:
        return int(highest) / 1000
    return info.mhz if info is not None else 0.0
