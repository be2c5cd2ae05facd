"""The energy of a program by component (design page 06).

Counted are multiply-accumulates, elements of the vector engine, and every byte that an instruction reads from or writes
to a memory or a buffer, according to its row of the table. Leakage and the front end are not modelled.
"""

from __future__ import annotations

from ...hardware.machine import Machine
from ..program.isa import OPERANDS
from ..program.work import Work


def energy_by_level(work: Work, machine: Machine) -> dict[str, float]:
    """Return pJ by name: "mac", "vector", and each memory and buffer that is touched."""
    spent: dict[str, float] = {}
    if sums := work.of("sums"):
        spent["mac"] = sum(
            float(batch.macs[same].sum()) * machine.mac_pj(element)
            for batch in sums
            for element, same in batch.each(batch.element)
        )
    if vectors := work.of("elements"):
        elements = sum(int(batch.elements.sum()) for batch in vectors)
        spent["vector"] = elements * machine.energy.vector_pj
    for name, count in bytes_touched(work, machine).items():
        spent[name] = count * machine.byte_pj(name)
    return spent


def bytes_touched(work: Work, machine: Machine) -> dict[str, int]:
    """Return the bytes read and written in each memory and buffer that is touched, by name, in table order."""
    total = dict(work.bytes)
    for batch in work.batches:
        if batch.row.traffic is None:
            continue
        for operand, count in zip(OPERANDS, batch.row.traffic(batch, machine), strict=True):
            memory = batch.column(f"{operand}_memory")
            for number, name in enumerate(total):
                total[name] += int(count[memory == number].sum())
    return {name: count for name, count in total.items() if count}
