"""A compiled model: run it, time it, say where its time goes, keep it in one file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import WorkloadError
from ..runtime.execution_policy import ExecutionPolicy
from . import saved
from .outputs import Outputs, like
from .passes.constants import Constants
from .precision.record import FLOAT32, PrecisionRecord
from .report import Benchmark, Memory, OperatorRecord, Report
from .session import ROOM, Session
from .signature import Signature, chosen
from .variants import AnyVariant

if TYPE_CHECKING:
    from .profile import Profile

OUT = "out"
RUNS = 11  # that a profile is the median of


class Executable:
    """A compiled model: one variant for each set of shapes it was compiled for, chosen by the inputs at every run.

    `run` may be called from several threads at once.
    """

    def __init__(
        self,
        variants: Sequence[AnyVariant],
        constants: Constants,
        *,
        fingerprint: str,
        cores: int,
        compile_seconds: float,
        precision: PrecisionRecord | None = None,
    ) -> None:
        """`constants`: what the variants' functions take behind their inputs. `fingerprint`, `cores`: the machine that
        the kernels were made for. `precision`: None for float32."""
        self.variants, self.fingerprint, self.cores = tuple(variants), fingerprint, cores
        self.compile_seconds, self.from_cache = compile_seconds, False
        self.precision = precision or FLOAT32
        self._constants = constants
        self.policy = ExecutionPolicy()
        self._measured: tuple[AnyVariant, Benchmark] | None = None

    @property
    def signature(self) -> Signature:
        """What the model takes and gives; of several variants, the first one's."""
        return self.variants[0].signature

    @property
    def operators(self) -> tuple[OperatorRecord, ...]:
        """The operators; of several variants, the first one's."""
        return self.variants[0].operators

    # ---- running ----------------------------------------------------------------------------------------------------

    def run(self, *arrays: Any, out: Any = None, **named: Any) -> Any:
        """The model's outputs as NumPy arrays for inputs in graph order or by name; several outputs come as a tuple.

        Inputs are NumPy arrays, tensors of PyTorch, or anything with DLPack in this computer's main memory. One without
        gaps whose memory begins at a multiple of 64 bytes is not copied.

        `out`: arrays or tensors that the outputs are written to, and that are returned: one, of several outputs a tuple
        or a mapping by name. They are of the outputs' shapes and types, writable and without gaps; results are
        written there without a copy where their memory begins at a multiple of 64 bytes too. One that shares memory
        with an input has that input copied. (An input of the model that is called `out` is meant by the name.)

        WorkloadError says which input is missing, unknown, or of another shape or type than the model's, and what
        cannot be written to.
        """
        if out is not None and OUT in self.signature.input_names:
            named[OUT], out = out, None
        variant, values = self.chosen(arrays, named)
        if out is None:
            return variant.run(values)
        outputs = Outputs(out, variant.outputs)
        variant.run_into(values, outputs)
        return outputs.result

    def __call__(self, *arrays: Any, out: Any = None, **named: Any) -> Any:
        """As :meth:`run`, with outputs in the kind of the first input: tensors of PyTorch for tensors of PyTorch."""
        result = self.run(*arrays, out=out, **named)
        return result if out is not None else like((*arrays, *named.values()), result)

    def session(self, states: Mapping[str, str] | None = None, *, room: int = ROOM) -> Session:
        """Runs that go on from each other, with the model's states kept: key/value caches, recurrent states.

        `states`: outputs by name, each with the input that it is in the next run; left out, those that are named as
        exporters do (present.0.key for past_key_values.0.key). `room`: rows of caches that are updated in place.
        WorkloadError where there are no such states.
        """
        return Session(self.variants, states, room)

    def chosen(self, arrays: Sequence[Any], named: Mapping[str, Any]) -> tuple[AnyVariant, Sequence[Any]]:
        """The variant for these inputs, and its inputs in graph order. Errors as :meth:`run`."""
        if not named:
            # A large kernel leaves no cache to what is checked between two runs: 0.1 ms of the 2 ms of an LSTM of 512.
            for variant in self.variants:
                if variant.takes(arrays):
                    return variant, arrays
        values = self.signature.arrays(arrays, named)
        return self._variant(values), values

    def _variant(self, values: Sequence[Any]) -> AnyVariant:
        variant = self.variants[chosen([variant.signature for variant in self.variants], values)]
        variant.accept(values)
        return variant

    # ---- measuring --------------------------------------------------------------------------------------------------

    def benchmark(self, *arrays: Any, seconds: float = 2.0, **named: Any) -> Benchmark:
        """Time runs on these inputs for about so many seconds, then each operator; the report shows it afterwards."""
        values = self.signature.arrays(arrays, named)
        variant = self._variant(values)
        measured = variant.benchmark(values, seconds)
        self._measured = (variant, measured)
        return measured

    def profile(self, *arrays: Any, runs: int = RUNS, **named: Any) -> Profile:
        """When each operator runs on these inputs, and on which threads: the run of median length of `runs`. With
        counters of the processor (perf_event) where the system allows them.

        `.save(path)` writes the timeline for Perfetto. WorkloadError where the model has no profiles: it was compiled
        by an earlier version, or without a C compiler, or the inputs are not the model's.
        """
        values = self.signature.arrays(arrays, named)
        variant = self._variant(values)
        if runs < 1:
            raise WorkloadError(f"runs is {runs}; expected 1 or more")
        try:
            return variant.profile(values, runs)
        except RuntimeError as error:
            raise WorkloadError(f"the run cannot be profiled: {error}") from None

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
            memory=self._memory(variant),
            compile_seconds=self.compile_seconds,
            precision=self.precision,
            others=measured.others if measured is not None else None,
            graph=variant.graph,
        )

    def _memory(self, variant: AnyVariant) -> Memory:
        memory = variant.memory
        return replace(memory, mapped=memory.weights + memory.constants) if self._constants.mapped else memory

    def describe(self) -> dict[str, Any]:
        """Signature, operators and memory of every variant, and the compilation's time, as plain values."""
        return {"compile_seconds": self.compile_seconds, **self._contents()}

    def _contents(self) -> dict[str, Any]:
        """What describe() says of the model itself: the same in every compilation of it."""
        return {
            **self.precision.described(),
            "variants": [
                {
                    "signature": variant.signature.to_dict(),
                    "operators": [asdict(operator) for operator in variant.operators],
                    "memory": variant.memory.planned(),
                    "constants": list(variant.constants),
                }
                for variant in self.variants
            ],
        }

    # ---- files ------------------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to one file, whole or not at all. Equal models give equal files: compiled with the same
        options and the same version of this package on the same machine."""
        self._save(path, {})

    def export(
        self,
        folder: str | os.PathLike[str],
        *,
        name: str | None = None,
        shapes: Mapping[str, Sequence[int]] | None = None,
    ) -> Path:
        """Write a C library that needs neither TVM nor Python: header, source, kernels, weights, what builds them, and
        examples in C and C++. Gives the folder, which is new, empty or of an export before.

        `name`: of the library and its functions, left out the folder's name. `shapes`: of several variants, the shapes
        of inputs by name that choose one.

        UnsupportedOperator names an operator that needs TVM in a run, WorkloadError says that shapes choose no variant
        or several, OSError why the folder cannot be written.
        """
        from .export.export import chosen_variant, export_variant

        return export_variant(chosen_variant(self.variants, shapes), self._constants, folder, name)

    def _save(self, path: str | os.PathLike[str], further: Mapping[str, np.ndarray]) -> None:
        """The file, with further contents by name."""
        description = {
            "fingerprint": self.fingerprint,
            "cores": self.cores,
            "places": self._constants.describe(),
            **self._contents(),
        }
        libraries = [variant.library for variant in self.variants]
        saved.write(path, description, libraries, self._constants.block, further)
