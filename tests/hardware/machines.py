"""Simulated systems: /proc and /sys trees as written by the kernels of real machines."""

from __future__ import annotations

from pathlib import Path

AVX2_FLAGS = "fpu sse sse2 ssse3 fma sse4_1 sse4_2 avx f16c bmi1 avx2 bmi2"
ICE_LAKE_FLAGS = (
    f"{AVX2_FLAGS} avx512f avx512dq avx512ifma avx512cd avx512bw avx512vl avx512vbmi avx512_vbmi2 gfni vaes vpclmulqdq "
    "avx512_vnni avx512_bitalg avx512_vpopcntdq"
)
ZEN4_FLAGS = f"{ICE_LAKE_FLAGS} avx512_bf16"
NEOVERSE_V1_FLAGS = (
    "fp asimd evtstrm aes crc32 atomics fphp asimdhp cpuid asimdrdm asimddp sve i8mm svei8mm bf16 svebf16"
)

# (level, type, size, ways, processors that share it, hardware threads included)
ICE_LAKE_CACHES = ((1, "Data", "48K", 12, 2), (1, "Instruction", "32K", 8, 2), (2, "Unified", "1280K", 20, 2))
ICE_LAKE_SERVER_CACHES = (*ICE_LAKE_CACHES, (3, "Unified", "49152K", 12, 64))
ZEN4_CACHES = (
    (1, "Data", "32K", 8, 1),
    (1, "Instruction", "32K", 8, 1),
    (2, "Unified", "1024K", 8, 1),
    (3, "Unified", "32768K", 16, 8),
)
ZEN2_CACHES = (
    (1, "Data", "32K", 8, 2),
    (1, "Instruction", "32K", 8, 2),
    (2, "Unified", "512K", 8, 2),
    (3, "Unified", "16384K", 16, 8),
)
NEOVERSE_V1_CACHES = (
    (1, "Data", "64K", 4, 1),
    (1, "Instruction", "64K", 4, 1),
    (2, "Unified", "1024K", 8, 1),
    (3, "Unified", "32768K", 16, 64),
)


def x86_cpuinfo(vendor: str, family: int, model: int, name: str, flags: str, cpus: int, mhz: str = "2900.000") -> str:
    entry = (
        "processor\t: {cpu}\nvendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\nmodel name\t: {name}\n"
        "stepping\t: 6\ncpu MHz\t\t: {mhz}\ncache size\t: 49152 KB\nflags\t\t: {flags}\nbugs\t\t: spectre_v1\n"
    )
    return "\n".join(
        entry.format(cpu=cpu, vendor=vendor, family=family, model=model, name=name, mhz=mhz, flags=flags)
        for cpu in range(cpus)
    )


def arm_cpuinfo(implementer: int, part: int, flags: str, cpus: int) -> str:
    return "\n".join(
        f"processor\t: {cpu}\nBogoMIPS\t: 2100.00\nFeatures\t: {flags}\nCPU implementer\t: {implementer:#x}\n"
        f"CPU architecture: 8\nCPU variant\t: 0x1\nCPU part\t: {part:#x}\nCPU revision\t: 1\n"
        for cpu in range(cpus)
    )


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")


def add_cpuinfo(root: Path, text: str) -> None:
    write(root / "proc/cpuinfo", text)


def add_topology(root: Path, cores: int, threads_per_core: int = 1) -> None:
    """Number processors as Linux does: thread t of core c is processor c + t * cores."""
    for cpu in range(cores * threads_per_core):
        siblings = ",".join(str(cpu % cores + thread * cores) for thread in range(threads_per_core))
        write(root / f"sys/devices/system/cpu/cpu{cpu}/topology/core_cpus_list", siblings)


def add_caches(root: Path, caches: tuple[tuple[int, str, str, int, int], ...], cpu: int = 0) -> None:
    """Write the `caches` of processor `cpu`, each shared with the number of processors in its row."""
    for number, (level, kind, size, ways, sharing) in enumerate(caches):
        index = root / f"sys/devices/system/cpu/cpu{cpu}/cache/index{number}"
        write(index / "level", str(level))
        write(index / "type", kind)
        write(index / "size", size)
        write(index / "ways_of_associativity", str(ways))
        write(index / "coherency_line_size", "64")
        write(index / "shared_cpu_list", f"{cpu}-{cpu + sharing - 1}" if sharing > 1 else str(cpu))


def add_cgroup_v2(root: Path, group: str, limits: dict[str, str]) -> None:
    """Put this process in `group`; `limits` maps a group to the text of its cpu.max."""
    write(root / "proc/self/cgroup", f"0::{group}")
    write(
        root / "proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate"
    )
    (root / "sys/fs/cgroup" / group.strip("/")).mkdir(parents=True, exist_ok=True)
    for name, text in limits.items():
        write(root / "sys/fs/cgroup" / name.strip("/") / "cpu.max", text)


def add_cgroup_v1(root: Path, quota: int, period: int = 100000, mounted: str = "/docker/abc") -> None:
    """A container under cgroup version 1, whose mount shows its own group only."""
    write(root / "proc/self/cgroup", "5:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n1:name=systemd:/docker/abc")
    write(
        root / "proc/self/mountinfo",
        f"40 30 0:30 {mounted} /sys/fs/cgroup/cpu,cpuacct ro,nosuid - cgroup cgroup rw,cpu,cpuacct",
    )
    write(root / "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", str(quota))
    write(root / "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", str(period))
