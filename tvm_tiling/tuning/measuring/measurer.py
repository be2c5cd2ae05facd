"""What measures cuts: the machine itself, a simulator, or machines behind a tracker, all asked in the same way; and
what passes between a measuring process and whoever asks it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from ...decide.configs.config import Config
from ...hardware.description import Hardware
from ...workload import ConvWorkload, GemmWorkload


@dataclass(frozen=True, kw_only=True)
class Job:
    """One configuration to be measured for one workload on `hardware`. `prepacked`: weights are packed before the time
    that counts, as those of a model are; `epilogue` names what is fused behind."""

    workload: GemmWorkload | ConvWorkload
    config: Config
    hardware: Hardware
    prepacked: bool = False
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


# Functions of a library: the operator, and what packs its weights.
ENTRY = "main"
PACKING = "main_pack"


@dataclass(frozen=True)
class Build:
    """A library of one configuration: "main", and where weights are prepacked "main_pack", which makes the packed
    ones."""

    path: str
    packed_shape: tuple[int, ...] | None = None
    packed_dtype: str | None = None


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What is to be timed next: kernels for so many `cores` that compute `workload` and behind it what `epilogue`
    names. By itself it asks to have all ready but them."""

    workload: GemmWorkload | ConvWorkload
    cores: int
    epilogue: str = ""


@dataclass(frozen=True, kw_only=True)
class Request(Subject):
    """`candidate` to be timed beside `incumbent`, or alone where that is None; `thorough`: for longer."""

    candidate: Build
    incumbent: Build | None
    thorough: bool = False


class Measurer(Protocol):
    """Measures jobs, each on its own: whatever becomes of one, the others are measured."""

    def measure(self, jobs: Sequence[Job]) -> Iterator[Measured]:
        """One Measured for each of `jobs`, as they are ready, in any order."""
        ...

    def close(self) -> None:
        """End what was started for measuring."""
        ...
