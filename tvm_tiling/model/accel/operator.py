"""Compilation of a single operator for a simulated accelerator."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import s_tir, te, tirx
from tvm.te.tensor import Operation

from ...accel.plain_operator import plain_operator
from ...accel.program.program import Program
from ...accel.record.function import record
from ...errors import HardwareError
from ...hardware.description import Hardware
from ...lowering.accel.pieces import in_pieces
from ...schedule import ConfigSource, tiling_schedule
from ...workload import ConvWorkload, GemmWorkload, RnnWorkload
from .rnn import RecurrentExecutable, compile_recurrent
from .simulated import SimulatedExecutable

WORKLOADS = (GemmWorkload, ConvWorkload, RnnWorkload)
MOST_HALVINGS = 8  # halvings of the vector engine's tile


def is_operator(model: Any) -> bool:
    """Return whether `model` is an operator: a te.Tensor or its operation, a PrimFunc, a schedule or a module of
    PrimFuncs."""
    if isinstance(model, tvm.IRModule):
        functions = list(model.functions.values())
        return bool(functions) and all(isinstance(function, tirx.PrimFunc) for function in functions)
    return isinstance(model, (te.Tensor, Operation, tirx.PrimFunc, s_tir.Schedule))


def compile_operator(
    op: Any, hardware: Hardware, configs: ConfigSource | None = None
) -> SimulatedExecutable | RecurrentExecutable:
    """The program of an operator, or of a workload, for `hardware`: a SimulatedExecutable, or a RecurrentExecutable for
    recurrent layers. A schedule, or a modified result of tiling_schedule, is recorded as it is; anything else is
    scheduled first, with its configuration from `configs`. Errors as in tiling_schedule and record."""
    if isinstance(op, RnnWorkload):
        return compile_recurrent(op, hardware)
    if isinstance(op, GemmWorkload | ConvWorkload):
        op = plain_operator(op)
    module = op.mod if isinstance(op, s_tir.Schedule) else op
    if _is_scheduled(module):
        return SimulatedExecutable(record(module, hardware))
    scheduled = tiling_schedule(module, target=hardware, configs=configs).mod
    if len(scheduled.functions) != 1:
        return SimulatedExecutable(record(scheduled, hardware))  # which rejects it
    ((variable, main),) = scheduled.functions.items()
    return SimulatedExecutable(program_of(main, variable.name_hint, hardware))


def program_of(main: tirx.PrimFunc, name: str, hardware: Hardware) -> Program:
    """The program of a scheduled function, with the epilogue split into as many tiles as the machine's memories
    require. Raises HardwareError if no number of tiles fits."""
    main = main.with_attr("global_symbol", name)
    scheduled: tirx.PrimFunc | None = main
    refused: HardwareError | None = None
    for pieces in (1, *(1 << power for power in range(1, MOST_HALVINGS + 1))):
        if pieces > 1:
            scheduled = in_pieces(main, name, pieces)
        if scheduled is None:
            break
        try:
            return record(scheduled, hardware)
        except HardwareError as error:
            refused = refused or error
    assert refused is not None
    raise refused


def _is_scheduled(op: Any) -> bool:
    """Return whether blocks are already assigned to engines."""
    functions = op.functions.values() if isinstance(op, tvm.IRModule) else [op]
    return all(isinstance(function, tirx.PrimFunc) and '"vsim.engine"' in function.script() for function in functions)
