"""Decisions that are not made: those of a cut that is given, or known to a source that is asked."""

from __future__ import annotations

from ..errors import TilingError
from ..hardware.description import Hardware
from ..workload import ConvWorkload, GemmWorkload
from .cuts.cut import Surroundings, Tiling, tiling_of
from .options import Options


def known_tiling(
    workload: GemmWorkload | ConvWorkload,
    hardware: Hardware,
    options: Options,
    around: Surroundings,
    epilogue: str = "",
) -> Tiling | None:
    """The decision of a cut that is given or known; None where there is none, or one that this operator cannot have.
    `epilogue` names what is fused behind.

    What is given and cannot be is an error, as tiling_of has it.
    """
    known = options.known_cut(workload, hardware, epilogue)
    if known is None:
        return None
    cut, why = known
    try:
        return tiling_of(cut, workload, hardware, around, why=why)
    except TilingError:
        if options.cut is not None:
            raise
        return None
