"""Executables from their files. What runs on a simulated accelerator is imported where a file holds such: a model for a
CPU is there sooner without.
"""

from __future__ import annotations

import os
from typing import Any

from ..accel.program.magic import is_program
from . import saved
from .executable import Executable
from .passes.constants import Constants, places_of
from .precision.record import PrecisionRecord
from .report import Memory, OperatorRecord, nodes_of
from .signature import Signature
from .variant_base import VariantParts
from .variants import variant_of

MOST_CORES = 4096


def load(path: str | os.PathLike[str], *, digest: str | None = None, copy: bool = False, foreign: bool = False) -> Any:
    """A saved executable. It is native code, and loading it is trusting who wrote it: a file that another user owns or
    may write to is refused, unless `digest`, its SHA-256 in hexadecimal, says that it is the one meant. The program of
    an accelerator, which is data, gives a SimulatedExecutable.

    Weights are pages of the file, which processes that load it share; all of it is read once and compared with its
    checksum. The file may be removed, or replaced as `save` does, while it is in use, but not overwritten or cut short
    in place, which ends the process: where that may happen, `copy` reads the weights into memory of this process. So
    are those of files with a `digest` and of network file systems.

    Needs neither the model nor a compiler. ModelFormatError says what is wrong with the file, HardwareError which
    instructions of its kernels this CPU lacks; with `foreign`, such a model is loaded to look at it, to save and to
    export it, and refused when it is run.
    """
    if is_program(path):
        from ..accel.program.program import Program
        from .accel.simulated import SimulatedExecutable

        return SimulatedExecutable(Program.load(path))
    found = saved.read(path, digest, copy, foreign)
    known, block = found.description, found.constants
    try:
        cores = _cores(known["cores"])
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
                    cores=cores,
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
            return Executable(variants, constants, precision=precision, **made)
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
    """How many threads the kernels are run by. ValueError for what no machine has."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_CORES:
        raise ValueError(f"cores = {str(value)[:40]}")
    return value
