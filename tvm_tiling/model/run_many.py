"""Independent runs in parallel: several models or sequences share the cores, each run on one of them.

A step of one sequence has to synchronise its cores; steps of different sequences are independent. Therefore as many
runs are in progress as there are cores, including the caller's, and the next one starts when one has ended. Once fewer
runs than cores remain, they use all cores. Implemented by launch.c, without Python in between. Runs that are faster one
after the other are executed sequentially (execution_policy.py).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import WorkloadError
from ..runtime.execution_policy import ExecutionPolicy, next_way, note_concurrent
from ..runtime.launcher import ConcurrentRuns
from ..runtime.locks import ForkSafeLock
from .executable import Executable

_lock = ForkSafeLock()  # for the threads, and for the per-thread state of models


def run_many(runs: Sequence[tuple[Any, Any]]) -> list[Any]:
    """The results of `runs`, (executable, inputs) each, in order. Inputs are one array, several in graph order as a
    tuple or list, or a mapping by name.

    The first calls with a model determine whether parallel or sequential runs are faster. Raises WorkloadError if an
    element is not a run, or the first error of a run.
    """
    policies: dict[ExecutionPolicy, int] | None = {}
    for number, run in enumerate(runs, start=1):
        if not isinstance(run, (tuple, list)) or len(run) != 2 or not hasattr(run[0], "run"):
            raise WorkloadError(f"run_many: run {number} is not a pair; expected (executable, inputs)")
        if policies is not None and type(run[0]) is Executable:
            policy = run[0].policy
            policies[policy] = policies.get(policy, 0) + 1
        else:  # anything other than a model for this CPU runs sequentially
            policies = None
    lock = _lock.current
    if not policies or len(runs) < 2 or not lock.acquire(blocking=False):
        return [_run(executable, inputs) for executable, inputs in runs]
    try:
        is_concurrent, is_timed = next_way(policies)
        if is_concurrent:
            results = _concurrently(runs, policies)
            if results is not None:
                return results
        return _timed(runs, policies) if is_timed else [_run(executable, inputs) for executable, inputs in runs]
    finally:
        lock.release()


def _run(executable: Any, inputs: Any) -> Any:
    if isinstance(inputs, (tuple, list)):
        return executable.run(*inputs)
    return executable.run(*_arrays(inputs), **_named(inputs))


def _arrays(inputs: Any) -> Sequence[Any]:
    if isinstance(inputs, (tuple, list)):
        return inputs
    return () if isinstance(inputs, Mapping) else (inputs,)


def _named(inputs: Any) -> Mapping[str, Any]:
    return inputs if isinstance(inputs, Mapping) else {}


def _timed(runs: Sequence[tuple[Executable, Any]], policies: Mapping[ExecutionPolicy, int]) -> list[Any]:
    """The results of `runs`, executed sequentially; their models record the time."""
    results, taken, before = [], dict.fromkeys(policies, 0.0), time.perf_counter()
    for executable, inputs in runs:
        results.append(_run(executable, inputs))
        after = time.perf_counter()
        taken[executable.policy] += after - before
        before = after
    for policy, count in policies.items():
        policy.sequential.add(taken[policy] / count)
    return results


def _concurrently(runs: Sequence[tuple[Executable, Any]], policies: Mapping[ExecutionPolicy, int]) -> list[Any] | None:
    """The results; None if there are no threads available."""
    start = time.perf_counter()
    calls = [executable.chosen(_arrays(inputs), _named(inputs)) for executable, inputs in runs]
    first = dict(reversed(calls))  # inputs of the first run of each
    variants = list(dict.fromkeys(variant for variant, _ in calls))
    numbers = {variant: number for number, variant in enumerate(variants)}
    threads = min(max(executable.threads for executable, _ in runs), len(runs))
    try:
        concurrent = ConcurrentRuns([variant.functions(threads, first[variant]) for variant in variants], len(calls))
    except RuntimeError:
        return None
    taken = []
    try:
        for variant, values in calls:
            inputs: Any = variant.lend(values)
            taken.append(inputs)
            concurrent.add(numbers[variant], variant.arguments(inputs))
    finally:
        given = concurrent.end()
    results = []
    for (variant, values), inputs, result in zip(calls, taken, given, strict=True):
        # A failed run is repeated, since its error belongs to the thread that raised it.
        results.append(variant.run(values) if result is None else variant.received(result, inputs))
        variant.give_back(inputs)
    note_concurrent(policies, time.perf_counter() - start)
    return results
