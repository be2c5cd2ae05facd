"""Build of a configuration into a loadable file, as run by a building process."""

from __future__ import annotations

import functools
from pathlib import Path

import tvm
from tvm.support import cc

from ...accel.plain_operator import ROWS, plain_operator
from ...errors import HardwareError
from ...hardware.description import Hardware
from ...lowering.samples import samples
from ...schedule import Options, llvm_target, schedule_operator
from .measurer import ENTRY, PACKING, Build, Job


def build(job: Job, folder: Path) -> Build:
    """Write the library of `job` to its own `folder`: a shared object or, without a C compiler, LLVM IR that is
    compiled on loading. Raises the errors of tiling_schedule."""
    if job.hardware.cpu is None:
        raise HardwareError(f"{job.hardware.name} is not a CPU; its configurations are simulated")
    options = Options(prepacked=job.prepacked, config=job.config, weights_within=job.workload.b_limit)
    operator = plain_operator(job.workload, job.epilogue, open_rows=job.rows is not None)
    with samples({} if job.rows is None else {ROWS: getattr(job.workload, ROWS)}):
        scheduled = schedule_operator(operator, ENTRY, job.hardware, options)
    functions = {ENTRY: scheduled.main}
    if scheduled.pack is not None:
        functions[PACKING] = scheduled.pack
    with tvm.transform.PassContext(opt_level=3):
        library = tvm.tirx.build(tvm.IRModule(functions), target=_target(job.hardware))
    return Build(_written(library, folder), scheduled.packed_shape, scheduled.packed_dtype)


def _written(library: tvm.runtime.Module, folder: Path) -> str:
    compiler = cc.get_cc()
    if compiler is None:
        path = str(folder / "cut.ll")
        library.write_to_file(path)
        return path
    library.write_to_file(str(folder / "cut.o"))
    path = str(folder / "cut.so")
    cc.create_shared(path, [str(folder / "cut.o")], cc=compiler)
    return path


@functools.lru_cache(maxsize=4)
def _target(hardware: Hardware) -> tvm.target.Target:
    return llvm_target(hardware)


def answer(message: tuple[Job, str]) -> Build:
    """Build a job into a folder; entry point of a child process."""
    job, folder = message
    return build(job, Path(folder))
