"""The decision for an operator in its context: from a given configuration, from a source of known configurations, or
from the formulas."""

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
    """Return the given decision, else that of a given or known configuration, else that of the formulas. `epilogue`
    names the fused element-wise operators."""
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
    """Return the decision of a given or known configuration, or None if there is none or it does not apply to this
    operator.

    `epilogue` names the fused element-wise operators. A given configuration that does not apply raises the error of
    tiling_of; a known one only causes a warning.
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
    ) as error:  # the configuration does not apply to this machine, operator or version; other exceptions are bugs
        if options.config is not None:
            raise
        warnings.warn(f"a known configuration does not apply and is ignored: {error}", RuntimeWarning, stacklevel=2)
        return None
