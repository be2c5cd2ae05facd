"""The configuration space of an operator, given as TIR, on a machine."""

from __future__ import annotations

from tvm import tirx

from ...decide.configs.neighbourhood import Space, neighbourhood
from ...decide.conv.cpu_conv import as_product
from ...decide.options import Options
from ...decide.surroundings import Surroundings
from ...errors import TilingError, attempted
from ...hardware.description import Hardware
from ...match import ConvProgram, GemmProgram, match
from ...schedules.cpu_schedule import around_conv, around_product


def space_of(func: tirx.PrimFunc, hardware: Hardware, name: str = "main") -> Space:
    """Return the neighbourhood of the decision for `func`.

    UnsupportedOperator if no rule supports it, HardwareError if the machine has no unit for it.
    """
    program = match(func, name, may_swap=False, keep_taps=True)
    around = _around(program, name) if hardware.cpu is not None else None
    return neighbourhood(program.workload, hardware, around=around)


def space_if_supported(func: tirx.PrimFunc, hardware: Hardware, name: str = "main") -> Space | None:
    """Like space_of(); None if no rule or unit of the machine supports `func`."""
    try:
        return space_of(func, hardware, name)
    except TilingError:
        return None


def _around(program: GemmProgram | ConvProgram, name: str) -> Surroundings:
    if isinstance(program, GemmProgram):
        return around_product(program, prepacked=False)
    matrix = as_product(program.workload) is not None and isinstance(
        attempted(match, program.func, name, may_swap=False), GemmProgram
    )
    return around_conv(program, matrix, Options())
