"""Segments of a compiled graph: programs that its virtual machine calls during a run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import tvm
import tvm_ffi

from ...accel.functional.run import execute
from ...accel.program.program import Program
from ...runtime.locks import ForkSafeLock
from .partition import SEGMENT

_RUNNING = threading.local()  # state of this thread: the running segments, and an error of one of them
_REGISTERED: set[int] = set()  # segment numbers registered in TVM
_lock = ForkSafeLock()  # protects them


class Segments:
    """The programs of a compiled graph, by number. Reads of uninitialised memory are detected in the first run of each;
    a program does the same in every run."""

    def __init__(self, programs: Sequence[Program]) -> None:
        self.programs = tuple(programs)
        self._run_before = [False] * len(self.programs)
        for number in range(len(self.programs)):
            _register(number)

    def call(self, number: int, tensors: Sequence[Any]) -> None:
        """Run a program on the arrays of a call, the last of which receive its outputs."""
        program = self.programs[number]
        wanted, given = program.of_role("input"), program.of_role("output")
        inputs = {
            tensor.name: array.numpy().reshape(tensor.shape) for tensor, array in zip(wanted, tensors, strict=False)
        }
        results = execute(program, inputs, check_written=not self._run_before[number])
        self._run_before[number] = True
        for tensor, target in zip(given, tensors[len(wanted) :], strict=True):
            target.copyfrom(results[tensor.name].reshape(target.shape))

    @contextmanager
    def running(self) -> Iterator[None]:
        """Within the context, calls of segments in this thread call these programs; their errors are raised
        unchanged."""
        before = getattr(_RUNNING, "state", None)
        state: dict[str, Any] = {"segments": self, "error": None}
        _RUNNING.state = state
        try:
            yield
        except Exception:
            if state["error"] is not None:
                raise state["error"] from None
            raise
        finally:
            _RUNNING.state = before


def _register(number: int) -> None:
    """Register a segment number in TVM; the running executable determines its program."""
    with _lock.current:
        if number not in _REGISTERED:
            function: Callable[..., None] = partial(_call, number)
            tvm_ffi.register_global_func(f"{SEGMENT}{number}", function, override=True)
            _REGISTERED.add(number)


def _call(number: int, *tensors: tvm.runtime.Tensor) -> None:
    state = _RUNNING.state
    try:
        state["segments"].call(number, tensors)
    except Exception as error:
        state["error"] = error
        raise
