"""What a machine is: frozen descriptions that decisions take as an argument. Every factor a decision uses is a field.

Units: bytes, bytes per cycle, cycles, MHz. Every field is checked when a description is made, so that a decision never
meets an impossible machine; HardwareError names the field, its value and what would be accepted.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass, field
from typing import Any

from ..errors import HardwareError
from ..workload import MEMORIES
from . import checks

ARCHITECTURES = ("x86_64", "aarch64")
VECTOR_BITS = (128, 256, 512)
FOLD_PLACES = ("load", "local", "in place")


def _put(record: Any, name: str, value: Any) -> None:
    """Store a checked value in its canonical type while a frozen record is being made."""
    object.__setattr__(record, name, value)


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

    def __post_init__(self) -> None:
        checks.one_of("cpu", "arch", self.arch, ARCHITECTURES)
        checks.one_of("cpu", "vector_bits", self.vector_bits, VECTOR_BITS)
        checks.text("cpu", "mcpu", self.mcpu)
        for name in ("features", "assumed"):
            _put(self, name, checks.words("cpu", name, getattr(self, name)))
        for name in ("vector_registers", "fma_units", "fma_latency", "cores", "threads"):
            checks.whole("cpu", name, getattr(self, name))
        if self.threads < self.cores:
            raise HardwareError(f"cpu: threads = {self.threads}, accepted: at least cores = {self.cores}")
        for name in ("l2_bytes_per_cycle", "l3_bytes_per_cycle", "memory_bytes_per_cycle"):
            _put(self, name, checks.number("cpu", name, getattr(self, name)))
        _put(self, "priority_ratio", checks.number("cpu", "priority_ratio", self.priority_ratio, most=1))
        if self.clock_mhz != 0 or isinstance(self.clock_mhz, bool):
            _put(self, "clock_mhz", checks.number("cpu", "clock_mhz", self.clock_mhz))
        if not isinstance(self.caches, (list, tuple)) or not all(isinstance(c, Cache) for c in self.caches):
            raise HardwareError(f"cpu: caches = {self.caches!r}, accepted: a list of caches")
        _put(self, "caches", tuple(self.caches))
        levels = [cache.level for cache in self.caches]
        if levels != list(range(1, len(levels) + 1)) or not levels:
            raise HardwareError(f"cpu: caches of levels {levels}, accepted: levels 1, 2, ... in order, each once")

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
    `acc_max` = 0 is a machine without accumulation buffer.
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
    bandwidth: dict[str, float] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        for name in ("buf_a", "buf_b", "block_m", "block_n", "sync_granularity"):
            checks.whole("near_tile", name, getattr(self, name))
        checks.whole("near_tile", "acc_max", self.acc_max, least=0)
        if self.acc_bytes_per_element is not None:
            checks.whole("near_tile", "acc_bytes_per_element", self.acc_bytes_per_element)
        _put(self, "macs_per_cycle", checks.number("near_tile", "macs_per_cycle", self.macs_per_cycle))
        for name in ("bw_a", "bw_b"):
            if getattr(self, name) is not None:
                _put(self, name, checks.number("near_tile", name, getattr(self, name)))
        if not isinstance(self.bandwidth, dict):
            raise HardwareError(f"near_tile: bandwidth = {self.bandwidth!r}, accepted: a table of memories")
        for memory in self.bandwidth:
            checks.one_of("near_tile.bandwidth", "memory", memory, MEMORIES)
        rates = {m: checks.number("near_tile.bandwidth", m, self.bandwidth[m]) for m in sorted(self.bandwidth)}
        _put(self, "bandwidth", rates)
        if not rates and (self.bw_a is None or self.bw_b is None):
            raise HardwareError(
                "near_tile: no bandwidth is given, accepted: both bw_a and bw_b, or a bandwidth for at least one of "
                f"{', '.join(MEMORIES)}"
            )


@dataclass(frozen=True, kw_only=True)
class WFold:
    """Page 05's accelerator: a main unit that broadcasts rows of input to sub-units, each with kernels of its own.

    A row is what is read, written and multiplied at once. Every sub-unit has `units` multiply-accumulate units of a row
    each, a first buffer for input rows and a second one for rows of weights, loaded in a circle. Rates are rows per
    cycle in steady state: of the main unit's broadcast, of each sub-unit's own weights, of results on the way out.
    """

    row_bytes: int = 64  # M
    sub_units: int = 16  # Ns
    units: int = 4  # Ncu
    first_buffer_rows: int = 8  # L1
    second_buffer_rows: int = 9  # L2
    least_granularity: int = 8  # bytes, the smallest PCI and PCO; the others are twice it, four times, up to a row
    padding_slack: int = 16  # bytes; granularities that pad less than so much more than the least are as good
    co_block_factor: int = 4  # output channels of a sub-unit in a block; more only where the second buffer holds them
    input_rows_per_cycle: float = 1.0
    weight_rows_per_cycle: float = 1.0
    output_rows_per_cycle: float = 1.0
    output_element_bytes: int | None = None  # None: as the operands, which is what the next layer reads
    staging_bytes: int = 0  # registers that strided picks are taken from; 0: strided reads instead
    fold_place: str = "load"  # where stride-fold pads rows: "load" to the chip, to a "local" buffer, or "in place"

    def __post_init__(self) -> None:
        for name in (
            "row_bytes",
            "sub_units",
            "units",
            "first_buffer_rows",
            "second_buffer_rows",
            "least_granularity",
            "padding_slack",
            "co_block_factor",
        ):
            checks.whole("w_fold", name, getattr(self, name))
        checks.whole("w_fold", "staging_bytes", self.staging_bytes, least=0)
        if self.output_element_bytes is not None:
            checks.whole("w_fold", "output_element_bytes", self.output_element_bytes)
        for name in ("input_rows_per_cycle", "weight_rows_per_cycle", "output_rows_per_cycle"):
            _put(self, name, checks.number("w_fold", name, getattr(self, name)))
        checks.one_of("w_fold", "fold_place", self.fold_place, FOLD_PLACES)
        folds, rest = divmod(self.row_bytes, self.least_granularity)
        if rest or folds & (folds - 1) or not folds:
            raise HardwareError(
                f"w_fold: least_granularity = {self.least_granularity}, accepted: row_bytes = {self.row_bytes} divided "
                "by a power of two"
            )
        if self.first_buffer_rows < self.units:
            raise HardwareError(
                f"w_fold: first_buffer_rows = {self.first_buffer_rows}, accepted: at least a row for each of units = "
                f"{self.units}"
            )

    @property
    def granularities(self) -> tuple[int, ...]:
        """Bytes that channels may be cut by, the largest first: a row, half of it, ..."""
        folds = (self.row_bytes // self.least_granularity).bit_length()
        return tuple(self.row_bytes >> i for i in range(folds))

    @property
    def bytes_per_cycle(self) -> int:
        """Bytes of operand that all units multiply in a cycle; over the element size, multiply-adds at peak."""
        return self.sub_units * self.units * self.row_bytes


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """A named machine. A unit that is None is absent from it.

    Made by :meth:`detect` (this CPU), :meth:`load` (a preset or a TOML file), :meth:`neartile` (page 01's machine) or
    :meth:`wfold` (page 05's).
    """

    name: str
    cpu: Cpu | None = None
    near_tile: NearTile | None = None
    w_fold: WFold | None = None

    def __post_init__(self) -> None:
        if not checks.text("hardware", "name", self.name):
            raise HardwareError("hardware: name = '', accepted: a string that is not empty")
        units = {"cpu": Cpu, "near_tile": NearTile, "w_fold": WFold}
        for unit, kind in units.items():
            if not isinstance(getattr(self, unit), (kind, type(None))):
                raise HardwareError(f"hardware: {unit} = {getattr(self, unit)!r}, accepted: a {kind.__name__} or None")
        if all(getattr(self, unit) is None for unit in units):
            raise HardwareError(f"hardware {self.name!r} has no unit, accepted: at least one of {', '.join(units)}")

    @classmethod
    def detect(cls) -> Hardware:
        """This CPU, as far as this process may use it (affinity and container limits count).

        Takes milliseconds. What the system hides is filled with the fallback documented in
        :mod:`tvm_tiling.hardware.detect` and named in `cpu.assumed`. HardwareError where the CPU is neither x86-64
        with AVX2 and FMA nor AArch64.
        """
        from .detect import detect_cpu

        cpu = detect_cpu()
        return cls(name=f"{cpu.mcpu or cpu.arch}-{cpu.cores}c", cpu=cpu)

    @classmethod
    def load(cls, name_or_path: str | os.PathLike[str]) -> Hardware:
        """A preset by name, or the machine a TOML file describes (a path, a name with a separator or ending in .toml).

        HardwareError names the file, the table and the field, and what would be accepted.
        """
        from .file import load

        return load(name_or_path)

    @classmethod
    def neartile(
        cls,
        *,
        buf_a: int,
        buf_b: int,
        acc_max: int,
        bw_a: float,
        bw_b: float,
        macs_per_cycle: float,
        block_m: int = 1,
        block_n: int = 1,
        sync_granularity: int = 8,
        acc_bytes_per_element: int | None = None,
        name: str = "neartile",
    ) -> Hardware:
        """Page 01's machine from its inputs: bytes, bytes per cycle, multiply-accumulates per cycle at the workload's
        element size. `acc_bytes_per_element` None is the workload's accumulator type. HardwareError on a bad field."""
        unit = NearTile(
            buf_a=buf_a,
            buf_b=buf_b,
            acc_max=acc_max,
            macs_per_cycle=macs_per_cycle,
            block_m=block_m,
            block_n=block_n,
            sync_granularity=sync_granularity,
            acc_bytes_per_element=acc_bytes_per_element,
            bw_a=checks.number("near_tile", "bw_a", bw_a),
            bw_b=checks.number("near_tile", "bw_b", bw_b),
        )
        return cls(name=name, near_tile=unit)

    @classmethod
    def wfold(
        cls,
        *,
        row_bytes: int = 64,
        sub_units: int = 16,
        units: int = 4,
        first_buffer_rows: int = 8,
        second_buffer_rows: int = 9,
        name: str = "wfold",
        **further: Any,
    ) -> Hardware:
        """Page 05's machine from its inputs: bytes of a row, counts, rows of the two buffers of a sub-unit. `further`
        are the other fields of :class:`WFold`. HardwareError on a bad field."""
        checks.known_fields("w_fold", further, WFold)
        unit = WFold(
            row_bytes=row_bytes,
            sub_units=sub_units,
            units=units,
            first_buffer_rows=first_buffer_rows,
            second_buffer_rows=second_buffer_rows,
            **further,
        )
        return cls(name=name, w_fold=unit)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, units that are absent left out."""
        return {key: value for key, value in asdict(self).items() if value is not None}

    def to_toml(self) -> str:
        """The description as a TOML file that :meth:`load` reads back as an equal Hardware."""
        from .file import toml_text

        return toml_text(self)

    def fingerprint(self) -> str:
        """16 hexadecimal digits that tell machines apart in databases and caches of compiled code.

        A hash of every field that shapes kernels and their measured cost (units, architecture, features, vectors,
        usable cores and threads, caches, rates). Left out are the name, the clock, whose reading varies from one
        detection to the next, and the list of assumed fields: a value counts, not where it came from.
        """
        shape = self.to_dict()
        del shape["name"]
        for noise in ("clock_mhz", "assumed"):
            shape.get("cpu", {}).pop(noise, None)
        if "cpu" in shape:
            shape["cpu"]["features"] = sorted(shape["cpu"]["features"])
        canonical = json.dumps(shape, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()[:16]
