"""CPUs and their caches."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field

from ..errors import HardwareError
from . import checks
from .instruction_sets import EXTENSIONS
from .kernel_costs import KernelCosts

ARCHITECTURES = ("x86_64", "aarch64")
# AArch64's are NEON's. With 256-bit SVE vectors LLVM broadcasts each element of A on the multiply units: according to
# llvm-mca this reaches 0.74 of the multiply-adds per cycle of four NEON units on Neoverse V1.
VECTOR_BITS = {"x86_64": (128, 256, 512), "aarch64": (128,)}
ASSUMED_MHZ = 3000.0  # if the system hides the clock
CACHE_LINE = 64  # bytes, of all described CPUs; kernels assume it, and detection if the system hides the size


@dataclass(frozen=True, kw_only=True)
class Cache:
    """One level of a set-associative data or unified cache.

    `size` and `line` are in bytes, `ways` is the associativity; `cores` is how many cores of the machine share one
    instance, whether or not this process may use them all.
    """

    level: int
    size: int
    ways: int
    line: int
    cores: int = 1

    def __post_init__(self) -> None:
        for name in ("level", "size", "ways", "line", "cores"):
            checks.whole("cache", name, getattr(self, name))
        if self.size % (self.ways * self.line):
            raise HardwareError(
                f"cache: size = {self.size} of level {self.level}; expected a multiple of ways * line = "
                f"{self.ways} * {self.line} = {self.ways * self.line} bytes"
            )

    @property
    def sets(self) -> int:
        """Number of sets of `ways` lines: addresses `sets * line` apart map to the same set."""
        return self.size // (self.ways * self.line)


@dataclass(frozen=True, kw_only=True)
class Cpu:
    """A CPU as the decisions see it.

    It has `vector_registers` registers of `vector_bits` bits, and `caches` from level 1 on. `fma_units` is the number
    of full-width fused multiply-adds started per cycle (1 if a 512-bit one is executed as two halves on two 256-bit
    units), `fma_latency` its latency in cycles. `cores` are the cores that this process may use, `threads` the hardware
    threads. `features` are the instruction set extensions by their LLVM names.
    """

    arch: str  # x86_64 or aarch64
    features: tuple[str, ...]
    vector_bits: int
    vector_registers: int
    fma_units: int
    fma_latency: int
    cores: int
    threads: int
    caches: tuple[Cache, ...]
    mcpu: str = ""  # LLVM's name of the processor; empty: generic with `features`
    clock_mhz: float = 0.0  # 0: unknown
    l2_bytes_per_cycle: float = 32.0  # sustained, one core
    l3_bytes_per_cycle: float = 12.0  # sustained, one core
    memory_bytes_per_cycle: float = 6.0  # sustained, one core
    priority_ratio: float = 0.8  # fraction of the L1 ways that rows read in place may fill
    assumed: tuple[str, ...] = ()  # fields that the system hid, filled with the documented fallback
    # Cross-core cache-line transfers: bytes per cycle that a core writes to lines that another core has read since.
    handed_over_bytes_per_cycle: float = checks.added(2.5)
    costs: KernelCosts | None = field(default=None, metadata=checks.ADDED)  # None: the defaults of KernelCosts
    # Dot-product instructions by name, where they differ from the table of instructions: instructions started per
    # full-width fused multiply-add that could start in their place, and latency in cycles.
    dot_rates: dict[str, float] = field(default_factory=dict, hash=False, metadata=checks.ADDED)
    dot_latencies: dict[str, float] = field(default_factory=dict, hash=False, metadata=checks.ADDED)

    def __post_init__(self) -> None:
        checks.one_of("cpu", "arch", self.arch, ARCHITECTURES)
        checks.one_of("cpu", "vector_bits", self.vector_bits, VECTOR_BITS[self.arch])
        checks.text("cpu", "mcpu", self.mcpu)
        for name in ("features", "assumed"):
            checks.put(self, name, checks.words("cpu", name, getattr(self, name)))
        self._check_features()
        for name in ("vector_registers", "fma_units", "fma_latency", "cores", "threads"):
            checks.whole("cpu", name, getattr(self, name))
        if self.threads < self.cores:
            raise HardwareError(f"cpu: threads = {self.threads}; expected at least cores = {self.cores}")
        rates = ("l2_bytes_per_cycle", "l3_bytes_per_cycle", "memory_bytes_per_cycle", "handed_over_bytes_per_cycle")
        for name in rates:
            checks.put(self, name, checks.number("cpu", name, getattr(self, name)))
        for name in ("dot_rates", "dot_latencies"):
            given = checks.table("cpu", name, getattr(self, name))
            checks.put(
                self, name, {key: checks.number(f"cpu.{name}", key, given[key], most=1e4) for key in sorted(given)}
            )
        checks.put(self, "priority_ratio", checks.number("cpu", "priority_ratio", self.priority_ratio, most=1))
        if self.clock_mhz != 0 or isinstance(self.clock_mhz, bool):
            checks.put(self, "clock_mhz", checks.number("cpu", "clock_mhz", self.clock_mhz))
        if not isinstance(self.caches, (list, tuple)) or not all(isinstance(c, Cache) for c in self.caches):
            raise HardwareError(f"cpu: caches = {self.caches!r}; expected a list of caches")
        checks.put(self, "caches", tuple(self.caches))
        levels = [cache.level for cache in self.caches]
        if levels != list(range(1, len(levels) + 1)) or not levels:
            raise HardwareError(f"cpu: caches of levels {levels}; expected levels 1, 2, ... in order, each once")

    def _check_features(self) -> None:
        """Raise HardwareError for extensions of another architecture."""
        for arch, extensions in EXTENSIONS.items():
            for foreign in sorted({each.name for each in extensions}.intersection(self.features)):
                if arch != self.arch:
                    own = ", ".join(sorted(each.name for each in EXTENSIONS[self.arch]))
                    raise HardwareError(
                        f"cpu: features with {foreign!r}, an extension of {arch}; expected extensions of {self.arch}: "
                        + own
                    )

    @property
    def mhz(self) -> float:
        """The clock, or the assumed value."""
        return self.clock_mhz or ASSUMED_MHZ

    @property
    def kernel_registers(self) -> int:
        """Vector registers that the tiles of kernels fill. Without a microarchitecture, LLVM's schedule of a tile that
        fills 16 registers moves a broadcast ahead and a sum to memory: 4 x 3 vectors then run at 0.8 of the rate."""
        return self.vector_registers - (self.vector_registers == 16 and not self.mcpu)

    @functools.cached_property
    def kernel_costs(self) -> KernelCosts:
        """Costs of kernels other than multiply-adds and memory traffic."""
        return self.costs or KernelCosts()

    @property
    def parallel_start(self) -> float:
        """Cycles to start the thread pool once."""
        return self.kernel_costs.parallel_start * self.mhz / 1000

    @property
    def meeting(self) -> float:
        """Cycles of a synchronised step on all cores beyond its share of a step on one core."""
        return self.kernel_costs.meeting * self.mhz / 1000

    @property
    def l1_bytes(self) -> int:
        """Bytes of the L1 data cache."""
        return self.caches[0].size

    @functools.cached_property
    def l2_bytes(self) -> float:
        """Bytes of L2 per core; without a described L2, what a core has beyond L1."""
        cache = self.cache(2)
        return cache.size / cache.cores if cache else 8.0 * self.l1_bytes

    def bytes_per_cycle(self, resident: float) -> float:
        """Return the sustained bandwidth of one core from the memory level that holds `resident` bytes."""
        near, far = self._held
        if resident <= near:
            return self.l2_bytes_per_cycle
        return self.l3_bytes_per_cycle if resident <= far else self.memory_bytes_per_cycle

    @functools.cached_property
    def _held(self) -> tuple[float, float]:
        """The most bytes that stay in L2 and in the last-level cache."""
        costs, last = self.kernel_costs, self.cache(3)
        return costs.l2_share * self.l2_bytes, costs.last_level_share * (last.size if last else self.l2_bytes)

    def lanes(self, element_bytes: int) -> int:
        """Return the number of elements of that size in one vector register."""
        return self.vector_bits // (8 * element_bytes)

    def cache(self, level: int) -> Cache | None:
        """Return the cache of that level, or None."""
        return self._by_level.get(level)

    @functools.cached_property
    def _by_level(self) -> dict[int, Cache]:
        return {cache.level: cache for cache in reversed(self.caches)}
