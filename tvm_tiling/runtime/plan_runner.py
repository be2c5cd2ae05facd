"""Execution of plans by plan.c, which is linked into the library of a model's kernels: memory, addresses and errors.

A plan with dynamic shapes has tables for each set of input shapes; an instance switches between them with its memory,
which grows to the largest requirement.
"""

from __future__ import annotations

import ctypes
import functools
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import WorkloadError
from .arrays import address_of, aligned_at
from .locks import ForkSafeLock
from .native_library import PREFIX, NativeLibrary
from .open_plan import AnyPlan
from .plan import ExecutionPlan
from .plan_tables import OpenTables, PlanTables, fixed_tables

MOST_SHAPES = 1024  # sets of input shapes whose tables are cached
SOURCE = Path(__file__).with_name("plan.c")


class RunFailed(Exception):
    """A run that a kernel ended. `refused`: because of an input value."""

    def __init__(self, said: str, refused: bool) -> None:
        super().__init__(said)
        self.refused = refused


class PlanRunner:
    """A plan with its kernels and constants. May be used from several threads."""

    def __init__(
        self,
        library: NativeLibrary,
        plan: AnyPlan,
        block: np.ndarray,
        constants: Sequence[tuple[int, int]],
    ) -> None:
        """`block`: aligned bytes that contain the plan's constants, each given by offset and size. Raises ValueError if
        the plan does not match this library and these constants."""
        if any(offset < 0 or offset + size > block.nbytes for offset, size in constants):
            raise ValueError("a constant of the plan is outside the constants block")
        self.plan, self._block, self._library = plan, block, library
        addresses = {name: library.address(PREFIX + name) for name in plan.kernels}
        if missing := [name for name, address in addresses.items() if not address]:
            raise ValueError(f"the library has no kernel {missing[0][:80]!r}")
        self._create = self._function(library, "create", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
        self._destroy = self._function(library, "destroy", None, ctypes.c_void_p)
        self.call = self._function(library, "run", ctypes.c_int, ctypes.c_void_p, *(ctypes.c_void_p,) * 3)
        self._error = self._function(library, "error", ctypes.c_char_p)
        self._refused = self._function(library, "refused", ctypes.c_int)
        self._fixed: PlanTables | None = None
        self._open: OpenTables | None = None
        self.resize = None
        if isinstance(plan, ExecutionPlan):
            plan.check([size for _, size in constants])
            self._fixed = fixed_tables(plan, constants, addresses)
        else:
            self._open = OpenTables(plan, constants, addresses)
            self.resize = self._function(library, "resize", ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
        self._known: dict[tuple[tuple[int, ...], ...], PlanTables] = {}  # by input shapes
        self._lock = ForkSafeLock()

    @staticmethod
    def _function(library: NativeLibrary, name: str, result: Any, *arguments: Any) -> Any:
        address = library.address(f"tvm_tiling_plan_{name}")
        if not address:
            raise ValueError("the library cannot run a plan")
        return ctypes.CFUNCTYPE(result, *arguments)(address)

    @functools.cached_property
    def watched_call(self) -> Any:
        """Like `call`, with samples around each step. Raises RuntimeError if the model was compiled by an older
        version."""
        try:
            given = (ctypes.c_void_p,) * 4
            return self._function(self._library, "profile", ctypes.c_int, *given, ctypes.c_int64, ctypes.c_void_p)
        except ValueError:
            raise RuntimeError("the model was compiled by a version without profiling; compile it again") from None

    def tables(self, shapes: tuple[tuple[int, ...], ...], sizes: Callable[[], dict[str, int]]) -> PlanTables:
        """The tables for inputs of these shapes; `sizes` returns the dynamic sizes. Raises WorkloadError if a tensor
        would be too large for the kernels, and the errors of `sizes`."""
        if self._fixed is not None:
            return self._fixed
        found = self._known.get(shapes)
        if found is None:
            assert self._open is not None
            with self._lock.current:
                try:
                    found = self._open.at(sizes())
                except ValueError as error:
                    raise WorkloadError(f"the model cannot be run on inputs of these shapes: {error}") from None
                while len(self._known) >= MOST_SHAPES:
                    self._known.pop(next(iter(self._known)))
                self._known[shapes] = found
        return found

    def failure(self) -> RunFailed:
        """The error of the latest call in this thread."""
        return RunFailed((self._error() or b"").decode(errors="replace"), bool(self._refused()))


class PlanInstance:
    """Memory for one run at a time. `address`: the argument of launch.c for the function of a model."""

    def __init__(self, runner: PlanRunner, tables: PlanTables) -> None:
        """Allocate the memory. Raises RunFailed if there is not enough."""
        self._runner, self._tables = runner, tables
        self.address: int = runner._create(tables.address, runner._block.ctypes.data)
        if not self.address:
            raise runner.failure()
        weakref.finalize(self, _released, runner, self.address).atexit = False

    def _settle(self, buffers: Buffers) -> None:
        """Prepare the instance for these sizes."""
        if buffers.tables is not self._tables:
            assert self._runner.resize is not None
            if self._runner.resize(self.address, buffers.tables.address):
                raise self._runner.failure()
            self._tables = buffers.tables

    def watch(self, buffers: Buffers, sampler: int, wide: int) -> np.ndarray:
        """Run on these inputs and return int64[steps of all parts, 2, wide]: the samples taken by the function at the
        address `sampler` before and after each step. Raises the errors of :meth:`run`."""
        self._settle(buffers)
        samples = np.zeros((buffers.tables.parts * len(self._runner.plan.steps), 2, wide), np.int64)
        call = self._runner.watched_call
        if call(self.address, buffers.inputs, buffers.outputs, sampler, wide, samples.ctypes.data):
            raise self._runner.failure()
        return samples

    def run(self, buffers: Buffers, seconds: np.ndarray | None = None) -> None:
        """Run on these inputs and write these outputs; `seconds` receives the time of each step. Raises RunFailed with
        the message of a kernel that rejected a value."""
        self._settle(buffers)
        times = None if seconds is None else seconds.ctypes.data
        if self._runner.call(self.address, buffers.inputs, buffers.outputs, times):
            raise self._runner.failure()


def _released(runner: PlanRunner, address: int) -> None:
    runner._destroy(address)


class Buffers:
    """Inputs and outputs of a run by address. `arrays`: the outputs."""

    def __init__(
        self, tables: PlanTables, given: Sequence[np.ndarray], outputs: Sequence[np.ndarray] | None = None
    ) -> None:
        """`given`: arrays of the plan's shapes and types, read during the run. `outputs`: contiguous arrays likewise,
        which are written; allocated if omitted."""
        self.tables = tables
        self._given = [value if value.flags.c_contiguous else np.ascontiguousarray(value) for value in given]
        if outputs is None:
            made = [aligned_at(*kind) for kind in tables.kinds]
            self.arrays: Sequence[np.ndarray] = [array for array, _ in made]
            places = [address for _, address in made]
        else:
            self.arrays, places = outputs, list(map(address_of, outputs))
        self.inputs = tables.input_pointers(*map(address_of, self._given))
        self.outputs = tables.output_pointers(*places)

    @property
    def addresses(self) -> tuple[int, ...]:
        """Addresses of all inputs, then of all outputs."""
        return tuple(map(address_of, (*self._given, *self.arrays)))
