"""The program of a workload, from its reference implementation: what databases and simulations measure, and maps show.
It is a file of its own because processes that build kernels for a CPU need the reference implementation alone."""

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
    """The program of `tiling_schedule` for a product or a convolution, cut as `config` says where one is given, else as
    is best in `prefer`.
    UnsupportedOperator as plain_operator; HardwareError where the machine cannot do it."""
    return record(_scheduled(workload, hardware, config, epilogue, prefer), hardware)


def workload_blocks(
    workload: GemmWorkload | ConvWorkload, hardware: Hardware, *, prefer: Prefer = "utilisation"
) -> RecordedBlocks:
    """The same program block by block, for its map. Errors as workload_program()."""
    return blocks_of(_scheduled(workload, hardware, None, "", prefer), hardware)


def _scheduled(
    workload: GemmWorkload | ConvWorkload, hardware: Hardware, config: Config | None, epilogue: str, prefer: Prefer
) -> tvm.IRModule:
    return tiling_schedule(plain_operator(workload, epilogue), target=hardware, config=config, prefer=prefer).mod
