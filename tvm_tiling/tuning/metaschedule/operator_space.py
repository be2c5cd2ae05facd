"""The cuts that an operator, given as TIR, may have on a machine."""

from __future__ import annotations

from tvm import tirx

from ...decide.conv.cpu import as_product
from ...decide.cuts.neighbourhood import Space, neighbourhood
from ...decide.options import Options
from ...decide.surroundings import Surroundings
from ...errors import UnsupportedOperator
from ...hardware.description import Hardware
from ...match import ConvProgram, GemmProgram, match
from ...schedules.cpu import around_conv, around_product


def space_of(func: tirx.PrimFunc, hardware: Hardware, name: str = "main", *, ahead: bool = False) -> Space:
    """The neighbourhood of the decision for `func`; `ahead`: its weights arrive packed.

    UnsupportedOperator for what no rule serves, HardwareError where the machine has no unit for it.
    """
    program = match(func, name, may_swap=False, keep_taps=True)
    around = _around(program, name, ahead) if hardware.cpu is not None else None
    return neighbourhood(program.workload, hardware, around=around)


def _around(program: GemmProgram | ConvProgram, name: str, ahead: bool) -> Surroundings:
    if isinstance(program, GemmProgram):
        return around_product(program, ahead)
    return around_conv(program, _is_matrix(program, name), Options(ahead=ahead))


def _is_matrix(program: ConvProgram, name: str) -> bool:
    """Whether the convolution's operands can be read as those of a matrix product."""
    if as_product(program.workload) is None:
        return False
    try:
        return isinstance(match(program.func, name, may_swap=False), GemmProgram)
    except UnsupportedOperator:
        return False
