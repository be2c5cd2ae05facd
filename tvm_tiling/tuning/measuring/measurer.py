"""The interface of measurers (this machine, a simulator, or machines behind a tracker) and the messages exchanged with
a measuring process."""

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
    """One configuration to be measured for one workload on `hardware`. `prepacked`: weights are packed outside the
    measured time, as in a model; `epilogue` names the fused epilogue. With `rows`, the kernel accepts any number of
    rows in that range, and the workload has a sample of it."""

    workload: GemmWorkload | ConvWorkload
    config: Config
    hardware: Hardware
    prepacked: bool = False
    epilogue: str = ""
    rows: Range | None = None


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The outcome of a job.

    `cost` is in seconds, or in cycles on a simulated accelerator; it is None if the job failed, and `reason` says why.
    `spread` is the half-width of the 95 percent interval of the cost, relative to it. `energy_pj` comes from a
    simulator. `disturbed` is the fraction of samples in which other work kept threads off their cores.
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
    """Two configurations of one workload timed alternately in one session, in seconds; `before` is the first one. Their
    quotient is the median of the pairwise ratios, whose 95 percent interval has the relative half-width `spread`;
    `disturbed` is as in Measured."""

    before: float
    after: float
    spread: float
    disturbed: float


# Functions of a library: the operator, and the one that packs its weights.
ENTRY = "main"
PACKING = "main_pack"


@dataclass(frozen=True)
class Build:
    """A library of one configuration: "main", and with prepacked weights "main_pack", which packs them."""

    path: str
    packed_shape: tuple[int, ...] | None = None
    packed_dtype: str | None = None


@dataclass(frozen=True, kw_only=True)
class Subject:
    """The subject of the next measurements: kernels for `cores` cores that compute `workload` followed by `epilogue`.
    Sent by itself, it asks to prepare everything except the kernels."""

    workload: GemmWorkload | ConvWorkload
    cores: int
    epilogue: str = ""


@dataclass(frozen=True, kw_only=True)
class Request(Subject):
    """Time `candidate` together with `incumbent`, or alone if that is None; `thorough`: for longer."""

    candidate: Build
    incumbent: Build | None
    thorough: bool = False


@dataclass(frozen=True, kw_only=True)
class PeakAsked:
    """A request for the measured peak of `hardware`, the machine that the process runs on."""

    hardware: Hardware


class Measurer(Protocol):
    """Measures jobs independently: a failure of one does not affect the others."""

    def measure(self, jobs: Sequence[Job]) -> Iterator[Measured]:
        """Yield one Measured for each of `jobs`, in order of completion."""
        ...

    def close(self) -> None:
        """Release the resources used for measuring."""
        ...


@runtime_checkable
class Compares(Protocol):
    """A Measurer that also times two configurations alternately."""

    def compare(self, first: Job, second: Job) -> SideBySide | str:
        """Return the comparison of both in one session, or the reason for a failure."""
        ...


@runtime_checkable
class ComparesRows(Protocol):
    """A Measurer that also compares kernels with a dynamic number of rows at each of several numbers of rows."""

    def over_rows(
        self, candidates: Sequence[Job], incumbent: Job, sizes: Sequence[int], thorough: bool = False
    ) -> Iterator[tuple[Job, tuple[PairedResult, ...] | str]]:
        """Yield the comparison of each candidate with the incumbent, with a result for each size, or the reason for a
        failure."""
        ...
