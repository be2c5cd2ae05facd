"""What the instructions of a program cost on a machine, in cycles, from the machine's description alone (page 06).

    LOAD, STORE   keep their queue for ceil(bytes / rate), the slower of the two memories giving the rate; the result is
                  there the latency of both later. Bytes of the border are not moved. A FILL moves its result, on the
                  queue of the vector engine it costs as an ALU. Between two storage levels the inner one's rate counts,
                  which is that of its link to the outer one; what several instances get in one transfer is read once
    GEMM          fill + blocks, the result drain later (page 01). Where blocks that are not full are skipped, blocks =
                  ceil(m*n*k / MAC per cycle), else ceil(m/block_m) * ceil(n/block_n) * ceil(k/block_k), each as many
                  cycles as a full one. All instances of the innermost level work on it together
    WCONV         the slowest of the multipliers and the ports (page 05), immediate = (PCI, PCO) in bytes: how channels
                  are cut; PCI 0 takes the one of fewest cycles, PCO 0 leaves the results where they are. `block` output
                  channels of a sub-unit share a pass over the input, 0: all. Results that leave have the size that
                  w_fold.output_element_bytes says
    COLMV         ceil(k/EP) * ceil(m/VP) for each column of the result, there the latency of EP later (page 04)
    ALU           ceil(elements / lanes), the result its latency later; in the tail of page 04's engine no cycles of
                  its own: the latency of COLMV has them
    NOP           nothing

Every memory that has a number of ports is asked for one by each instruction that touches it. A level of the storage
hierarchy is taken as the sum of its instances: as much room and as many bytes per cycle as all of them have.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...decide.fold.walk import Layer, Walk
from ...errors import HardwareError
from ...hardware.column import Column
from ...hardware.machine import Machine
from ...hardware.memory import OPERANDS as OPERANDS_OF_LEVEL
from ...hardware.near_tile import NearTile
from ...hardware.vector import FUNCTIONS, Vector
from ...hardware.w_fold import WFold
from ..program.instruction_name import instruction_name
from ..program.isa import ElementType, Opcode
from ..program.work import Lane, Products, Work
from .timing import Costs

WITHOUT_LIMIT = 1 << 62


def costs(work: Work, machine: Machine) -> Costs:
    """Cycles and ports of every instruction. HardwareError where the machine has no such engine, memory or function, or
    not the room that the program takes."""
    count = len(work.program)
    busy = np.zeros(count, dtype=np.int64)
    latency = np.zeros(count, dtype=np.int64)
    check_room(work, machine)
    _transfer_costs(work, machine, busy, latency)
    for kind, products in work.products.items():
        _PRODUCT_COSTS[kind](work, products, machine, busy, latency)
    _vector_costs(work, machine, busy, latency)
    ports, servers, port = _ports(work, machine)
    issue = machine.issue
    return Costs(
        busy=busy,
        latency=latency,
        port=port,
        ports=ports,
        servers=servers,
        depth=WITHOUT_LIMIT if issue.depth is None else issue.depth,
        issue=issue.issue_cycles,
        token=issue.token_cycles,
    )


def capacity(machine: Machine, name: str) -> int | None:
    """Bytes of a memory, of all instances of its level together; None without limit."""
    room = machine.capacity(name)
    return None if room is None else room * instances(machine, name)


def instances(machine: Machine, name: str) -> int:
    """How many instances the level of a memory has in all; 1 for a memory of no level."""
    total, level = 1, name.rpartition(".")[0]
    for one in machine.hardware.levels if level else ():
        total *= one.instances
        if one.name == level:
            break
    return total


def check_room(work: Work, machine: Machine) -> None:
    """HardwareError, naming memory and bytes, where a program takes more than the machine has."""
    for name, reach in work.peak.items():
        room = capacity(machine, name)
        if room is not None and reach > room:
            raise HardwareError(
                f"{machine.hardware.name}: the program takes {reach} bytes of memory {name!r}, which has {room}; "
                "accepted: a machine with as many, or a program made for this one"
            )
    for level in machine.hardware.levels:
        names = [f"{level.name}.{operand}" for operand in OPERANDS_OF_LEVEL]
        reach = sum(work.peak.get(name, 0) for name in names)
        if level.bytes is not None and reach > level.bytes * instances(machine, names[0]):
            raise HardwareError(
                f"{machine.hardware.name}: the program takes {reach} bytes of level {level.name!r}, whose operands "
                f"share {level.bytes * instances(machine, names[0])}; accepted: a machine with as many, or a program "
                "made for this one"
            )


def ceil_quotient(amount: np.ndarray, rate: float) -> np.ndarray:
    """ceil(amount / rate) as int64, a quotient that only rounding puts above a whole number not rounded up."""
    cycles: np.ndarray = np.ceil(amount / rate * (1 - 1e-14)).astype(np.int64)
    return cycles


def _transfer_costs(work: Work, machine: Machine, busy: np.ndarray, latency: np.ndarray) -> None:
    for lane in work.lanes:
        inner = _inner(machine, lane)
        for name, moved in ((lane.source, lane.read), (lane.target, lane.bytes)):
            rate = _rate(machine, name, lane.operand) if name and inner in (name, "") else None
            if rate is not None:
                busy[lane.number] = np.maximum(busy[lane.number], ceil_quotient(moved, rate))
        latency[lane.number] = sum(
            machine.memory(name).latency for name in (lane.source, lane.target) if name and inner in (name, "")
        )


def _inner(machine: Machine, lane: Lane) -> str:
    """The memory of the inner one of two storage levels that a transfer is between; "" where it is between others."""
    names = [level.name for level in machine.hardware.levels]
    places = [(end.rpartition(".")[0], end) for end in (lane.source, lane.target)]
    if not all(level in names for level, _ in places):
        return ""
    return max(places, key=lambda place: names.index(place[0]))[1]


def _rate(machine: Machine, name: str, operand: str) -> float | None:
    """Bytes per cycle of a transfer of an operand at one of its ends, None without limit."""
    if name in ("external", "internal"):
        return machine.rate(name, operand)
    rate = machine.memory(name).bytes_per_cycle
    return None if rate is None else rate * instances(machine, name)


def _vector_costs(work: Work, machine: Machine, busy: np.ndarray, latency: np.ndarray) -> None:
    for function, own in work.vectors.items():
        if FUNCTIONS[function] not in machine.vector.functions:
            raise HardwareError(
                f"{machine.hardware.name}: its vector engine has no {FUNCTIONS[function]!r}, which "
                f"{instruction_name(work.program, int(own.number[0]))} takes; accepted: "
                f"{', '.join(machine.vector.functions)}"
            )
        for operand in ("dtype", "result_dtype"):
            refuse_types(work, own.number, operand, machine, machine.vector)
    if machine.vector_is_tail:
        return
    fills = work.fills.get(machine.queue_of("vector"))
    for own in (*work.vectors.values(), *((fills,) if fills else ())):
        busy[own.number] = -(-own.elements // machine.vector.lanes)
        latency[own.number] = machine.vector.latency


def _gemm_costs(work: Work, own: Products, machine: Machine, busy: np.ndarray, latency: np.ndarray) -> None:
    tile: NearTile = _needed(work, own, machine, "near_tile")
    together = math.prod(level.instances for level in machine.hardware.levels)
    if tile.partial_blocks == "padded":
        full = -(-own.m // tile.block_m) * -(-own.n // tile.block_n) * -(-own.k // tile.block_k)
        blocks = -(-full // together)
        for element in np.unique(own.element).tolist():
            blocks[own.element == element] *= tile.block_cycles(element)
    else:
        blocks = np.zeros(len(own.number), dtype=np.int64)
        for element in np.unique(own.element).tolist():
            same = own.element == element
            blocks[same] = ceil_quotient(own.macs[same], tile.macs(element) * together)
    busy[own.number] = tile.fill + blocks
    latency[own.number] = tile.drain


def _column_costs(work: Work, own: Products, machine: Machine, busy: np.ndarray, latency: np.ndarray) -> None:
    column: Column = _needed(work, own, machine, "column")
    columns, lines = (work.program.instructions["immediate"][own.number, place].astype(np.int64) for place in (0, 1))
    wrong = ~np.isin(columns, column.column_counts) | (lines < 1) | (columns * lines > column.multipliers)
    if wrong.any():
        place = int(wrong.argmax())
        raise HardwareError(
            f"{machine.hardware.name}: {instruction_name(work.program, int(own.number[place]))} takes (EP, VP) = "
            f"({columns[place]}, {lines[place]}); accepted: EP of {', '.join(map(str, column.column_counts))} and "
            f"EP * VP of at most {column.multipliers}"
        )
    busy[own.number] = -(-own.k // columns) * -(-own.m // lines) * own.n
    for count in np.unique(columns).tolist():
        latency[own.number[columns == count]] = column.latency(count)


def _fold_costs(work: Work, own: Products, machine: Machine, busy: np.ndarray, latency: np.ndarray) -> None:
    unit: WFold = _needed(work, own, machine, "w_fold")
    distinct, which = fold_walks(work, own, unit)
    for place, (walk, leaves) in enumerate(distinct):
        busy[own.number[which == place]] = _fold_cycles(walk, leaves)


def _fold_cycles(walk: Walk, leaves: bool) -> int:
    """The slowest of the multipliers and the ports; that of results only if they leave."""
    return max(cycles for port, cycles in walk.port_cycles.items() if leaves or port != "write-out")


def fold_walks(work: Work, own: Products, unit: WFold) -> tuple[list[tuple[Walk, bool]], np.ndarray]:
    """The distinct walks of the W-fold instructions, each with whether its results leave; and the one of each."""
    rows = work.program.instructions[own.number]
    keys = np.concatenate(
        [rows["extent"], own.element[:, None], rows["immediate"].astype(np.int64), rows["block"][:, None]], axis=1
    )
    distinct, which = np.unique(keys, axis=0, return_inverse=True)
    return [_walk(unit, *row) for row in distinct.tolist()], which.reshape(-1)


def _walk(
    unit: WFold, co: int, ho: int, wo: int, kh: int, kw: int, ci: int, d_s: int, pci: int, pco: int, block: int
) -> tuple[Walk, bool]:
    d_out = unit.output_element_bytes or d_s
    layer = Layer(
        groups=1, rows=ho, wo=wo, w=wo + kw - 1, ci_bytes=ci * d_s, co=co, taps_high=kh, kw=kw, d_s=d_s, d_out=d_out
    )
    for name, value, element in (("PCI", pci, d_s), ("PCO", pco, d_out)):
        possible = [granularity for granularity in unit.granularities if granularity % element == 0]
        if value and value not in possible:
            raise HardwareError(
                f"w_fold: a WCONV with {name} = {value} bytes; accepted: 0, {', '.join(map(str, possible))}"
            )
    choices = [pci] if pci else [g for g in unit.granularities if g % d_s == 0 and unit.row_bytes // g <= layer.w]
    walks = [Walk(layer, unit, g, pco or unit.row_bytes, block or -(-co // unit.sub_units)) for g in choices]
    return min(walks, key=lambda walk: (_fold_cycles(walk, pco > 0), -walk.pci)), pco > 0


_PRODUCT_COSTS = {Opcode.GEMM: _gemm_costs, Opcode.WCONV: _fold_costs, Opcode.COLMV: _column_costs}


def _needed(work: Work, own: Products, machine: Machine, unit: str) -> Any:
    """The unit of the machine that products run on; HardwareError where it is absent."""
    found = getattr(machine.hardware, unit)
    if found is None:
        raise HardwareError(
            f"{machine.hardware.name} has no {unit}, which {instruction_name(work.program, int(own.number[0]))} runs "
            "on; accepted: a machine that has one, or a program made for this one"
        )
    refuse_types(work, own.number, "dtype", machine, found)
    return found


def refuse_types(
    work: Work, number: np.ndarray, operand: str, machine: Machine, unit: NearTile | WFold | Column | Vector
) -> None:
    """HardwareError, naming the first of the instructions `number`, whose elements (`operand` "dtype" or
    "result_dtype") are of a type that `unit` has not."""
    known = [int(ElementType[name.upper()]) for name in unit.dtypes]
    wrong = ~np.isin(work.program.instructions[operand][number], known) if known else np.zeros(0, dtype=bool)
    if wrong.any():
        first = int(number[wrong.argmax()])
        kind = ElementType(int(work.program.instructions[operand][first])).name.lower()
        raise HardwareError(
            f"{machine.hardware.name}: {instruction_name(work.program, first)} is of {kind}; accepted: "
            f"{', '.join(unit.dtypes)}"
        )


def _ports(work: Work, machine: Machine) -> tuple[tuple[str, ...], tuple[int, ...], np.ndarray]:
    """Memories with a number of ports, that number of each, and the ones that each instruction takes."""
    limited = {
        number: memory.name
        for number, memory in enumerate(work.program.memories)
        if machine.memory(memory.name).ports is not None
    }
    servers = tuple(machine.memory(name).ports or 0 for name in limited.values())
    if not limited:
        return (), (), np.full(work.touched.shape, -1, dtype=np.int64)
    port_of = np.full(len(work.program.memories) + 1, -1, dtype=np.int64)  # the last is that of memory -1
    port_of[list(limited)] = np.arange(len(limited))
    return tuple(limited.values()), servers, -np.sort(-port_of[work.touched], axis=1)
