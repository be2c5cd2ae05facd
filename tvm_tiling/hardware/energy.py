"""What operations and bytes cost in energy (page 06)."""

from __future__ import annotations

from dataclasses import dataclass, field

from . import checks

# Of a 45 nm process at 0.9 V, as M. Horowitz gives them (Computing's energy problem, ISSCC 2014): a product of 8 bits
# and a sum of 32, of half floats with a float sum, of floats; DRAM; SRAM of 1 MiB for the memory on the chip, of 32 KiB
# for the buffers.
MAC_PJ = {"1": 0.3, "2": 2.0, "4": 4.6}
BYTE_PJ = {"external": 162.5, "internal": 12.5, "a": 2.5, "b": 2.5, "acc": 2.5, "out": 2.5}


@dataclass(frozen=True, kw_only=True)
class Energy:
    """pJ of one multiply-accumulate by the bytes of its operands ("1", "2", "4"), of one byte read or written by the
    memory or buffer, and of one element of the vector engine. What is not given is as a published 45 nm process."""

    mac_pj: dict[str, float] = field(default_factory=dict, hash=False)
    byte_pj: dict[str, float] = field(default_factory=dict, hash=False)
    vector_pj: float = 0.9

    def __post_init__(self) -> None:
        for name, known in (("mac_pj", MAC_PJ), ("byte_pj", BYTE_PJ)):
            given = checks.table("energy", name, getattr(self, name))
            for key in given:
                checks.one_of(f"energy.{name}", "key", key, known)
            values = {key: checks.at_least_zero(f"energy.{name}", key, given.get(key, known[key])) for key in known}
            checks.put(self, name, values)
        checks.put(self, "vector_pj", checks.at_least_zero("energy", "vector_pj", self.vector_pj))
