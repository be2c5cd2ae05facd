"""The decision of an operator where it stands: a configuration's that is given, or known to a source that is asked, or
made."""

from __future__ import annotations

import warnings

from ..errors import TilingError
from ..hardware.description import Hardware
from ..workload import ConvWorkload, GemmWorkload
from .configs.config import Tiling, tiling_of
from .kinds import decided, kind_of
from .options import Options
from .recorded import written_again
from .surroundings import Surroundings
from .tiling import Decision


def tiling_for(
    workload: GemmWorkload | ConvWorkload,
    hardware: Hardware,
    options: Options,
    around: Surroundings,
    epilogue: str = "",
) -> Decision:
    """The decision that is given, or that of a configuration that is given or known, else of the formulas. `epilogue`
    names what is fused behind."""
    if options.decision is not None:
        return written_again(options.decision, workload, hardware, options, around)
    return known_tiling(workload, hardware, options, around, epilogue) or decided(workload, hardware, options, around)


def known_tiling(
    workload: GemmWorkload | ConvWorkload,
    hardware: Hardware,
    options: Options,
    around: Surroundings,
    epilogue: str = "",
) -> Tiling | None:
    """The decision of a configuration that is given or known; None where there is none, or one that this operator
    cannot have. `epilogue` names what is fused behind.

    What is given and cannot be is an error, as tiling_of has it; of what is known, a warning says so.
    """
    known = options.known_config(workload, hardware, epilogue)
    if known is None:
        return None
    config, why = known
    try:
        tiling = tiling_of(config, workload, hardware, around, why=why)
        return kind_of(workload, hardware).complete(tiling, workload, hardware, around)
    except (
        TilingError
    ) as error:  # this machine, operator or version does not admit the configuration; others are no such thing
        if options.config is not None:
            raise
        warnings.warn(f"a known configuration does not apply, formulas decide: {error}", RuntimeWarning, stacklevel=2)
        return None
