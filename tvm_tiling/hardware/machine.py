"""The simulated accelerator of a description, with defaults for everything that the description omits (design page 06).

What is omitted costs nothing:

- memories and buffers have no latency, a port for every queue, and unlimited capacity unless an engine limits it. The
  buffers of A and B hold twice what `near_tile` states if it is double-buffered;
- transfers of A and B run at the bandwidths of `near_tile`; those of results, and all transfers of machines without it,
  are unlimited, unless `memories` gives a rate;
- the vector engine supports every function and has as many lanes as the other engines have multipliers, so that it is
  never slower. Next to a column engine alone, it is the tail of that engine: it has `tail_lanes` lanes, and without
  them its cycles are included in `tail_latency` and it takes none of its own;
- queues hold any number of instructions, one queue per engine; issue and tokens take no cycles. A machine with several
  storage levels has one engine that loads each level and one that stores from each, as far as queues allow, and none
  for A or B alone;
- energy and area are those of a published 45 nm process (:mod:`tvm_tiling.hardware.energy`, :mod:`.area`).
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace

from ..errors import HardwareError, nearest
from ..operand_types import ELEMENTS
from . import checks
from .area import Area
from .description import Hardware
from .energy import Energy
from .memory import BUFFERS, MEMORIES, Level, Memory
from .queues import MOST_QUEUES, Queues
from .vector import Vector


@dataclass(frozen=True)
class Machine:
    """The accelerator of `hardware`. HardwareError if it has none, or more queues than an instruction can address."""

    hardware: Hardware

    def __post_init__(self) -> None:
        if not self._computing and self.hardware.vector is None:
            raise HardwareError(
                f"{self.hardware.name} is not an accelerator; expected a description with at least one of "
                "near_tile, w_fold, column, vector"
            )
        if len(self.queues) > MOST_QUEUES:
            raise HardwareError(
                f"{self.hardware.name} has {len(self.queues)} queues, {', '.join(self.queues)}; expected at most "
                f"{MOST_QUEUES}, engines may share one by queues.of_engine"
            )

    @functools.cached_property
    def _computing(self) -> tuple[str, ...]:
        machine = self.hardware
        column = machine.column.engines if machine.column else 0
        return (
            *(("matrix",) if machine.near_tile else ()),
            *(("wfold",) if machine.w_fold else ()),
            *(("column",) if column == 1 else (f"column{number}" for number in range(column))),
        )

    @functools.cached_property
    def engines(self) -> tuple[str, ...]:
        """Its engines: load_a, load_b, those of matrix, wfold and column that exist, vector, store. Several column
        engines are column0, column1, ...; with storage levels there are also load_<level> and store_<level>, and
        load_a, load_b and store are those of the outermost level."""
        levels = [level.name for level in self.hardware.levels] if self.has_levels else []
        loads, stores = ([f"{move}_{level}" for level in levels] for move in ("load", "store"))
        return ("load_a", "load_b", *loads, *self._computing, "vector", "store", *stores)

    @property
    def has_levels(self) -> bool:
        """Whether data moves level by level: a single level with one instance is the buffers of `near_tile`."""
        levels = self.hardware.levels
        return len(levels) > 1 or any(level.instances > 1 for level in levels)

    @functools.cached_property
    def queues(self) -> tuple[str, ...]:
        """The distinct names of its queues, in the order of their engines."""
        return tuple(dict.fromkeys(self.queue_of(engine) for engine in self.engines))

    @property
    def issue(self) -> Queues:
        """Depth of the queues, cycles of issue and of tokens."""
        return self.hardware.queues or Queues()

    def queue_of(self, engine: str) -> str:
        """Return the queue that an engine's instructions go to. HardwareError for an unknown engine."""
        if engine not in self.engines:
            raise HardwareError(f"{self.hardware.name} has no engine {engine!r}; {nearest(engine, self.engines)}")
        if self.has_levels and (engine in ("load_a", "load_b", "store") or engine.startswith(("load_", "store_"))):
            return self._level_queue(engine)
        kind = engine if engine in self.issue.of_engine else engine.rstrip("0123456789")
        return self.issue.of_engine.get(kind, engine)

    def _level_queue(self, engine: str) -> str:
        """Return the queue of an engine that moves data between levels. Levels whose stores would exceed the number of
        queues share that of the outermost of them."""
        names = [level.name for level in self.hardware.levels]
        move, _, level = engine.partition("_")
        place = names.index(level) if level in names else 0
        if move == "store":
            others = {self.issue.of_engine.get(name, name) for name in (*self._computing, "vector")}
            place = min(place, max(0, MOST_QUEUES - len(names) - len(others) - 1))
        return f"{move}_{names[place]}"

    def macs(self, element_bytes: int) -> float:
        """Return the multiply-accumulates per cycle at peak of all its engines, on elements of that size."""
        machine = self.hardware
        total = 0.0
        if machine.near_tile is not None:
            total += machine.near_tile.macs(element_bytes) * math.prod(level.instances for level in machine.levels)
        if machine.w_fold is not None:
            total += machine.w_fold.bytes_per_cycle / element_bytes
        if machine.column is not None:
            total += machine.column.multipliers * machine.column.engines
        return total

    def takes(self, dtype: str) -> bool:
        """Return whether one of its engines multiplies operands of that type."""
        machine = self.hardware
        units = [unit.dtypes for unit in (machine.near_tile, machine.w_fold, machine.column) if unit is not None]
        return any(not dtypes or dtype in dtypes for dtypes in units)

    @functools.cached_property
    def vector(self) -> Vector:
        """Its vector engine."""
        if self.hardware.vector is not None:
            return self.hardware.vector
        column = self.hardware.column
        lanes = column.tail_lanes if column is not None and self._tail_alone else None
        return Vector(lanes=lanes or math.ceil(self.macs(1)))

    @property
    def _tail_alone(self) -> bool:
        machine = self.hardware
        return machine.vector is None and machine.near_tile is None and machine.w_fold is None

    def forwards(self, unit: str) -> bool:
        """Return whether an instruction of a unit ("near_tile", "w_fold", "column", "vector") can directly follow one
        of the same unit whose result it reads; transfers ("") never can."""
        if not unit:
            return False
        found = self.vector if unit == "vector" else getattr(self.hardware, unit)
        return found is not None and found.forwards

    @property
    def vector_is_tail(self) -> bool:
        """Whether the vector engine is the tail of a column engine and takes no cycles beyond its latency."""
        column = self.hardware.column
        return self._tail_alone and (column is None or column.tail_lanes is None)

    @property
    def energy(self) -> Energy:
        """Energy coefficients of operations and bytes."""
        return self.hardware.energy or Energy()

    @functools.cached_property
    def area(self) -> dict[str, float]:
        """Square millimetres by component: the multipliers, each as wide as the machine's widest operands, the vector
        engine, and the buffers and on-chip memory whose sizes the description gives."""
        cost = self.hardware.area or Area()
        sizes = {ELEMENTS[dtype].bits // 8 for dtype in checks.MULTIPLIED if self.takes(dtype)}
        per_mac = {int(size): um2 for size, um2 in cost.mac_um2.items() if int(size) in sizes}
        parts = {"multipliers": max((self.macs(size) * um2 for size, um2 in per_mac.items()), default=0.0)}
        if not self.vector_is_tail:
            parts["vector"] = self.vector.lanes * cost.lane_um2
        if self.hardware.w_fold is not None:
            parts["wfold"] = self.hardware.w_fold.buffer_bytes * cost.byte_um2
        copies = 1
        for level in self.hardware.levels:
            copies *= level.instances
            parts[level.name] = copies * level.all_bytes * cost.byte_um2
        for name in ("internal", *(() if self.hardware.levels else BUFFERS)):
            parts[name] = (self.capacity(name) or 0) * cost.byte_um2
        return {name: um2 / 1e6 for name, um2 in parts.items() if um2}

    @functools.cached_property
    def memories(self) -> tuple[str, ...]:
        """The names of its memories and buffers; those of a level are level.a, level.b, level.out."""
        of_levels = (f"{level.name}.{operand}" for level in self.hardware.levels for operand in ("a", "b", "out"))
        return (*MEMORIES, *BUFFERS, *of_levels)

    def memory(self, name: str) -> Memory:
        """Return a memory or buffer: its capacity, latency and ports (banks). HardwareError for an unknown name."""
        if name not in self.memories:
            raise HardwareError(f"{self.hardware.name} has no memory {name!r}; {nearest(name, self.memories)}")
        level = self._level(name)
        if level is not None:
            own = level.capacity(name.rpartition(".")[2])
            return Memory(bytes=own, bytes_per_cycle=level.bytes_per_cycle, latency=level.latency)
        given = self.hardware.memories.get(name, Memory())
        room = given.bytes if given.bytes is not None else self._room(name)
        return replace(given, bytes=room)

    def capacity(self, name: str) -> int | None:
        """Return the bytes that a memory or buffer holds, 0 if the machine does not have it, None without limit. For a
        level whose operands share its bytes, each operand gets all of them."""
        tile = self.hardware.near_tile
        if name == "acc" and tile is not None and tile.acc_max == 0 and name not in self.hardware.memories:
            return 0
        return self.memory(name).bytes

    def is_doubled(self, name: str) -> bool:
        """Return whether a buffer holds twice what `near_tile` states, one half being loaded while the other is
        read."""
        tile = self.hardware.near_tile
        given = self.hardware.memories.get(name, Memory())
        return tile is not None and tile.double_buffer and name in ("a", "b") and given.bytes is None

    def _room(self, name: str) -> int | None:
        tile = self.hardware.near_tile
        if tile is None:
            return None
        copies = 2 if tile.double_buffer else 1
        rooms = {"a": copies * tile.buf_a, "b": copies * tile.buf_b, "acc": tile.acc_max or None, "out": tile.out_bytes}
        return rooms.get(name)

    def _level(self, name: str) -> Level | None:
        owner, dot, _ = name.rpartition(".")
        return next((level for level in self.hardware.levels if dot and level.name == owner), None)

    def rate(self, memory: str, operand: str) -> float | None:
        """Return the bytes per cycle of a transfer of operand "a", "b" or "out" between `memory` (external or internal)
        and the chip; None without limit. HardwareError if near_tile has no bandwidth for it."""
        given = self.memory(memory).bytes_per_cycle
        tile = self.hardware.near_tile
        if tile is None:
            return given
        if operand == "out":
            return tile.bw_out or given
        rate = {"a": tile.bw_a, "b": tile.bw_b}[operand] or tile.bandwidth.get(memory) or given
        if rate is None:
            raise HardwareError(
                f"{self.hardware.name}: operand {operand.upper()} in memory {memory!r} has no bandwidth; "
                f"expected near_tile.bw_{operand}, near_tile.bandwidth.{memory} or "
                f"memories.{memory}.bytes_per_cycle"
            )
        return rate

    def mac_pj(self, element_bytes: int) -> float:
        """Return the pJ of one multiply-accumulate of elements of that size; without a coefficient, that of the
        widest."""
        known = self.energy.mac_pj
        return known[str(element_bytes) if str(element_bytes) in known else max(known)]

    def byte_pj(self, name: str) -> float:
        """Return the pJ of one byte read from or written to a memory or buffer."""
        level = self._level(name)
        return level.byte_pj if level is not None else self.energy.byte_pj[name]
