"""What measures cuts: the machine itself, a simulator, or machines behind a tracker, all asked in the same way; and
what passes between a measuring process and whoever asks it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from ...decide.configs.config import Config
from ...hardware.description import Hardware
from ...sizes import Range
from ...workload import ConvWorkload, GemmWorkload
from .paired_benchmark import PairedResult


@dataclass(frozen=True, kw_only=True)
class Job:
    """One configuration to be measured for one workload on `hardware`. `prepacked`: weights are packed before the time
    that counts, as those of a model are; `epilogue` names what is fused behind. With `rows` it is of a product of any
    number of rows within them, and the workload has their sample."""

    workload: GemmWorkload | ConvWorkload
    config: Config
    hardware: Hardware
    prepacked: bool = False
    epilogue: str = ""
    rows: Range | None = None


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What became of a job.

    `cost` is in seconds, on a simulated accelerator in cycles; None where the job failed, and `reason` says why.
    `spread` is the half-width of the cost's 95 percent interval, relative to it. `energy_pj` is a simulator's.
    `disturbed` is the share of the samples in which other work kept threads off their cores.
    """

    job: Job
    cost: float | None = None
    spread: float = 0.0
    reason: str | None = None
    seconds_spent: float = 0.0
    energy_pj: float | None = None
    disturbed: float = 0.0


@dataclass(frozen=True, kw_only=True)
class SideBySide:
    """Two configurations of one workload timed in turns in one session: seconds of either, `before` of the first one.
    Their quotient is the median of the pairs' ratios, whose 95 percent interval is `spread` wide to either side,
    relatively; `disturbed` as a Measured's."""

    before: float
    after: float
    spread: float
    disturbed: float


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


@dataclass(frozen=True, kw_only=True)
class PeakAsked:
    """A question for the measured peak of `hardware`, the machine that the process runs on."""

    hardware: Hardware


class Measurer(Protocol):
    """Measures jobs, each on its own: whatever becomes of one, the others are measured."""

    def measure(self, jobs: Sequence[Job]) -> Iterator[Measured]:
        """One Measured for each of `jobs`, as they are ready, in any order."""
        ...

    def close(self) -> None:
        """End what was started for measuring."""
        ...


@runtime_checkable
class Compares(Protocol):
    """A Measurer that also times two configurations in turns."""

    def compare(self, first: Job, second: Job) -> SideBySide | str:
        """Both in one session, or why that is not possible."""
        ...


@runtime_checkable
class ComparesRows(Protocol):
    """A Measurer that also times products of open rows, in turns, for one number of rows after the other."""

    def over_rows(
        self, candidates: Sequence[Job], incumbent: Job, sizes: Sequence[int], thorough: bool = False
    ) -> Iterator[tuple[Job, tuple[PairedResult, ...] | str]]:
        """Each of the candidates beside the incumbent, a result for each of the sizes; or why that is not possible."""
        ...
