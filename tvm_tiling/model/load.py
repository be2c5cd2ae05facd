"""Loading of saved executables. Code for simulated accelerators is imported only if a file contains such a part, so
that a CPU model loads faster."""

from __future__ import annotations

import os
from typing import Any

from ..accel.program.magic import is_program
from ..runtime.threads import thread_count
from . import saved
from .executable import Executable
from .passes.constants import Constants, places_of
from .precision.record import PrecisionRecord
from .report import Memory, OperatorRecord, nodes_of
from .signature import Signature
from .variant_base import VariantParts
from .variants import variant_of

MOST_CORES = 4096


def load(
    path: str | os.PathLike[str],
    *,
    digest: str | None = None,
    copy: bool = False,
    threads: int | None = None,
    foreign: bool = False,
) -> Any:
    """Load the saved executable at `path`. It contains native code, so loading it means trusting its author: a file
    that another user owns or may write to is rejected, unless `digest`, its SHA-256 in hexadecimal, matches. The
    program of an accelerator, which is only data, results in a SimulatedExecutable.

    Weights are mapped pages of the file, shared by the processes that load it; the whole file is read once to verify
    its checksum. The file may be removed, or replaced as `save` does, while it is in use, but not overwritten or
    truncated in place, which ends the process: if that may happen, use `copy`, which reads the weights into memory of
    this process. Files with a `digest` and on network file systems are always read.

    `threads`: number of threads for runs, from 1 to the number of cores the file was compiled for; by default, the
    value of the environment variable TVM_NUM_THREADS, or the number of cores available to this process.

    Needs neither the model nor a compiler. Raises ModelFormatError if the file is invalid, WorkloadError for invalid
    `threads`, HardwareError for instructions of its kernels that this CPU lacks; with `foreign`, such a model can be
    loaded, saved and exported, and is refused when it is run.
    """
    if is_program(path):
        from ..accel.program.program import Program
        from .accel.simulated import SimulatedExecutable

        return SimulatedExecutable(Program.load(path))
    found = saved.read(path, digest, copy, foreign)
    known, block = found.description, found.constants
    try:
        cores = _cores(known["cores"])
    except (ValueError, KeyError) as error:
        raise saved.corrupted(os.fspath(path), error) from None
    count = thread_count(threads, cores)
    try:
        constants = Constants(block, places_of(known["places"], block.nbytes), mapped=found.mapped)
        variants = [
            variant_of(
                VariantParts(
                    library=library,
                    signature=Signature.from_dict(plain["signature"]),
                    operators=[OperatorRecord.from_dict(record) for record in plain["operators"]],
                    memory=Memory(**plain["memory"]),
                    constants=plain["constants"],
                    store=constants,
                    threads=cores if library.lacking else count,
                )
            )
            for library, plain in zip(found.libraries, known["variants"], strict=True)
        ]
        made = {
            "fingerprint": known["fingerprint"],
            "cores": cores,
            "compile_seconds": 0.0,
        }
        if "accelerator" not in known:
            precision = PrecisionRecord.from_dict(known["precision"]) if "precision" in known else None
            deterministic = known.get("deterministic", False) is True
            return Executable(variants, constants, precision=precision, deterministic=deterministic, **made)
        from .accel.executable import AcceleratedExecutable, load_programs

        count, steps = (int(known["accelerator"].get(name, 0)) for name in ("programs", "steps"))
        programs = load_programs(os.fspath(path), found.further, count + steps)
        left = {str(name): str(why) for name, why in known["accelerator"]["left"].items()}
        nodes = {str(name): nodes_of(found) for name, found in known["accelerator"].get("nodes", {}).items()}
        return AcceleratedExecutable(
            variants[0], constants, programs[:count], left, steps=programs[count:], nodes=nodes, **made
        )
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError) as error:
        raise saved.corrupted(os.fspath(path), error) from None


def _cores(value: Any) -> int:
    """The number of cores the kernels were compiled for. Raises ValueError for an impossible number."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_CORES:
        raise ValueError(f"cores = {str(value)[:40]}")
    return value
