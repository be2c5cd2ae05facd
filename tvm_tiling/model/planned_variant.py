"""A variant of a model with an execution plan, of static or dynamic shape: executed by plan.c, without TVM."""

from __future__ import annotations

import functools
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..decide.vector.cache_append import AppendTiling
from ..errors import WorkloadError
from ..runtime.arrays import aligned_empty, overlaps, span_of
from ..runtime.gate import entrance
from ..runtime.launcher import limited
from ..runtime.plan import INPUT, OUTPUT, ExecutionPlan, PlannedTensor, TensorType
from ..runtime.plan_runner import Buffers, PlanInstance, PlanRunner, RunFailed
from ..runtime.plan_tables import PlanTables
from ..runtime.threads import own_core
from ..sizes import fixed
from .outputs import Output, Outputs, outputs_of
from .report import Benchmark
from .variant_base import VariantBase, VariantParts

if TYPE_CHECKING:
    from .profile import Profile


class PlannedVariant(VariantBase):
    """`run` and `benchmark` may be called from several threads at once; each has a separate instance."""

    def __init__(self, parts: VariantParts) -> None:
        """Raises ValueError if the library's plan does not match this signature and these constants."""
        library, signature, store = parts.library, parts.signature, parts.store
        plan = library.plan
        if library.native is None or plan is None:
            raise ValueError("the library has no plan")
        kinds = [(kind.shape, kind.dtype) for kind in plan.inputs]
        if kinds != list(zip(signature.input_shapes, signature.input_dtypes, strict=True)):
            raise ValueError("the plan takes different inputs than the model")
        places = [store.places[number] for number in parts.constants]
        self._runner = PlanRunner(library.native, plan, store.block, [(place.offset, place.size) for place in places])
        self._instances: list[PlanInstance] = []
        outputs = outputs_of(
            signature.names_of(len(plan.outputs)),
            [kind.shape if isinstance(kind, TensorType) else fixed(kind.shape) for kind in plan.outputs],
            [kind.dtype for kind in plan.outputs],
        )
        super().__init__(parts, outputs)
        if isinstance(plan, ExecutionPlan):  # TVM's plan, in older files, is larger
            self.memory = replace(parts.memory, activations=plan.arena)

    def run(self, arrays: Sequence[np.ndarray], threads: int | None = None) -> Any:
        """Outputs for inputs that match the signature; several are returned as a tuple. Raises WorkloadError if a
        kernel rejects an index in an input."""
        buffers = self.lend(arrays)
        self._execute(buffers, threads)
        return _outputs(buffers)

    def _execute(self, buffers: Buffers, threads: int | None = None) -> None:
        """Run in this thread's instance; by default on the variant's number of threads."""
        try:
            with limited(threads or self.threads):
                self._instance(buffers).run(buffers)
        except RunFailed as failed:
            raise _refused(failed) from None

    def run_into(self, arrays: Sequence[np.ndarray], outputs: Outputs, threads: int | None = None) -> None:
        """Write the outputs for these inputs to the caller's memory. Errors as in :meth:`run`, after which it is
        undefined."""
        apart = [a.copy() if overlaps(span_of(a), outputs.spans) else a for a in map(np.ascontiguousarray, arrays)]
        tables = self._tables(arrays)
        for array, kind, output in zip(outputs.arrays, tables.outputs, self.outputs, strict=True):
            Output(output.name, kind.shape, kind.dtype).check(array)
        self._execute(Buffers(tables, apart, outputs.arrays), threads)

    @functools.cached_property
    def in_place(self) -> tuple[tuple[int, int], ...]:
        """(output, input) pairs of caches to which a run only appends: the output may use the input's memory."""
        plan, found = self._runner.plan, []
        appending = {operator.name for operator in self.operators if operator.form == AppendTiling.FORM}
        reading = Counter(number for step in plan.steps for number in set(step.arguments))
        for output, result in enumerate(plan.results):
            for step in plan.steps:
                if step.kernel in appending and result in step.arguments and reading[step.arguments[0]] == 1:
                    past = plan.tensors[step.arguments[0]]
                    if past.place == INPUT and plan.tensors[result].place == OUTPUT:
                        found.append((output, past.offset if isinstance(past, PlannedTensor) else past.number))
        return tuple(found)

    def run_in_place(self, arrays: Sequence[np.ndarray], kept: Mapping[int, int]) -> Sequence[np.ndarray]:
        """All outputs, of which those in `kept`, a subset of in_place, are the inputs with these numbers, partly
        written. Raises WorkloadError if one has not enough room for the result."""
        tables = self._tables(arrays)
        outputs = []
        for number, kind in enumerate(tables.outputs):
            if number not in kept:
                outputs.append(aligned_empty(kind.shape, kind.dtype))
                continue
            array, name = arrays[kept[number]], self.outputs[number].name
            if array.shape != kind.shape:
                room, wanted = array.shape[-2], kind.shape[-2]
                raise WorkloadError(
                    f"the cache of {name!r} holds {room} rows; expected at least {wanted}, set by room="
                )
            outputs.append(array)
        self._execute(Buffers(tables, arrays, outputs))
        return outputs

    def _tables(self, arrays: Sequence[np.ndarray]) -> PlanTables:
        """The tables for inputs of these shapes."""
        return self._runner.tables(tuple(array.shape for array in arrays), lambda: self.signature.sizes(arrays))

    def _instance(self, buffers: Buffers) -> PlanInstance:
        """This thread's instance."""
        found: PlanInstance | None = getattr(self._state, "instance", None)
        if found is None:
            found = self._state.instance = PlanInstance(self._runner, buffers.tables)
        return found

    # ---- concurrent runs: for one caller at a time ------------------------------------------------------------------

    def functions(self, threads: int, arrays: Sequence[np.ndarray]) -> Sequence[int]:
        """The address of one instance per thread; `arrays`: inputs that one of them will take."""
        while len(self._instances) < threads:
            self._instances.append(PlanInstance(self._runner, self._tables(arrays)))
        return [instance.address for instance in self._instances[:threads]]

    def lend(self, arrays: Sequence[np.ndarray]) -> Buffers:
        """The buffers of a run on these inputs."""
        return Buffers(self._tables(arrays), arrays)

    def give_back(self, buffers: Buffers) -> None:
        """Does nothing: the outputs belong to the caller."""

    def arguments(self, buffers: Buffers) -> tuple[int, ...]:
        """The arguments of an instance, including the plan if it depends on the shapes."""
        return (*buffers.addresses, buffers.tables.address) if self.signature.is_open else buffers.addresses

    def received(self, result: Any, buffers: Buffers) -> Any:
        """The outputs of a completed run, as returned by :meth:`run`."""
        return _outputs(buffers)

    # ---- measurement ------------------------------------------------------------------------------------------------

    def benchmark(self, arrays: Sequence[np.ndarray], seconds: float) -> Benchmark:
        """Measure runs on these inputs for about `seconds` seconds, then each operator."""
        from .timing import benchmark_of, operator_runs, timed

        buffers = self.lend(arrays)
        instance = self._instance(buffers)
        try:
            with own_core(), limited(self.threads):
                instance.run(buffers)
                samples, others = timed(lambda: instance.run(buffers), seconds)
                operators = self._operator_times(instance, buffers, operator_runs(samples))
        except RunFailed as failed:
            raise _refused(failed) from None
        return benchmark_of(samples, operators, others)

    def profile(self, arrays: Sequence[np.ndarray], runs: int) -> Profile:
        """Profile this many runs on these inputs and return the median one, with the work of each thread. Raises
        RuntimeError if the library does not support profiling."""
        from ..runtime.profiler import Profiler
        from .profile import profile_of, recorded_runs
        from .timing import timed

        buffers = self.lend(arrays)
        instance = self._instance(buffers)
        profiler = Profiler()
        steps = self._runner.plan.steps * buffers.tables.parts
        try:
            with own_core(), limited(self.threads):
                instance.run(buffers)
                samples, _ = timed(lambda: instance.run(buffers), 0.0, runs)
                found = recorded_runs(
                    profiler, len(steps), lambda: instance.watch(buffers, profiler.sampler, profiler.wide), runs
                )
        except RunFailed as failed:
            raise _refused(failed) from None
        return profile_of(
            found,
            [step.kernel.removesuffix("_packed") for step in steps],
            profiler,
            threads=self.threads,
            unprofiled=statistics.median(samples),
            operators=self.operators,
        )

    def _operator_times(self, instance: PlanInstance, buffers: Buffers, runs: int) -> dict[str, float]:
        """Median total seconds of each operator's calls; the time of other kernels is named "runtime"."""
        from .timing import median_of_each

        known = {o.name for o in self.operators}
        steps = [step.kernel.removesuffix("_packed") for step in self._runner.plan.steps]
        names = [name if name in known else "runtime" for name in steps]
        taken, totals = np.zeros(len(steps)), []
        for _ in range(runs):
            instance.run(buffers, taken)
            total = dict.fromkeys(names, 0.0)
            for name, time_taken in zip(names, taken.tolist(), strict=True):
                total[name] += time_taken
            totals.append(total)
        return median_of_each(totals)


entrance(PlannedVariant, "_instance")
entrance(PlannedVariant, "functions")


def _outputs(buffers: Buffers) -> Any:
    return buffers.arrays[0] if len(buffers.arrays) == 1 else tuple(buffers.arrays)


def _refused(failed: RunFailed) -> WorkloadError:
    said = str(failed)
    return WorkloadError(said if failed.refused else f"the run failed: {said.strip().rstrip('.')}")
