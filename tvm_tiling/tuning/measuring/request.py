"""What passes between a measuring process and whoever asks it."""

from __future__ import annotations

from dataclasses import dataclass

from ...workload import ConvWorkload, GemmWorkload

# Functions of a library: the operator, and what packs its weights.
ENTRY = "main"
PACKING = "main_pack"


@dataclass(frozen=True)
class Build:
    """A library of one cut: "main", and where weights are packed ahead "main_pack", which makes the packed ones."""

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
