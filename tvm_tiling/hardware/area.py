"""Area coefficients of multipliers and buffers."""

from __future__ import annotations

from dataclasses import dataclass, field

from . import checks

# For a 45 nm process, in square micrometres. Arithmetic from the table that also gives the energies (M. Horowitz,
# Computing's energy problem, ISSCC 2014): an 8-bit multiplication (282) and a 32-bit addition (137); a float16
# multiplication (1640) with a float32 addition (4184); a float32 multiplication (7700) with an addition. SRAM: six
# transistors in 0.346 per bit (K. Mistry et al., IEDM 2007), doubled for decoders, amplifiers and wires.
MAC_UM2 = {"1": 419.0, "2": 5824.0, "4": 11884.0}
BYTE_UM2 = 5.5
LANE_UM2 = 11884.0


@dataclass(frozen=True, kw_only=True)
class Area:
    """Area coefficients in square micrometres: of one multiply-accumulate unit by the bytes of its operands ("1", "2",
    "4"), of one byte of a buffer, and of one lane of the vector engine. Defaults are those of a published 45 nm
    process.
    """

    mac_um2: dict[str, float] = field(default_factory=dict, hash=False)
    byte_um2: float = BYTE_UM2
    lane_um2: float = LANE_UM2

    def __post_init__(self) -> None:
        given = checks.table("area", "mac_um2", self.mac_um2)
        for key in given:
            checks.one_of("area.mac_um2", "key", key, MAC_UM2)
        values = {key: checks.at_least_zero("area.mac_um2", key, given.get(key, MAC_UM2[key])) for key in MAC_UM2}
        checks.put(self, "mac_um2", values)
        for name in ("byte_um2", "lane_um2"):
            checks.put(self, name, checks.at_least_zero("area", name, getattr(self, name)))
