"""Plans run by plan.c, which is linked into the library of a model's kernels: memory, addresses and errors."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .arrays import aligned_empty
from .native_library import PREFIX, NativeLibrary
from .plan import CONSTANT, ExecutionPlan, type_code

SOURCE = Path(__file__).with_name("plan.c")


class _Tables(ctypes.Structure):
    """tvm_tiling_plan of plan.h."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("arena", "inputs", "outputs", "tensors", "steps", "arguments")),
        *((name, ctypes.c_void_p) for name in ("tensor", "shape", "step", "argument", "output", "bytes", "kernel")),
    )


class RunFailed(Exception):
    """A run that a kernel ended. `refused`: for a value that an input holds."""

    def __init__(self, said: str, refused: bool) -> None:
        super().__init__(said)
        self.refused = refused


class PlanRunner:
    """A plan with its kernels and constants. May be used from several threads."""

    def __init__(
        self, library: NativeLibrary, plan: ExecutionPlan, block: np.ndarray, constants: Sequence[tuple[int, int]]
    ) -> None:
        """`block`: bytes, aligned, in which the plan's constants lie: offset and bytes of each. ValueError where the
        plan is not one of this library and these constants."""
        plan.check([size for _, size in constants])
        if any(offset < 0 or offset + size > block.nbytes for offset, size in constants):
            raise ValueError("a constant of the plan is outside of the constants")
        self.plan, self._block, self._library = plan, block, library
        addresses = {name: library.address(PREFIX + name) for name in plan.kernels}
        if missing := [name for name, address in addresses.items() if not address]:
            raise ValueError(f"the library has no kernel {missing[0][:80]!r}")
        self._create = self._function(library, "create", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
        self._destroy = self._function(library, "destroy", None, ctypes.c_void_p)
        self.call = self._function(library, "run", ctypes.c_int, ctypes.c_void_p, *(ctypes.c_void_p,) * 3)
        self._error = self._function(library, "error", ctypes.c_char_p)
        self._refused = self._function(library, "refused", ctypes.c_int)
        self._tables, self._kept = _tables(plan, constants, addresses)

    @staticmethod
    def _function(library: NativeLibrary, name: str, result: Any, *arguments: Any) -> Any:
        address = library.address(f"tvm_tiling_plan_{name}")
        if not address:
            raise ValueError("the library cannot run a plan")
        return ctypes.CFUNCTYPE(result, *arguments)(address)

    def failure(self) -> RunFailed:
        """What the latest call in this thread failed for."""
        return RunFailed((self._error() or b"").decode(errors="replace"), bool(self._refused()))


class PlanInstance:
    """Memory for one run at a time. `address`: what launch.c takes for the function of a model."""

    def __init__(self, runner: PlanRunner) -> None:
        """RunFailed where there is no memory."""
        self._runner = runner
        self.address: int = runner._create(ctypes.addressof(runner._tables), runner._block.ctypes.data)
        if not self.address:
            raise runner.failure()
        weakref.finalize(self, _released, runner, self.address).atexit = False

    def run(self, buffers: Buffers, seconds: np.ndarray | None = None) -> None:
        """Run on these inputs into these outputs; `seconds` takes the time of each step. RunFailed says what a kernel
        refused."""
        times = None if seconds is None else seconds.ctypes.data
        if self._runner.call(self.address, buffers.inputs, buffers.outputs, times):
            raise self._runner.failure()


def _released(runner: PlanRunner, address: int) -> None:
    runner._destroy(address)


class Buffers:
    """Inputs and outputs of a run by their addresses. `arrays`: the outputs."""

    def __init__(
        self, plan: ExecutionPlan, given: Sequence[np.ndarray], outputs: Sequence[np.ndarray] | None = None
    ) -> None:
        """`given`: arrays of the plan's shapes and types, which are read during the run. `outputs`: likewise, without
        gaps, which are written; left out, new ones."""
        self._given = [value if value.flags.c_contiguous else np.ascontiguousarray(value) for value in given]
        self.arrays = [aligned_empty(kind.shape, kind.dtype) for kind in plan.outputs] if outputs is None else outputs
        self.inputs = (ctypes.c_void_p * max(1, len(self._given)))(*(a.ctypes.data for a in self._given))
        self.outputs = (ctypes.c_void_p * max(1, len(self.arrays)))(*(a.ctypes.data for a in self.arrays))

    @property
    def addresses(self) -> tuple[int, ...]:
        """Of all inputs, then of all outputs."""
        return tuple(array.ctypes.data for array in (*self._given, *self.arrays))


def _tables(
    plan: ExecutionPlan, constants: Sequence[tuple[int, int]], kernels: dict[str, int | None]
) -> tuple[_Tables, list[Any]]:
    """The plan as plan.c reads it, and what holds its memory."""
    shapes: list[int] = []
    tensors: list[int] = []
    for tensor in plan.tensors:
        offset = constants[tensor.offset][0] if tensor.place == CONSTANT else tensor.offset
        tensors += (tensor.place, offset, type_code(tensor.dtype), len(tensor.shape), len(shapes))
        shapes += tensor.shape
    arguments = [number for step in plan.steps for number in step.arguments]
    starts = [0]
    for step in plan.steps:
        starts.append(starts[-1] + len(step.arguments))
    sizes = [kind.bytes for kind in (*plan.inputs, *plan.outputs)]
    columns = {
        "tensor": tensors,
        "shape": shapes,
        "step": starts,
        "argument": arguments,
        "output": list(plan.results),
        "bytes": sizes,
        "kernel": [kernels[step.kernel] for step in plan.steps],
    }
    kept = {name: np.array(column or [0], np.int64) for name, column in columns.items()}
    made = _Tables(
        plan.arena,
        len(plan.inputs),
        len(plan.outputs),
        len(plan.tensors),
        len(plan.steps),
        len(arguments),
        **{name: array.ctypes.data for name, array in kept.items()},
    )
    return made, list(kept.values())
