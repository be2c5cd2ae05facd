"""The measuring process: checks the result of a configuration, then times it against the incumbent on all cores.

One process measures, and caches what is slow to create while the workload stays the same: threads, operands, the
reference result and the incumbent. If it is lost, its request is repeated, so nothing that it caches is essential.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tvm

from ...hardware.description import Hardware
from ...measure import Side, StopRule, Timing, quickest_call, timed, uncertainty
from ...peak import Peak, measure_peak
from ...runtime.threads import own_core, set_pool
from ...schedule import llvm_target
from ...workload import ConvWorkload, GemmWorkload
from .measurer import ENTRY, PACKING, Build, PeakAsked, Request, Subject
from .operands import Operands
from .paired_benchmark import HOPELESS, QUICK, THOROUGH, Alone, PairedResult, paired_benchmark

ALONE = StopRule(least_pairs=7, most_pairs=60, most_seconds=0.5, spread=0.01)
STALE = 0x7F  # every byte of a result before it is computed: NaN, or a value that no result has everywhere


class WrongResult(RuntimeError):
    """The kernel of a configuration computes a wrong result."""


class Loaded:
    """A library bound to the arrays of a bench."""

    def __init__(self, build: Build, bench: Bench) -> None:
        self.build = build
        library = tvm.runtime.load_module(build.path)
        main = library[ENTRY]
        left, right, *added = bench.inputs
        if build.packed_shape is not None:
            packed = tvm.runtime.empty(build.packed_shape, build.packed_dtype)
            library[PACKING](right, packed)
            right = packed
        result = bench.result
        self.run: Callable[[], Any] = lambda: main(left, right, *added, result)


class Bench:
    """The arrays of one workload with its epilogue, and its incumbent."""

    def __init__(self, workload: GemmWorkload | ConvWorkload, epilogue: str) -> None:
        self.operands = Operands.random(workload, epilogue)
        self.inputs = [tvm.runtime.tensor(array) for array in self.operands.arrays]
        self._stale: Any = np.zeros(self.operands.result_shape, workload.acc_dtype or workload.dtype)
        self._stale.view(np.uint8)[...] = STALE
        self.result = tvm.runtime.tensor(self._stale)
        self._incumbent: Loaded | None = None
        _ = self.operands.expected  # computed now, with all threads of NumPy's BLAS library

    def measure(self, request: Request) -> Alone | PairedResult:
        """Run the paired benchmark of the request. WrongResult if the result is not that of the workload."""
        candidate = Loaded(request.candidate, self)
        seconds = self.check(candidate)
        if request.incumbent is None:
            alone = _alone(timed(candidate.run, ALONE))
            self.check(candidate)
            self._incumbent = candidate
            return alone
        incumbent = self._incumbent
        if incumbent is None or incumbent.build != request.incumbent:
            incumbent = self._incumbent = Loaded(request.incumbent, self)
        once = min(_seconds(incumbent.run) for _ in range(3))
        if seconds > HOPELESS * once:  # it may have been preempted: only the minimum of many calls is conclusive
            seconds, once = quickest_call(Side(candidate.run)), quickest_call(Side(incumbent.run))
            if seconds > HOPELESS * once:
                return PairedResult(ratio=once / seconds, uncertainty=0.5, seconds=seconds, pairs=1)
        found = paired_benchmark(candidate.run, incumbent.run, THOROUGH if request.thorough else QUICK)
        self.check(candidate)
        return found

    def check(self, loaded: Loaded) -> float:
        """Return the seconds of a call after checking its result. Called before and after timing, since a race does not
        always give a wrong result."""
        self.result.copyfrom(self._stale)
        seconds = _seconds(loaded.run)
        if wrong := self.operands.difference(self.result.numpy()):
            raise WrongResult(wrong)
        return seconds


def _seconds(run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def _alone(found: Timing) -> Alone:
    if not found.seconds:
        raise RuntimeError(found.reason)
    share = found.disturbed_share
    return Alone(seconds=found.median, uncertainty=uncertainty(found.seconds), disturbed=share)


def _peak(hardware: Hardware) -> Peak:
    assert hardware.cpu is not None
    return measure_peak(hardware.cpu, llvm_target(hardware))


class _Timer:
    """The benches of one process, of which the last one is cached."""

    def __init__(self) -> None:
        self._subject: tuple[GemmWorkload | ConvWorkload, str] | None = None
        self._bench: Bench | None = None
        self._cores = 0

    def __call__(self, message: Subject | PeakAsked) -> Alone | PairedResult | Peak | None:
        if isinstance(message, PeakAsked):
            return _peak(message.hardware)
        if not self._cores:
            self._cores = set_pool(message.cores)
        subject = message.workload, message.epilogue
        if self._bench is None or self._subject != subject:
            self._bench, self._subject = Bench(*subject), subject
        if not isinstance(message, Request):
            return None
        with own_core():
            return self._bench.measure(message)


answer = _Timer()
"""Measures one request, or prepares for some; entry point of a child process."""
