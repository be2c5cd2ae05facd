"""Table of properties that no system call reports: multiply-add units, latencies and sustained rates of each
microarchitecture.

Sources: model numbers from the Linux kernel (arch/x86/include/asm/intel-family.h, arch/x86/kernel/cpu/amd.c,
arch/arm64/include/asm/cputype.h); units and latencies of FMA from the vendors' optimisation manuals and software
optimisation guides and the uops.info tables; sustained L2 and L3 rates from Intel's optimisation manual (Broadwell 25
and 14, Skylake server 52 and 15 bytes per cycle), AMD's guides (32-byte paths minus losses) and Arm's published
bandwidth sweeps of Neoverse N1 and V2. A memory rate is that of one core with the others idle, at a typical clock; it
is the least precise of these values. Caches are used only if the system hides its own. Rows name what is particular to
them; `tvm-tiling hardware --calibrate` measures all of this.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

KIB = 1024

# Extensions that LLVM's processor names imply and that a hypervisor may mask, by LLVM's names.
AVX2 = ("avx2", "fma", "f16c", "bmi", "bmi2")
AVX512 = (*AVX2, "avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl")
AVX512_VNNI = (*AVX512, "avx512vnni")
AVX512_ICE_LAKE = (
    *AVX512_VNNI,
    *("avx512ifma", "avx512vbmi", "avx512vbmi2", "avx512bitalg", "avx512vpopcntdq", "gfni", "vaes", "vpclmulqdq"),
)
AVX512_BF16 = (*AVX512_ICE_LAKE, "avx512bf16")
AVX512_FP16 = (*AVX512_BF16, "avx512fp16", "avxvnni")


@dataclass(frozen=True, kw_only=True)
class Microarchitecture:
    """Properties of one core design. Rates are sustained bytes per cycle of one core.

    `fma_units` maps a vector width in bits to the full-width FMAs started per cycle. `l1`, `l2` are (KiB, ways) of one
    core; `l3` is (KiB per core, ways), (0, 0) if there is none. `costs`: fields of KernelCosts
    measured on this core, where they differ from the defaults.
    """

    mcpu: str  # LLVM's name, empty: generic
    needs: tuple[str, ...]  # features without which that name must not be used
    fma_units: dict[int, int]
    fma_latency: int
    l1: tuple[int, int]
    l2: tuple[int, int]
    l3: tuple[int, int]
    rates: tuple[float, float, float]  # from L2, from L3, from memory
    handed_over: float = 2.5  # from another core
    costs: Mapping[str, float] = field(default_factory=dict)


HASWELL = Microarchitecture(
    mcpu="haswell",
    needs=AVX2,
    fma_units={256: 2},
    fma_latency=5,
    l1=(32, 8),
    l2=(256, 8),
    l3=(2560, 20),
    rates=(25.0, 14.0, 5.0),
)
BROADWELL = replace(HASWELL, mcpu="broadwell")
SKYLAKE = replace(HASWELL, mcpu="skylake", fma_latency=4, l2=(256, 4), l3=(2048, 16), rates=(32.0, 16.0, 6.0))
# Skylake-X: Intel's optimisation manual; caches from WikiChip, "Skylake (server)".
# Some Silver, Bronze and Gold 5000 parts of this model have only one 512-bit unit; they cannot be distinguished.
SKYLAKE_SERVER = Microarchitecture(
    mcpu="skylake-avx512",
    needs=AVX512,
    fma_units={256: 2, 512: 2},
    fma_latency=4,
    l1=(32, 8),
    l2=(1024, 16),
    l3=(1408, 11),
    rates=(52.0, 12.0, 4.5),
)
CASCADE_LAKE = replace(SKYLAKE_SERVER, mcpu="cascadelake", needs=AVX512_VNNI)
# Intel's optimisation manual, chapter on Ice Lake; WikiChip, "Sunny Cove".
ICE_LAKE_SERVER = replace(
    SKYLAKE_SERVER,
    mcpu="icelake-server",
    needs=AVX512_ICE_LAKE,
    l1=(48, 12),
    l2=(1280, 20),
    l3=(1536, 12),
    rates=(48.0, 12.0, 4.5),
)
# Client chips fuse the two 256-bit units into one of 512 bits and lack the second.
ICE_LAKE_CLIENT = replace(
    ICE_LAKE_SERVER,
    mcpu="icelake-client",
    fma_units={256: 2, 512: 1},
    l2=(512, 8),
    l3=(2048, 16),
    rates=(48.0, 16.0, 6.0),
)
TIGER_LAKE = replace(ICE_LAKE_CLIENT, mcpu="tigerlake", l2=(1280, 20), l3=(3072, 12))
# Intel's optimisation manual (Golden Cove); a calibration of a Xeon of the fifth generation found 47, 10 and 5.6 bytes
# per cycle, and 4 cycles of an FMA. AMX is described in dot_instructions.py; no kernel uses it.
# Costs: 20 to 150 tilings of each of 38 matrix multiplications, timed alternately on one core of a Xeon of the fifth
# generation. Rows of A that collide cost nothing visible, as a line serves 16 steps, unless they are far more than the
# ways of L1: 4096 x 4096 x 8 runs at 33 GFLOP/s in tiles of 30 rows, at 60 in tiles of 12. Blocks of B beyond 0.8 MiB
# arrive late; the lines of a tile of sums that are resumed arrive together. 512 rows of B on pages of their own would
# fill the ways of L2 if its sets were used evenly; as physical addresses index it, they evict each other from 300 rows
# on.
# Column blocks of direct convolutions of 128 to 512 KB were tried. Winograd: five shapes of 14 to 56 wide with tiles of
# 2 and 4; of 0.06 to 0.5 of L2 for transformed inputs, 0.12 was fastest: 64 channels on 56 wide took 260 us, not 324.
# Operands in other cores' caches: the layers of DeiT-tiny (197 rows, 192 to 768 columns) wait 23 to 65 us less if each
# core reads the rows that it wrote itself: 1.1 to 1.6 bytes per cycle; two calibrations found 1.5 and 1.4. Layers of
# BERT-base, whose weights come from memory, wait 32 to 170 us longer if both cores read all weights: 4.6 to 8 bytes per
# cycle. Start of threads: two calibrations found 778 and 899 ns. With 800 instead of 2300, ShuffleNet v2 takes 1.65 ms
# instead of 1.86: its small operators run on both cores, each of which then reads what it has written itself.
# Few rows: with weights from memory, 14 x 1024 x 4096 takes 405 us on two cores if kernels prefetch them and 900 if
# not, 8 rows 333 and 405; up to 2 rows take the same time either way.
SAPPHIRE_RAPIDS = replace(
    ICE_LAKE_SERVER,
    mcpu="sapphirerapids",
    needs=AVX512_FP16,
    l2=(2048, 16),
    l3=(1920, 15),
    rates=(48.0, 10.0, 4.5),
    handed_over=1.5,
    costs={
        "parallel_start": 800.0,
        "operand_transfer": 1.0,
        "prefetching_rows": 2.0,
        "exposed_panel": 0.06,
        "colliding_line": 0.06,
        "resumed_near": 13.0,
        "resumed_far": 20.0,
        "l2_block": 0.4,
        "l2_whole_panel": 0.3,
        "l2_ways": 0.6,
        "near_piece": 200.0,
        "uneven_piece": 1.5,
        "prefetched_block": 131072.0,
        "first_tile": 1.0,
        "prefetched_panel": 1.85,
        "result_piece": 12.0,
        "arriving_row": 16.0,
        "displaced_block": 0.7,
        "transformed_line": 9.0,
        "exposed_copy": 1.0,
        "lone_line": 1.5,
        "l2_transformed": 0.12,
        "transform_operation": 1.35,
        "transform_store": 1.95,
        "exposed_transformed_weights": 0.1,
    },
)
GRANITE_RAPIDS = replace(SAPPHIRE_RAPIDS, mcpu="graniterapids")
# Performance cores (Golden Cove without AVX-512): Intel's optimisation manual; uops.info, "Alder Lake-P".
ALDER_LAKE = replace(
    SKYLAKE,
    mcpu="alderlake",
    needs=(*AVX2, "avxvnni"),
    l1=(48, 12),
    l2=(1280, 10),
    l3=(3072, 12),
    rates=(48.0, 16.0, 7.0),
)
RAPTOR_LAKE = replace(ALDER_LAKE, mcpu="raptorlake", l2=(2048, 16))

# AMD's software optimisation guides for families 17h, 19h and 1Ah (FMA: 5 cycles up to Zen 2, then 4); uops.info;
# Chips and Cheese's measurements of caches ("AMD's Zen 4, Part 2", "AMD's Ryzen 9950X: Zen 5 on Desktop").
# Zen and Zen+ execute a 256-bit FMA as two halves.
ZEN1 = Microarchitecture(
    mcpu="znver1",
    needs=AVX2,
    fma_units={256: 1},
    fma_latency=5,
    l1=(32, 8),
    l2=(512, 8),
    l3=(2048, 16),
    rates=(24.0, 18.0, 6.0),
)
ZEN2 = replace(ZEN1, mcpu="znver2", fma_units={256: 2}, l3=(4096, 16), rates=(28.0, 20.0, 6.0))
ZEN3 = replace(ZEN2, mcpu="znver3", fma_latency=4, rates=(28.0, 22.0, 7.0))
# 512-bit operations run on the 256-bit units in two halves.
ZEN4 = replace(ZEN3, mcpu="znver4", needs=AVX512_BF16, fma_units={256: 2, 512: 1}, l2=(1024, 8))
# Costs: 12 to 36 tilings of each of 31 matrix multiplications, timed alternately on two cores of an EPYC (Turin).
# With prepacked weights the choices take 1.02 of the fastest one's time, 1.06 with the costs of Zen 4: a block of B of
# 0.75 of L2 leaves it while tiles of A stream past. Rows of B in place, 4096 bytes apart: 16 x 1024 x 1024 takes 10
# cycles per step of 6 x 2 vectors of AVX2 instead of 7, and 300 x 100 x 1024 takes 1.3 times as long as packed; 4000
# bytes apart, nothing is lost. An empty loop on both cores takes 170 ns; with 300 or 600 instead of 2300 for
# `parallel_start`, ShuffleNet and GhostNet take 0.97 of the time, and MobileNet v3 0.985.
ZEN5 = replace(
    ZEN4,
    mcpu="znver5",
    needs=(*AVX512_BF16, "avxvnni"),
    fma_units={256: 2, 512: 2},
    l1=(48, 12),
    l2=(1024, 16),
    rates=(52.0, 24.0, 8.0),
    costs={
        "parallel_start": 400.0,
        "prefetched_panel": 1.85,
        "l2_block": 0.5,
        "spread_block": 196608.0,
        "l2_whole_panel": 0.3,
        "whole_page_step": 4.0,
        "last_level_weights": 0.1,
        "resumed_near": 13.0,
        "resumed_far": 20.0,
    },
)
ZEN5_MOBILE = replace(ZEN5, fma_units={256: 2, 512: 1}, rates=(28.0, 24.0, 8.0))

CORTEX_A72 = Microarchitecture(
    mcpu="cortex-a72",
    needs=("neon",),
    fma_units={128: 2},
    fma_latency=7,
    l1=(32, 2),
    l2=(512, 16),
    l3=(0, 0),
    rates=(12.0, 6.0, 3.0),
)
# Arm's software optimisation guides of each core; WikiChip for caches, whose sizes makers choose.
NEOVERSE_N1 = Microarchitecture(
    mcpu="neoverse-n1",
    needs=("neon", "fullfp16", "dotprod"),
    fma_units={128: 2},
    fma_latency=4,
    l1=(64, 4),
    l2=(1024, 8),
    l3=(512, 16),
    rates=(29.0, 14.0, 8.0),
)
CORTEX_A76 = replace(NEOVERSE_N1, mcpu="cortex-a76", l2=(512, 8))
CORTEX_A78 = replace(CORTEX_A76, mcpu="cortex-a78")
# NEON; with SVE these are two 256-bit units.
NEOVERSE_V1 = replace(
    NEOVERSE_N1,
    mcpu="neoverse-v1",
    needs=("neon", "fullfp16", "dotprod", "bf16", "i8mm", "sve"),
    fma_units={128: 4},
    rates=(32.0, 20.0, 10.0),
)
NEOVERSE_N2 = replace(NEOVERSE_V1, mcpu="neoverse-n2", needs=(*NEOVERSE_V1.needs, "sve2"), fma_units={128: 2})
NEOVERSE_V2 = replace(
    NEOVERSE_V1, mcpu="neoverse-v2", needs=(*NEOVERSE_V1.needs, "sve2"), l2=(2048, 8), rates=(34.0, 28.0, 13.0)
)
# Performance cores (Firestorm): Apple publishes none of this; AnandTech's deep dive into the A14 and M1, and Dougall
# Johnson's measurements of Firestorm's instructions. L2 is that of four cores, a quarter each.
APPLE_M1 = replace(
    NEOVERSE_N1, mcpu="apple-a14", fma_units={128: 4}, l1=(128, 8), l2=(3072, 12), l3=(0, 0), rates=(40.0, 20.0, 16.0)
)

# Assumed for a CPU that is not in the table: the minimum over current CPUs of its architecture.
GENERIC = {
    "x86_64": Microarchitecture(
        mcpu="",
        needs=(),
        fma_units={256: 2, 512: 1},
        fma_latency=4,
        l1=(32, 8),
        l2=(512, 8),
        l3=(1024, 16),
        rates=(25.0, 12.0, 4.5),
    ),
    "aarch64": Microarchitecture(
        mcpu="",
        needs=(),
        fma_units={128: 2},
        fma_latency=4,
        l1=(64, 4),
        l2=(512, 8),
        l3=(1024, 16),
        rates=(28.0, 14.0, 6.0),
    ),
}

_INTEL_FAMILY_6 = {
    **dict.fromkeys((60, 63, 69, 70), HASWELL),
    **dict.fromkeys((61, 71, 79, 86), BROADWELL),
    **dict.fromkeys((78, 94, 142, 158, 165, 166), SKYLAKE),
    85: SKYLAKE_SERVER,
    **dict.fromkeys((106, 108), ICE_LAKE_SERVER),
    **dict.fromkeys((125, 126), ICE_LAKE_CLIENT),
    167: replace(ICE_LAKE_CLIENT, mcpu="rocketlake"),
    **dict.fromkeys((140, 141), TIGER_LAKE),
    **dict.fromkeys((143, 207), SAPPHIRE_RAPIDS),
    **dict.fromkeys((173, 174), GRANITE_RAPIDS),
    **dict.fromkeys((151, 154), ALDER_LAKE),
    **dict.fromkeys((183, 186, 191), RAPTOR_LAKE),
    **dict.fromkeys((170, 172, 181), replace(RAPTOR_LAKE, mcpu="meteorlake")),
}

# Some hypervisors report the model number of another core, but not extensions that it does not have.
_WITH_FP16 = (SAPPHIRE_RAPIDS, GRANITE_RAPIDS)

# (family, first model, last model): models of one range are one core.
_AMD = (
    (0x17, 0x00, 0x2F, ZEN1),
    (0x17, 0x30, 0x4F, ZEN2),
    (0x17, 0x50, 0x5F, ZEN1),
    (0x17, 0x60, 0xAF, ZEN2),
    (0x18, 0x00, 0xFF, ZEN1),  # Hygon
    (0x19, 0x00, 0x0F, ZEN3),
    (0x19, 0x10, 0x1F, ZEN4),
    (0x19, 0x20, 0x5F, ZEN3),
    (0x19, 0x60, 0xAF, ZEN4),
    (0x1A, 0x00, 0x1F, ZEN5),
    (0x1A, 0x20, 0x2F, ZEN5_MOBILE),
    (0x1A, 0x40, 0x4F, ZEN5),
    (0x1A, 0x60, 0x6F, ZEN5_MOBILE),
    (0x1A, 0x70, 0x7F, ZEN5),
)

# (implementer, part)
_ARM = {
    (0x41, 0xD08): CORTEX_A72,
    (0x41, 0xD0B): CORTEX_A76,
    (0x41, 0xD0C): NEOVERSE_N1,
    (0x41, 0xD40): NEOVERSE_V1,
    (0x41, 0xD41): CORTEX_A78,
    (0x41, 0xD49): NEOVERSE_N2,
    (0x41, 0xD4F): NEOVERSE_V2,
    # M1, M1 Pro, M1 Max; the first core of a machine, which is read, is an efficiency core
    **dict.fromkeys(((0x61, 0x022), (0x61, 0x024), (0x61, 0x028)), APPLE_M1),
    (0x61, 0x023): APPLE_M1,
    (0x61, 0x025): APPLE_M1,
    (0x61, 0x029): APPLE_M1,
}


def find_x86(vendor: str, family: int, model: int, features: tuple[str, ...]) -> Microarchitecture | None:
    """Return the core of that CPUID identity, or None if it is not in the table."""
    if vendor == "GenuineIntel" and family == 6:
        core = _INTEL_FAMILY_6.get(model)
        if "avx512fp16" in features and core not in _WITH_FP16:
            return SAPPHIRE_RAPIDS
        # Skylake server and Cascade Lake differ only in stepping and in this extension.
        return CASCADE_LAKE if core is SKYLAKE_SERVER and "avx512vnni" in features else core
    if vendor in ("AuthenticAMD", "HygonGenuine"):
        return next((core for f, first, last, core in _AMD if f == family and first <= model <= last), None)
    return None


def find_arm(implementer: int, part: int) -> Microarchitecture | None:
    """Return the core of that MIDR identity, or None if it is not in the table."""
    return _ARM.get((implementer, part))
