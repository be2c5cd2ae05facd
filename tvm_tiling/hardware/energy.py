"""Energy coefficients of operations and bytes."""

from __future__ import annotations

from dataclasses import dataclass, field

from . import checks

# For a 45 nm process at 0.9 V, from M. Horowitz (Computing's energy problem, ISSCC 2014): an 8-bit multiplication with
# a 32-bit addition, float16 with a float32 addition, float32; DRAM; 1 MiB of SRAM for the on-chip memory, 32 KiB for
# the buffers.
MAC_PJ = {"1": 0.3, "2": 2.0, "4": 4.6}
BYTE_PJ = {"external": 162.5, "internal": 12.5, "a": 2.5, "b": 2.5, "acc": 2.5, "out": 2.5}


@dataclass(frozen=True, kw_only=True)
class Energy:
    """Energy coefficients in pJ: `mac_pj` of one multiply-accumulate by the bytes of its operands ("1", "2", "4"),
    `byte_pj` of one byte read from or written to a memory or buffer by its name, and `vector_pj` of one element of the
    vector engine. Defaults are those of a published 45 nm process.
    """

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
