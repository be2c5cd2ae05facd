"""A compiled model: run it, time it, say where its time goes, keep it in one file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from ..accel.program.file import is_program
from ..accel.program.program import Program
from . import saved
from .pace import Pace
from .passes.constants import Constants, places_of
from .report import Benchmark, Memory, OperatorRecord, Report
from .signature import Signature, chosen
from .variant import Variant

MOST_CORES = 4096


class Executable:
    """A compiled model: one variant for each set of shapes it was compiled for, chosen by the inputs at every run.

    `run` may be called from several threads at once.
    """

    def __init__(
        self, variants: Sequence[Variant], constants: Constants, *, fingerprint: str, cores: int, compile_seconds: float
    ) -> None:
        """`constants`: what the variants' functions take behind their inputs. `fingerprint`, `cores`: the machine that
        the kernels were made for."""
        self.variants, self.fingerprint, self.cores = tuple(variants), fingerprint, cores
        self.compile_seconds, self.from_cache = compile_seconds, False
        self._constants = constants
        self.pace = Pace()
        self._measured: tuple[Variant, Benchmark] | None = None

    @property
    def signature(self) -> Signature:
        """What the model takes and gives; of several variants, the first one's."""
        return self.variants[0].signature

    @property
    def operators(self) -> tuple[OperatorRecord, ...]:
        """The operators; of several variants, the first one's."""
        return self.variants[0].operators

    # ---- running ----------------------------------------------------------------------------------------------------

    def run(self, *arrays: Any, **named: Any) -> Any:
        """The model's outputs for NumPy inputs in graph order or by name; several outputs come as a tuple.

        WorkloadError says which input is missing, unknown, or of another shape or type than the model's.
        """
        variant, values = self.chosen(arrays, named)
        return variant.run(values)

    def chosen(self, arrays: Sequence[Any], named: Mapping[str, Any]) -> tuple[Variant, Sequence[Any]]:
        """The variant for these inputs, and its inputs in graph order. Errors as :meth:`run`."""
        if not named:
            # A large kernel leaves no cache to what is checked between two runs: 0.1 ms of the 2 ms of an LSTM of 512.
            for variant in self.variants:
                if variant.takes(arrays):
                    return variant, arrays
        values = self.signature.arrays(arrays, named)
        return self._variant(values), values

    def _variant(self, values: Sequence[Any]) -> Variant:
        return self.variants[chosen([variant.signature for variant in self.variants], values)]

    # ---- measuring --------------------------------------------------------------------------------------------------

    def benchmark(self, *arrays: Any, seconds: float = 2.0, **named: Any) -> Benchmark:
        """Time runs on these inputs for about so many seconds, then each operator; the report shows it afterwards."""
        values = self.signature.arrays(arrays, named)
        variant = self._variant(values)
        measured = variant.benchmark(values, seconds)
        self._measured = (variant, measured)
        return measured

    def report(self) -> Report:
        """Operators with their decisions, and their times if `benchmark` has been called, the slowest first.

        Of several variants, the one measured last, or the first.
        """
        variant, measured = self._measured or (self.variants[0], None)
        times = measured.operators if measured is not None else {}
        records = [replace(o, measured_seconds=times.get(o.name)) for o in variant.operators]
        if "runtime" in times:
            records.append(
                OperatorRecord(name="runtime", kind="runtime", calls=1, flops=0, measured_seconds=times["runtime"])
            )
        records.sort(key=lambda o: -(o.measured_seconds or o.predicted_seconds or 0.0))
        return Report(
            operators=tuple(records),
            seconds=measured.median if measured is not None else None,
            memory=variant.memory,
            compile_seconds=self.compile_seconds,
        )

    def describe(self) -> dict[str, Any]:
        """Signature, operators and memory of every variant, and the compilation's time, as plain values."""
        return {"compile_seconds": self.compile_seconds, **self._contents()}

    def _contents(self) -> dict[str, Any]:
        """What describe() says of the model itself: the same in every compilation of it."""
        return {
            "variants": [
                {
                    "signature": asdict(variant.signature),
                    "operators": [asdict(operator) for operator in variant.operators],
                    "memory": asdict(variant.memory),
                    "constants": list(variant.constants),
                }
                for variant in self.variants
            ],
        }

    def signature_lines(self) -> list[str]:
        """One line for each input, and one for the outputs; for several variants, one after the other."""
        return [line for variant in self.variants for line in variant.signature.lines()]

    # ---- files ------------------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to one file, whole or not at all. Equal models give equal files: compiled with the same
        options and the same version of this package on the same machine."""
        self._save(path, {})

    def _save(self, path: str | os.PathLike[str], further: Mapping[str, np.ndarray]) -> None:
        """The file, with further contents by name."""
        description = {
            "fingerprint": self.fingerprint,
            "cores": self.cores,
            "places": self._constants.describe(),
            **self._contents(),
        }
        saved.write(path, description, [variant.library for variant in self.variants], self._constants.block, further)


def load(path: str | os.PathLike[str], *, digest: str | None = None) -> Any:
    """A saved executable. It is native code, and loading it is trusting who wrote it: a file that another user owns or
    may write to is refused, unless `digest`, its SHA-256 in hexadecimal, says that it is the one meant. The program of
    an accelerator, which is data, gives a SimulatedExecutable.

    Needs neither the model nor a compiler. ModelFormatError says what is wrong with the file.
    """
    if is_program(path):
        from .accel.operator import SimulatedExecutable  # which simulators, and they alone, need

        return SimulatedExecutable(Program.load(path))
    found = saved.read(path, digest)
    known, block = found.description, found.constants
    try:
        cores = _cores(known["cores"])
        constants = Constants(block, places_of(known["places"], block.nbytes))
        variants = [
            Variant(
                library,
                Signature.from_dict(plain["signature"]),
                [OperatorRecord(**record) for record in plain["operators"]],
                memory=Memory(**plain["memory"]),
                constants=plain["constants"],
                tensors=constants.tensors(plain["constants"]),
                cores=cores,
            )
            for library, plain in zip(found.libraries, known["variants"], strict=True)
        ]
        made = {
            "fingerprint": known["fingerprint"],
            "cores": cores,
            "compile_seconds": 0.0,
        }
        if "accelerator" not in known:
            return Executable(variants, constants, **made)
        from .accel.executable import AcceleratedExecutable, load_programs  # which are executables of this module

        count, steps = (int(known["accelerator"].get(name, 0)) for name in ("programs", "steps"))
        programs = load_programs(os.fspath(path), found.further, count + steps)
        left = {str(name): str(why) for name, why in known["accelerator"]["left"].items()}
        return AcceleratedExecutable(variants[0], constants, programs[:count], left, steps=programs[count:], **made)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError) as error:
        raise saved.damaged(os.fspath(path), error) from None


def _cores(value: Any) -> int:
    """How many threads the kernels are run by. ValueError for what no machine has."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_CORES:
        raise ValueError(f"cores = {str(value)[:40]}")
    return value
