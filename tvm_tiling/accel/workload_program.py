"""The program of a workload, from its reference implementation, as measured by databases and simulations and shown in
maps.

This is a separate module because processes that build CPU kernels need only the reference implementation.
"""

from __future__ import annotations

import tvm

from ..decide.configs.record import Config
from ..decide.gemm.best import Prefer
from ..hardware.description import Hardware
from ..schedule import tiling_schedule
from ..workload import ConvWorkload, GemmWorkload
from .plain_operator import plain_operator
from .program.program import Program
from .record.function import RecordedBlocks, blocks_of, record


def workload_program(
    workload: GemmWorkload | ConvWorkload,
    hardware: Hardware,
    *,
    config: Config | None = None,
    epilogue: str = "",
    prefer: Prefer = "utilisation",
) -> Program:
    """Return the program of `tiling_schedule` for a matrix multiplication or convolution, tiled as `config` says or,
    without one, for the best `prefer`.

    UnsupportedOperator as in plain_operator; HardwareError if the machine does not support the workload.
    """
    return record(_scheduled(workload, hardware, config, epilogue, prefer), hardware)


def workload_blocks(
    workload: GemmWorkload | ConvWorkload, hardware: Hardware, *, prefer: Prefer = "utilisation"
) -> RecordedBlocks:
    """Return the same program block by block, for its map. Raises the errors of workload_program()."""
    return blocks_of(_scheduled(workload, hardware, None, "", prefer), hardware)


def _scheduled(
    workload: GemmWorkload | ConvWorkload, hardware: Hardware, config: Config | None, epilogue: str, prefer: Prefer
) -> tvm.IRModule:
    return tiling_schedule(plain_operator(workload, epilogue), target=hardware, config=config, prefer=prefer).mod
