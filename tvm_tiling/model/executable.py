"""A compiled model: execution, measurement, reports and files."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import WorkloadError
from ..figures import noun_for, quantity
from ..hardware.usable import check_threads
from ..runtime.execution_policy import ExecutionPolicy
from ..runtime.locks import ForkSafeLock
from . import saved
from .outputs import Outputs, like
from .passes.constants import Constants
from .precision.record import FLOAT32, PrecisionRecord
from .report import Benchmark, Memory, OperatorRecord, Report
from .session import ROOM, Session
from .signature import Signature, by_name, chosen, in_order
from .variants import AnyVariant

if TYPE_CHECKING:
    from .profile import Profile

OUT, THREADS = "out", "threads"
RUNS = 11  # profiled runs, of which the median is reported
_profiling = ForkSafeLock()  # launch.c records one profile at a time


class Executable:
    """A compiled model: one variant for each set of shapes for which it was compiled, chosen by the inputs of every
    run.

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
        deterministic: bool = False,
    ) -> None:
        """`constants`: further arguments of the variants' functions, after their inputs. `fingerprint`, `cores`: the
        machine for which the kernels were built. `precision`: None for float32. `deterministic`: as in compile()."""
        self.variants, self.fingerprint, self.cores = tuple(variants), fingerprint, cores
        self.compile_seconds, self.from_cache = compile_seconds, False
        self.precision = precision or FLOAT32
        self.deterministic = deterministic
        self._constants = constants
        self.policy = ExecutionPolicy()
        self._measured: tuple[AnyVariant, Benchmark] | None = None

    @property
    def threads(self) -> int:
        """The number of threads of a run: that of the kernels, if this process has as many cores, or the one passed to
        `compile` or `load`."""
        return self.variants[0].threads

    @property
    def signature(self) -> Signature:
        """The inputs and outputs of the model; of the first variant, if there are several."""
        return self.variants[0].signature

    @property
    def operators(self) -> tuple[OperatorRecord, ...]:
        """The operators; of the first variant, if there are several."""
        return self.variants[0].operators

    @property
    def lacking(self) -> str:
        """The instructions required by the model that this CPU lacks, in words; empty if it can run the model."""
        return next((variant.library.lacking for variant in self.variants if variant.library.lacking), "")

    # ---- running ----------------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        """Inputs, outputs and compilation options, on a few lines."""
        more = len(self.variants) - 1
        about = [quantity(len(self.operators), "operator"), quantity(self.threads, "thread"), self.precision.precision]
        about += ["deterministic"] if self.deterministic else []
        about += [f"and {more} more {noun_for(more, 'variant')}"] if more else []
        lines = (f"  {line}" for line in self.signature.lines())
        return "\n".join([f"<{type(self).__name__}: {', '.join(about)}", *lines]) + ">"

    def run(self, *arrays: Any, out: Any = None, threads: int | None = None, **named: Any) -> Any:
        """The model's outputs as NumPy arrays for inputs in graph order, by name, or in a mapping by name, as in
        run({"x": x}); several outputs are returned as a tuple.

        Inputs are NumPy arrays, PyTorch tensors, or any object with DLPack in this computer's main memory. A contiguous
        input is not copied, except by models with operators for which TVM's virtual machine is needed, if it is not
        aligned to 64 bytes.

        `out`: arrays or tensors to which the outputs are written, and which are returned: a single one, or a tuple or a
        mapping by name for several outputs. They have to match the outputs' shapes and types, and be writable and
        contiguous; results are written there without a copy. If one shares memory with an input, that input is copied.
        (For a model with an input named `out`, the name refers to the input.)

        `threads`: maximum number of threads for this run, from 1 to the executable's own number, the default.

        Raises WorkloadError for an input that is missing, unknown, or has a wrong shape or type, and for outputs that
        cannot be written.
        """
        if out is not None and OUT in self.signature.input_names:
            named[OUT], out = out, None
        if threads is not None:
            if THREADS in self.signature.input_names:
                named[THREADS], threads = threads, None
            else:
                threads = check_threads(threads, self.threads)
        variant, values = self.chosen(arrays, named)
        if out is None:
            return variant.run(values, threads)
        outputs = Outputs(out, variant.outputs)
        variant.run_into(values, outputs, threads)
        return outputs.result

    def __call__(self, *arrays: Any, out: Any = None, threads: int | None = None, **named: Any) -> Any:
        """Like :meth:`run`, with outputs of the same kind as the first input: PyTorch tensors for PyTorch tensors."""
        result = self.run(*arrays, out=out, threads=threads, **named)
        if out is not None:
            return result
        given, further = by_name(arrays, named)
        return like((*given, *further.values()), result)

    def session(self, states: Mapping[str, str] | None = None, *, room: int = ROOM) -> Session:
        """Create a session of consecutive runs that keep the model's states: key/value caches, recurrent states.

        `states` maps output names to the inputs that they become in the next run; by default those that exporters name
        in a known way (present.0.key for past_key_values.0.key). `room`: rows of caches that are updated in place.
        Raises WorkloadError if there are no such states.
        """
        return Session(self.variants, states, room)

    def chosen(self, arrays: Sequence[Any], named: Mapping[str, Any]) -> tuple[AnyVariant, Sequence[Any]]:
        """The variant for these inputs, and its inputs in graph order. Errors as in :meth:`run`."""
        # Arrays of exactly the expected kinds need no checks, whose data large kernels evict from the caches between
        # two runs: 0.1 ms of the 2 ms of an LSTM of 512.
        plain = in_order(self.signature.input_names, arrays, named)
        if plain is not None:
            for variant in self.variants:
                if variant.takes(plain):
                    return variant, plain
        values = self.signature.arrays(arrays, named)
        return self._variant(values), values

    def _variant(self, values: Sequence[Any]) -> AnyVariant:
        variant = self.variants[chosen([variant.signature for variant in self.variants], values)]
        variant.accept(values)
        return variant

    # ---- measurement ------------------------------------------------------------------------------------------------

    def benchmark(self, *arrays: Any, seconds: float = 2.0, **named: Any) -> Benchmark:
        """Measure runs on these inputs, given as in :meth:`run`, for about `seconds` seconds, then each operator; the
        report includes the result. Raises WorkloadError for inputs that do not match the model.
        """
        if not (isinstance(seconds, int | float) and math.isfinite(seconds) and seconds >= 0):
            raise WorkloadError(f"seconds = {seconds!r}; expected a finite number of at least 0")
        values = self.signature.arrays(arrays, named)
        variant = self._variant(values)
        measured = variant.benchmark(values, seconds)
        self._measured = (variant, measured)
        return measured

    def profile(self, *arrays: Any, runs: int = RUNS, **named: Any) -> Profile:
        """Profile the model on these inputs, given as in :meth:`run`: when each operator runs and on which threads, in
        the run with the median duration of `runs`, with hardware counters (perf_event) if the system permits them.

        `.save(path)` writes the timeline for Perfetto. Nothing else should run in this process meanwhile; another
        profile waits. Raises WorkloadError if the model cannot be profiled, because it was compiled by an earlier
        version or without a C compiler, or if the inputs do not match the model.
        """
        values = self.signature.arrays(arrays, named)
        variant = self._variant(values)
        if runs < 1:
            raise WorkloadError(f"runs = {runs}; expected 1 or more")
        try:
            with _profiling.current:
                return variant.profile(values, runs)
        except RuntimeError as error:
            raise WorkloadError(f"the run cannot be profiled: {error}") from None

    def report(self) -> Report:
        """Operators with their decisions, and with their times after `benchmark`, the slowest first.

        For several variants, the report is about the one measured last, or the first one.
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
            deterministic=self.deterministic,
            others=measured.others if measured is not None else None,
            graph=variant.graph,
            parts=variant.parts,
        )

    def _memory(self, variant: AnyVariant) -> Memory:
        memory = variant.memory
        return replace(memory, mapped=memory.weights + memory.constants) if self._constants.mapped else memory

    @property
    def placement(self) -> str:
        """Which operators run on a simulated accelerator; empty for a model on the CPU alone."""
        return ""

    def describe(self) -> dict[str, Any]:
        """Signature, operators and memory of every variant, and the compilation time, as plain values."""
        return {"compile_seconds": self.compile_seconds, **self._contents()}

    def _contents(self) -> dict[str, Any]:
        """The part of describe() about the model itself: the same in every compilation of it."""
        return {
            **self.precision.described(),
            **({"deterministic": True} if self.deterministic else {}),
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
        """Write everything to the file `path` atomically. Equal models result in equal files if compiled with the same
        options and version of this package on the same machine. Raises OSError if the file cannot be written.
        """
        self._save(path, {})

    def export(
        self,
        folder: str | os.PathLike[str],
        *,
        name: str | None = None,
        shapes: Mapping[str, Sequence[int]] | None = None,
    ) -> Path:
        """Write a C library that needs neither TVM nor Python to `folder`: header, source, kernels, weights, build
        files, and examples in C and C++. Returns the directory, which has to be new, empty or created by a previous
        export.

        `name`: prefix of the library and its functions, by default the name of the directory. `shapes`: for several
        variants, the shapes of inputs by name that select one.

        Raises UnsupportedOperator for an operator that needs TVM at run time, WorkloadError if the shapes do not select
        exactly one variant, OSError if the directory cannot be written.
        """
        from .export.export import chosen_variant, export_variant

        return export_variant(chosen_variant(self.variants, shapes), self._constants, folder, name)

    def _save(self, path: str | os.PathLike[str], further: Mapping[str, np.ndarray]) -> None:
        """Write the file, with additional contents by name."""
        description = {
            "fingerprint": self.fingerprint,
            "cores": self.cores,
            "places": self._constants.describe(),
            **self._contents(),
        }
        libraries = [variant.library for variant in self.variants]
        saved.write(path, description, libraries, self._constants.block, further)
