"""What a machine is: frozen descriptions that decisions take as an argument. Every factor a decision uses is a field.

Units: bytes, bytes per cycle, cycles, MHz.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Cache:
    """One level of a set-associative data (or unified) cache. `cores` is how many cores share one instance."""

    level: int
    size: int
    ways: int
    line: int
    cores: int = 1

    @property
    def sets(self) -> int:
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

    def lanes(self, element_bytes: int) -> int:
        """Elements of that size in one vector register."""
        return self.vector_bits // (8 * element_bytes)

    def cache(self, level: int) -> Cache | None:
        """The cache of that level, or None where the machine has none."""
        return next((c for c in self.caches if c.level == level), None)


@dataclass(frozen=True, kw_only=True)
class NearTile:
    """Page 01's accelerator: input buffers for A and B, a matrix engine, an accumulation buffer.

    `bandwidth` maps a memory's name to the bytes per cycle it delivers; `bw_a`/`bw_b`, where given, override it for
    that operand. `macs_per_cycle` is the peak at the workload's element size. Buffers are what double buffering leaves.
    """

    buf_a: int
    buf_b: int
    acc_max: int
    macs_per_cycle: float
    block_m: int = 1
    block_n: int = 1
    sync_granularity: int = 8
    acc_bytes_per_element: int | None = None  # None: the accumulator type of the workload
    bw_a: float | None = None
    bw_b: float | None = None
    bandwidth: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """A named machine. A unit that is None is absent from it."""

    name: str
    cpu: Cpu | None = None
    near_tile: NearTile | None = None
