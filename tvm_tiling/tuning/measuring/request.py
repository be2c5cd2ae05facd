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
class Request:
    """`candidate` to be timed beside `incumbent`, or alone where that is None; `thorough`: for longer. `cores`: how
    many the kernels were made for. Both compute `workload` and behind it what `epilogue` names."""

    workload: GemmWorkload | ConvWorkload
    candidate: Build
    incumbent: Build | None
    cores: int
    thorough: bool = False
    epilogue: str = ""
