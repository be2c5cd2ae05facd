"""A variant of a model run by a virtual machine, one per thread; timed operator by operator."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tvm
from tvm.runtime.vm import VirtualMachine

from ..refusal import refused
from ..runtime.array_io import Given, Inputs, as_arrays, spans
from ..runtime.arrays import Span
from ..runtime.gate import entrance
from ..runtime.launcher import limited
from ..runtime.profiler import Profiler
from ..runtime.threads import own_core, set_pool
from .outputs import Outputs, outputs_of
from .profile import Profile, profile_of, recorded_runs
from .report import Benchmark
from .timing import benchmark_of, median_of_each, operator_runs, timed
from .variant_base import VariantBase, VariantParts

ENTRY = "main"
KEPT_BYTES = 16 << 20  # memory for inputs of later runs


class Lent(NamedTuple):
    """The inputs of a run, and the memory for those that were copied."""

    inputs: Inputs
    given: Given


class Variant(VariantBase):
    """`run` and `benchmark` may be called from several threads at once; each has its own state."""

    def __init__(self, parts: VariantParts) -> None:
        signature = parts.signature
        outputs = outputs_of(signature.output_names, signature.output_shapes, signature.output_dtypes)
        super().__init__(parts, outputs)
        self._tensors = tuple(parts.store.tensors(parts.constants))
        self._held = spans(self._tensors)
        self._functions: list[Any] = []
        self._spare: list[Inputs] = []

    def run(self, arrays: Sequence[np.ndarray], threads: int | None = None) -> Any:
        """Outputs for inputs that match the signature; several as a tuple. Raises WorkloadError if a kernel rejects an
        index in an input, or if the library does not match the signature."""
        found = self._results(arrays, threads)
        return found[0] if len(found) == 1 else tuple(found)

    def run_into(self, arrays: Sequence[np.ndarray], outputs: Outputs, threads: int | None = None) -> None:
        """Write the outputs for these inputs to memory of the caller, by a copy from the virtual machine's own.

        Raises errors as :meth:`run` does; the content of the memory is then undefined.
        """
        outputs.write(self._results(arrays, threads, outputs.spans))

    def _results(
        self, arrays: Sequence[np.ndarray], threads: int | None, apart: Sequence[Span] = ()
    ) -> list[np.ndarray]:
        """The outputs of a run; inputs within the spans `apart` are copied. A model without a launcher runs in TVM's
        pool, whose size a run does not change."""
        call, inputs = self._call()
        given = inputs.given(arrays, apart)
        try:
            with limited(threads or self.threads):
                return self._arrays(call(*self._arguments(given)), given)
        except (RuntimeError, TypeError, ValueError) as error:
            raise refused(error) from None

    def _call(self) -> tuple[Callable[..., Any], Inputs]:
        """The model's function in this thread's machine, and the thread's inputs."""
        found: tuple[Callable[..., Any], Inputs] | None = getattr(self._state, "call", None)
        if found is None:
            inputs = Inputs(self.signature.input_dtypes)
            found = self._state.call = self._machine()[ENTRY], inputs
        return found

    def _machine(self) -> Any:
        if not self.launched:
            set_pool(self.threads)
        return VirtualMachine(self.library.module, tvm.cpu())

    # ---- parallel runs: by one caller at a time ---------------------------------------------------------------------

    def functions(self, threads: int, _: Sequence[np.ndarray]) -> Sequence[Any]:
        """The model's function, for each thread in its own machine."""
        while len(self._functions) < threads:
            self._functions.append(self._machine()[ENTRY])
        return self._functions[:threads]

    def lend(self, arrays: Sequence[np.ndarray]) -> Lent:
        """The holder of these inputs until it is returned."""
        inputs = self._spare.pop() if self._spare else Inputs(self.signature.input_dtypes)
        return Lent(inputs, inputs.given(arrays))

    def give_back(self, lent: Lent) -> None:
        if (len(self._spare) + 1) * lent.inputs.copied_bytes <= KEPT_BYTES:
            self._spare.append(lent.inputs)

    def arguments(self, lent: Lent) -> tuple[tvm.runtime.Tensor, ...]:
        """The arguments of the model's function."""
        return self._arguments(lent.given)

    def _arguments(self, given: Given) -> tuple[tvm.runtime.Tensor, ...]:
        return (*given.tensors, *self._tensors)

    def received(self, result: Any, lent: Lent) -> Any:
        """Outputs of the model's function, as returned by :meth:`run`."""
        found = self._arrays(result, lent.given)
        return found[0] if len(found) == 1 else tuple(found)

    def _arrays(self, result: Any, given: Given) -> list[np.ndarray]:
        """Outputs of the model's function as arrays, each with memory of its own."""
        outputs = (result,) if isinstance(result, tvm.runtime.Tensor) else result
        return as_arrays(outputs, (*self._held, *given.spans))

    # ---- measuring --------------------------------------------------------------------------------------------------

    def benchmark(self, arrays: Sequence[np.ndarray], seconds: float) -> Benchmark:
        """Time runs on these inputs for about this many seconds, then each operator."""
        call, inputs = self._call()
        arguments = self._arguments(inputs.given(arrays))
        with own_core(), limited(self.threads):
            try:
                call(*arguments)
            except (RuntimeError, TypeError, ValueError) as error:
                raise refused(error) from None
            samples, others = timed(lambda: call(*arguments), seconds)
            operators = self._operator_times(arguments, operator_runs(samples))
        return benchmark_of(samples, operators, others)

    def profile(self, arrays: Sequence[np.ndarray], runs: int) -> Profile:
        """Profile this many runs on these inputs and return the median one, with the work of each thread. Raises
        RuntimeError if profiling is not available."""
        call, inputs = self._call()
        arguments = self._arguments(inputs.given(arrays))
        profiler = Profiler()
        known = {o.name for o in self.operators}
        names: list[str] = []
        noted: list[np.ndarray] = []

        def instrument(_func: Any, symbol: str, before: bool, _result: Any, *_: Any) -> None:
            noted.append(profiler.sample())
            if before:
                name = symbol.removesuffix("_packed")
                names.append(name if name in known else "runtime")

        def run() -> np.ndarray:
            names.clear()
            noted.clear()
            machine[ENTRY](*arguments)
            return np.array(noted, np.int64).reshape(len(names), 2, profiler.wide)

        machine = self._machine()  # a machine with an instrument is not used for anything else
        machine.set_instrument(instrument)
        with own_core():
            try:
                call(*arguments)
            except (RuntimeError, TypeError, ValueError) as error:
                raise refused(error) from None
            samples, _ = timed(lambda: call(*arguments), 0.0, runs)
            steps = len(run())
            found = recorded_runs(profiler, steps, run, runs)
        return profile_of(
            found,
            names,
            profiler,
            threads=self.threads,
            unprofiled=statistics.median(samples),
            operators=self.operators,
        )

    def _operator_times(self, arguments: Sequence[tvm.runtime.Tensor], runs: int) -> dict[str, float]:
        """Median seconds of each operator's calls together; the remaining time of the virtual machine is named
        "runtime"."""
        known = {o.name for o in self.operators}
        totals: list[dict[str, float]] = []
        started = 0.0

        def instrument(_func: Any, symbol: str, before: bool, _result: Any, *_: Any) -> None:
            nonlocal started
            if before:
                started = time.perf_counter()
                return
            name = symbol.removesuffix("_packed")
            name = name if name in known else "runtime"
            totals[-1][name] = totals[-1].get(name, 0.0) + time.perf_counter() - started

        # The instrument of a machine cannot be removed, so this machine is not used for anything else.
        machine = self._machine()
        machine.set_instrument(instrument)
        for _ in range(runs):
            totals.append({})
            machine[ENTRY](*arguments)
        return median_of_each(totals)


entrance(Variant, "_call")
entrance(Variant, "functions")
