"""General-purpose processors and their caches (page 03)."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import HardwareError
from . import checks

ARCHITECTURES = ("x86_64", "aarch64")
VECTOR_BITS = (128, 256, 512)


@dataclass(frozen=True, kw_only=True)
class Cache:
    """One level of a set-associative data (or unified) cache.

    `size` and `line` in bytes; `cores` is how many cores of the machine share one instance, whether or not this
    process may use them all.
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
                f"cache: size = {self.size} of level {self.level}, accepted: a multiple of ways * line = "
                f"{self.ways} * {self.line} = {self.ways * self.line} bytes"
            )

    @property
    def sets(self) -> int:
        """Sets of `ways` lines: addresses `sets * line` apart fall into the same one."""
        return self.size // (self.ways * self.line)


@dataclass(frozen=True, kw_only=True)
class Cpu:
    """A general-purpose processor as page 03 needs it.

    `fma_units` is how many full-width fused multiply-adds start per cycle (1 where a 512-bit one is executed as two
    halves on two 256-bit units). `cores` are the cores this process may really use, `threads` the hardware threads.
    `features` are the instruction-set extensions by their LLVM names.
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
    priority_ratio: float = 0.8  # share of the L1 ways that rows read in place may fill (page 03)
    assumed: tuple[str, ...] = ()  # fields the system hid, filled with the documented fallback
    # Written by one core to lines that another one has read since.
    handed_over_bytes_per_cycle: float = checks.added(2.5)

    def __post_init__(self) -> None:
        checks.one_of("cpu", "arch", self.arch, ARCHITECTURES)
        checks.one_of("cpu", "vector_bits", self.vector_bits, VECTOR_BITS)
        checks.text("cpu", "mcpu", self.mcpu)
        for name in ("features", "assumed"):
            checks.put(self, name, checks.words("cpu", name, getattr(self, name)))
        for name in ("vector_registers", "fma_units", "fma_latency", "cores", "threads"):
            checks.whole("cpu", name, getattr(self, name))
        if self.threads < self.cores:
            raise HardwareError(f"cpu: threads = {self.threads}, accepted: at least cores = {self.cores}")
        rates = ("l2_bytes_per_cycle", "l3_bytes_per_cycle", "memory_bytes_per_cycle", "handed_over_bytes_per_cycle")
        for name in rates:
            checks.put(self, name, checks.number("cpu", name, getattr(self, name)))
        checks.put(self, "priority_ratio", checks.number("cpu", "priority_ratio", self.priority_ratio, most=1))
        if self.clock_mhz != 0 or isinstance(self.clock_mhz, bool):
            checks.put(self, "clock_mhz", checks.number("cpu", "clock_mhz", self.clock_mhz))
        if not isinstance(self.caches, (list, tuple)) or not all(isinstance(c, Cache) for c in self.caches):
            raise HardwareError(f"cpu: caches = {self.caches!r}, accepted: a list of caches")
        checks.put(self, "caches", tuple(self.caches))
        levels = [cache.level for cache in self.caches]
        if levels != list(range(1, len(levels) + 1)) or not levels:
            raise HardwareError(f"cpu: caches of levels {levels}, accepted: levels 1, 2, ... in order, each once")

    def lanes(self, element_bytes: int) -> int:
        """Elements of that size in one vector register."""
        return self.vector_bits // (8 * element_bytes)

    def cache(self, level: int) -> Cache | None:
        """The cache of that level, or None where the machine has none."""
        return next((c for c in self.caches if c.level == level), None)
