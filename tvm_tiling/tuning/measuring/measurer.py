"""What measures cuts: the machine itself, a simulator, or machines behind a tracker, all asked in the same way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from ...decide.cuts.cut import Cut
from ...hardware.description import Hardware
from ...workload import ConvWorkload, GemmWorkload


@dataclass(frozen=True, kw_only=True)
class Job:
    """One cut to be measured for one workload on `hardware`. `ahead`: weights are packed before the time that counts,
    as those of a model are; `epilogue` names what is fused behind."""

    workload: GemmWorkload | ConvWorkload
    cut: Cut
    hardware: Hardware
    ahead: bool = False
    epilogue: str = ""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What became of a job.

    `cost` is in seconds, on a simulated accelerator in cycles; None where the job failed, and `reason` says why.
    `spread` is the half-width of the cost's 95 percent interval, relative to it. `energy_pj` is a simulator's.
    """

    job: Job
    cost: float | None = None
    spread: float = 0.0
    reason: str | None = None
    seconds_spent: float = 0.0
    energy_pj: float | None = None


class Measurer(Protocol):
    """Measures jobs, each on its own: whatever becomes of one, the others are measured."""

    def measure(self, jobs: Sequence[Job]) -> Iterator[Measured]:
        """One Measured for each of `jobs`, as they are ready, in any order."""
        ...

    def close(self) -> None:
        """End what was started for measuring."""
        ...
