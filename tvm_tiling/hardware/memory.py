"""Memories and buffers of an accelerator as seen by transfers, and its storage levels."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import HardwareError
from ..workload import MEMORIES
from . import checks

__all__ = ["BUFFERS", "MEMORIES", "OFF_CHIP", "OPERANDS", "Level", "Memory"]

BUFFERS = ("a", "b", "acc", "out")
OPERANDS = ("a", "b", "out")
OFF_CHIP = ("external", "internal")


@dataclass(frozen=True, kw_only=True)
class Memory:
    """A memory ("external", "internal") or an on-chip buffer ("a", "b", "acc", "out").

    `bytes` is its capacity, `bytes_per_cycle` the rate of one transfer, `latency` the cycles from the end of a transfer
    to its result, `ports` (banks of a buffer) how many instructions it serves at once. None: without limit, or as the
    table of the engine states.

    A transfer with a memory of `row_bytes` moves whole rows of that many bytes: each run of its innermost loop is
    rounded up. If the memory has pages of `page_bytes`, each one that a transfer enters costs `page_cycles` more, as
    for address translation.
    """

    bytes: int | None = None
    bytes_per_cycle: float | None = None
    latency: int = 0
    ports: int | None = None
    row_bytes: int = checks.added(1)
    page_bytes: int | None = checks.added(None)
    page_cycles: float = checks.added(0.0)

    def __post_init__(self) -> None:
        for name in ("bytes", "ports", "page_bytes"):
            if getattr(self, name) is not None:
                checks.whole("memory", name, getattr(self, name))
        checks.whole("memory", "latency", self.latency, least=0)
        checks.whole("memory", "row_bytes", self.row_bytes)
        checks.put(self, "page_cycles", checks.at_least_zero("memory", "page_cycles", self.page_cycles))
        if self.bytes_per_cycle is not None:
            rate = checks.number("memory", "bytes_per_cycle", self.bytes_per_cycle)
            checks.put(self, "bytes_per_cycle", rate)


@dataclass(frozen=True, kw_only=True)
class Level:
    """One level of a storage hierarchy, such as a cluster, a unit or a multiplier array.

    Each instance of the level above contains `instances` of it. It holds `bytes_a`, `bytes_b` and `bytes_out` of the
    left operand, the right one and the result, or `bytes` shared by all three. Each instance gets `bytes_per_cycle`
    from the level above (None: without limit) after `latency` cycles. Blocks are padded to multiples of `unit_m`,
    `unit_n` and `unit_k`. `byte_pj` is the energy of one byte read or written, in pJ.
    """

    name: str
    bytes: int | None = None
    bytes_a: int | None = None
    bytes_b: int | None = None
    bytes_out: int | None = None
    instances: int = 1
    bytes_per_cycle: float | None = None
    latency: int = 0
    unit_m: int = 1
    unit_n: int = 1
    unit_k: int = 1
    byte_pj: float = 2.5

    def __post_init__(self) -> None:
        if not checks.text("level", "name", self.name).isidentifier():
            raise HardwareError(f"level: name = {self.name!r}; expected a word of letters, digits and underscores")
        unit = f"level {self.name!r}"
        own = [f"bytes_{operand}" for operand in OPERANDS]
        given = [name for name in own if getattr(self, name) is not None]
        if given != ([] if self.bytes is not None else own):
            raise HardwareError(f"{unit}: invalid capacities; expected either bytes, or all of {', '.join(own)}")
        for name in ("bytes", *own):
            if getattr(self, name) is not None:
                checks.whole(unit, name, getattr(self, name))
        for name in ("instances", "unit_m", "unit_n", "unit_k"):
            checks.whole(unit, name, getattr(self, name))
        checks.whole(unit, "latency", self.latency, least=0)
        if self.bytes_per_cycle is not None:
            checks.put(self, "bytes_per_cycle", checks.number(unit, "bytes_per_cycle", self.bytes_per_cycle))
        checks.put(self, "byte_pj", checks.at_least_zero(unit, "byte_pj", self.byte_pj))

    @property
    def all_bytes(self) -> int:
        """Bytes of one instance, for all operands together."""
        return self.bytes or sum(self.capacity(operand) for operand in OPERANDS)

    def capacity(self, operand: str) -> int:
        """Return the bytes for an operand, "a", "b" or "out"; the total of all three if they share it."""
        own: int | None = getattr(self, f"bytes_{operand}")
        assert self.bytes is not None or own is not None
        return self.bytes if own is None else own  # type: ignore[return-value]
