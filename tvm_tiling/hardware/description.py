"""Hardware descriptions: frozen records that decisions take as an argument. Every factor that a decision uses is a
field.

Units are bytes, bytes per cycle, cycles and MHz. Every field is checked on construction, so that decisions never see an
impossible machine; HardwareError names the field, its value and what is accepted.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from typing import Any

from ..errors import HardwareError
from ..figures import quantity
from . import checks
from .area import Area
from .calibration import Calibration
from .column import LATENCIES, Column
from .cpu import Cache, Cpu
from .detect import detect_cpu
from .dot_instructions import DOT_INSTRUCTIONS
from .energy import Energy
from .file import load, toml_text
from .kernel_costs import KernelCosts
from .memory import BUFFERS, MEMORIES, Level, Memory
from .near_tile import NearTile
from .queues import Queues
from .this_machine import calibration_file, machine_key
from .usable import check_threads
from .vector import Vector
from .w_fold import WFold

__all__ = [
    "Area",
    "Cache",
    "Column",
    "Cpu",
    "Energy",
    "Hardware",
    "Level",
    "Memory",
    "NearTile",
    "Queues",
    "Vector",
    "WFold",
]

# The computing units, of which a machine has at least one.
ENGINES = {"cpu": Cpu, "near_tile": NearTile, "w_fold": WFold, "column": Column, "vector": Vector}
UNITS = {**ENGINES, "queues": Queues, "energy": Energy, "area": Area}

# Simulated units whose timing model has changed, with its version: at buffer level since 1.
TIMED = {"w_fold": 1}


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """A named machine. A unit that is None is absent: `cpu`, `near_tile` (a matrix engine with buffers), `w_fold`,
    `column` and `vector` engines.

    Created by :meth:`detect` (this CPU), :meth:`load` (a preset or a TOML file), :meth:`neartile` (input buffers and a
    matrix engine), :meth:`wfold` (a W-fold accelerator) or :meth:`rnn` (a column engine). `memories` are described by
    name: external, internal and the buffers a, b, acc, out. `levels` are the storage hierarchy, outermost first;
    `near_tile` then describes one instance of the innermost level. `queues`, `energy` and `area` describe issue and
    synchronisation, and the energy and area coefficients. Defaults for what an accelerator omits are those of
    :class:`tvm_tiling.hardware.machine.Machine`. This class and those of its parts raise HardwareError, naming the
    field, for values that are invalid or contradict each other.
    """

    name: str
    cpu: Cpu | None = None
    near_tile: NearTile | None = None
    w_fold: WFold | None = None
    column: Column | None = None
    vector: Vector | None = None
    memories: dict[str, Memory] = field(default_factory=dict, hash=False)
    levels: tuple[Level, ...] = ()
    queues: Queues | None = None
    energy: Energy | None = None
    area: Area | None = None
    clock_mhz: float | None = None  # of the accelerator; None: unknown
    calibration: Calibration | None = None  # how values of the CPU were measured; None: they were not

    def __post_init__(self) -> None:
        if not checks.text("hardware", "name", self.name):
            raise HardwareError("hardware: name = ''; expected a non-empty string")
        for unit, kind in UNITS.items():
            if not isinstance(getattr(self, unit), (kind, type(None))):
                raise HardwareError(f"hardware: {unit} = {getattr(self, unit)!r}; expected a {kind.__name__} or None")
        if all(getattr(self, unit) is None for unit in ENGINES):
            raise HardwareError(f"hardware {self.name!r} has no unit; expected at least one of {', '.join(ENGINES)}")
        for name, memory in checks.table("hardware", "memories", self.memories).items():
            checks.one_of("hardware.memories", "memory", name, (*MEMORIES, *BUFFERS))
            if not isinstance(memory, Memory):
                raise HardwareError(f"hardware.memories: {name} = {memory!r}; expected a Memory")
        checks.put(self, "memories", {name: self.memories[name] for name in sorted(self.memories)})
        if not isinstance(self.levels, (list, tuple)) or not all(isinstance(level, Level) for level in self.levels):
            raise HardwareError(f"hardware: levels = {self.levels!r}; expected a list of levels")
        checks.put(self, "levels", tuple(self.levels))
        if self.levels and self.near_tile is not None and self.near_tile.partial_blocks == "streamed":
            raise HardwareError(
                f"hardware {self.name!r}: near_tile.partial_blocks = 'streamed' is not supported with storage "
                "levels; expected one of them"
            )
        names = [level.name for level in self.levels]
        if len(set(names) | {*MEMORIES, *BUFFERS}) < len(names) + len(MEMORIES) + len(BUFFERS):
            raise HardwareError(f"hardware: levels are named {names}; expected names that no other level or memory has")
        if self.cpu is not None:
            named = {*self.cpu.dot_rates, *self.cpu.dot_latencies}
            for name in sorted(named):
                checks.one_of("cpu.dot_rates", "instruction", name, dict.fromkeys(row.name for row in DOT_INSTRUCTIONS))
        if self.calibration is not None and (not isinstance(self.calibration, Calibration) or self.cpu is None):
            raise HardwareError(f"hardware {self.name!r}: calibration without a CPU; expected a [cpu] table")
        if self.clock_mhz is not None:
            checks.put(self, "clock_mhz", checks.number("hardware", "clock_mhz", self.clock_mhz))

    @classmethod
    def detect(cls, *, calibrated: bool = True) -> Hardware:
        """Return this CPU, as far as this process may use it (affinity and container limits are respected).

        Takes milliseconds. If `tvm-tiling hardware --calibrate` has measured this machine, the measured values are
        used, and `calibration` says which; with `calibrated=False`, or the environment variable
        TVM_TILING_CALIBRATION=off, they are not. Values that the system hides are filled with the fallback documented
        in :mod:`tvm_tiling.hardware.detect` and listed in `cpu.assumed`. HardwareError if the CPU is neither x86-64
        with AVX2 and FMA nor AArch64, or if the calibration is invalid or that of another machine.
        """
        cpu = detect_cpu()
        found = cls(name=f"{cpu.mcpu or cpu.arch}-{cpu.cores}c", cpu=cpu)
        key = machine_key(cpu)
        file = calibration_file(key) if calibrated else None
        return found if file is None else found.calibrated_by(cls.load(file), key, str(file))

    def calibrated_by(self, other: Hardware, key: str, place: str) -> Hardware:
        """Return this machine, whose key is `key`, with the values measured by the calibration of `other`. Raises
        HardwareError, naming `place`, if `other` has no calibration or that of another machine.
        """
        assert self.cpu is not None
        if other.calibration is None:
            raise HardwareError(
                f"{place} has no [calibration] table; expected a file written by tvm-tiling hardware --calibrate"
            )
        if other.calibration.machine != key:
            raise HardwareError(
                f"{place} is the calibration of another machine: {other.calibration.machine}; expected {key}, "
                "use tvm-tiling hardware --calibrate to measure this one"
            )
        return replace(self, cpu=other.calibration.apply(self.cpu), calibration=other.calibration)

    @property
    def label(self) -> str:
        """Return the name, and the calibration if there is one."""
        return f"{self.name}, {self.calibration.label}" if self.calibration else self.name

    def with_cores(self, cores: int) -> Hardware:
        """Return this machine with `cores` of its CPU's cores in use, one thread on each. Raises HardwareError if it
        has no CPU, WorkloadError unless `cores` is from 1 to its number of cores.
        """
        if self.cpu is None:
            raise HardwareError(f"threads = {cores}, but {self.name} has no CPU")
        cores = check_threads(cores, self.cpu.cores)
        if cores == self.cpu.cores:
            return self
        name = f"{self.name.removesuffix(f'-{self.cpu.cores}c')}-{cores}c"
        return replace(self, name=name, cpu=replace(self.cpu, cores=cores, threads=cores))

    @classmethod
    def load(cls, name_or_path: str | os.PathLike[str]) -> Hardware:
        """Return a preset by name, or the machine that a TOML file describes (a path, or a name with a separator or
        ending in .toml). HardwareError names the file, the table and the field, and what is accepted."""
        found = load(cls, name_or_path)
        if found.calibration is not None and found.cpu is not None:
            try:
                found.calibration.check(found.cpu)
            except HardwareError as error:
                raise HardwareError(f"{os.fspath(name_or_path)}: {error}") from None
        return found

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
        """Return a near-tile accelerator: `buf_a`, `buf_b`, `acc_max` and `sync_granularity` in bytes, `bw_a` and
        `bw_b` in bytes per cycle, `macs_per_cycle` at the element size of the workload, and blocks of `block_m` x
        `block_n` results. `acc_bytes_per_element` None is that of the workload's accumulator type. Raises HardwareError
        for an invalid field.
        """
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
        """Return a W-fold accelerator: `row_bytes` per row, `sub_units` of `units` multiply-accumulate units each, with
        buffers of `first_buffer_rows` and `second_buffer_rows` rows. `further` are the other fields of :class:`WFold`.
        Raises HardwareError for an invalid field.
        """
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

    @classmethod
    def rnn(
        cls,
        *,
        multipliers: int,
        tree_inputs: int | None = None,
        tree_tail: int = 1,
        threads: int = 1,
        latencies: Mapping[str, int] | Sequence[int] = (),
        engines: int = 1,
        name: str = "rnn",
    ) -> Hardware:
        """Return a machine with `engines` column engines of `multipliers` (NPE) each, an adder tree of `tree_inputs`
        (None: for any number of columns) with a tail of `tree_tail`, and `threads` per engine. `latencies` are in
        cycles: those of mul, add, acc and tail in this order, or some of them by name. Raises HardwareError for an
        invalid field.
        """
        if not isinstance(latencies, Mapping):
            if len(latencies) not in (0, len(LATENCIES)):
                raise HardwareError(f"column: latencies = {latencies!r}; expected four numbers, {', '.join(LATENCIES)}")
            latencies = dict(zip(LATENCIES, latencies, strict=False))
        for latency in latencies:
            checks.one_of("column", "latencies", latency, LATENCIES)
        cycles: dict[str, Any] = {f"{latency}_latency": count for latency, count in latencies.items()}
        unit = Column(
            multipliers=multipliers,
            tree_inputs=tree_inputs,
            tree_tail=tree_tail,
            threads=threads,
            engines=engines,
            **cycles,
        )
        return cls(name=name, column=unit)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, omitting what is absent."""
        return {key: value for key, value in asdict(self).items() if value is not None and value not in ((), {})}

    def to_toml(self) -> str:
        """Return the description as a TOML file that :meth:`load` reads back as an equal Hardware."""
        return toml_text(self)

    def __str__(self) -> str:
        return f"{self.label}: {self.summary}"

    @property
    def summary(self) -> str:
        """One line: the units with their sizes."""
        parts = []
        if self.cpu is not None:
            cpu = self.cpu
            units = f"{cpu.fma_units} x {cpu.vector_bits}-bit FMA"
            cores = quantity(cpu.cores, "core")
            parts.append(f"{cpu.mcpu or cpu.arch}, {cores}, {units}, L1 {cpu.caches[0].size // 1024} KiB")
        if self.near_tile is not None:
            unit = self.near_tile
            buffers = "/".join(str(size // 1024) for size in (unit.buf_a, unit.buf_b, unit.acc_max))
            parts.append(f"matrix engine, {unit.macs_per_cycle:g} MAC/cycle, buffers A/B/accumulators {buffers} KiB")
        if self.w_fold is not None:
            folder = self.w_fold
            buffers = f"{folder.first_buffer_rows}/{folder.second_buffer_rows} rows"
            engine = f"{folder.sub_units} x {folder.units} units of {folder.row_bytes}-byte rows"
            parts.append(f"W-fold engine, {engine}, buffers input/weights {buffers}")
        if self.column is not None:
            column = self.column
            tree = f"an adder tree of {column.tree_inputs}" if column.tree_inputs else "a full adder tree"
            parts.append(f"column engine, {column.engines} x {column.multipliers} multipliers, {tree}")
        if self.vector is not None:
            parts.append(f"vector engine of {self.vector.lanes} lanes")
        if self.levels:
            parts.append(f"levels {' / '.join(level.name for level in self.levels)}")
        return "; ".join(parts)

    def fingerprint(self) -> str:
        """Return 16 hexadecimal digits that identify the machine in databases and caches of compiled code.

        This is a hash of every field that affects kernels and their measured cost (units, architecture, features,
        vectors, usable cores and threads, caches, rates). Excluded are the name, the area, the clock, whose reading
        varies between detections, the list of assumed fields and the calibration: a value counts, not its origin. For a
        simulated unit, the version of its timing model counts too, so that costs from before a change of it are not
        reused.
        """
        shape = self.to_dict()
        for noise in ("name", "area", "clock_mhz", "calibration"):
            shape.pop(noise, None)
        for noise in ("clock_mhz", "assumed"):
            shape.get("cpu", {}).pop(noise, None)
        if "cpu" in shape:
            shape["cpu"]["features"] = sorted(shape["cpu"]["features"])
        for unit, kind in UNITS.items():
            if unit in shape:
                _drop_added(shape[unit], kind)
        if shape.get("cpu", {}).get("costs"):
            _drop_added(shape["cpu"]["costs"], KernelCosts)
        for memory in shape.get("memories", {}).values():
            _drop_added(memory, Memory)
        for unit, way in TIMED.items():
            if unit in shape:
                shape[unit]["timed"] = way
        canonical = json.dumps(shape, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def _drop_added(plain: dict[str, Any], kind: type[Any]) -> None:
    """Remove the fields that descriptions of that kind did not have originally, if they have their defaults."""
    for added in (f for f in fields(kind) if f.metadata.get("added")):
        default = added.default_factory() if added.default_factory is not MISSING else added.default
        if plain[added.name] == default:
            del plain[added.name]
