"""Independent runs side by side: several models or sequences share the cores, each run on one of them.

A step of one sequence leaves cores waiting for each other; steps of different sequences need not wait at all. So as
many runs are under way as there are cores, each without helpers, and the next one starts where one has ended. Once
fewer are left than cores, those use all of them.
"""

from __future__ import annotations

import functools
import os
import queue
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

from ..errors import WorkloadError
from .launcher import beside_others


def run_many(runs: Sequence[tuple[Any, Any]]) -> list[Any]:
    """The results of `runs`, (executable, inputs) each, in their order. Inputs are one array, several in graph order as
    a tuple or list, or a mapping by name.

    WorkloadError for what is no run; the first error of a run, when those under way have ended.
    """
    calls = [_call(run, number) for number, run in enumerate(runs, start=1)]
    cores = max((int(getattr(call.executable, "cores", 1)) for call in calls), default=1)
    workers = min(cores, len(calls))
    if workers < 2:
        return [call() for call in calls]
    left: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number in range(len(calls)):
        left.put(number)
    results: dict[int, Any] = {}

    def worker() -> None:
        with beside_others():
            while not failed.is_set():
                try:
                    number = left.get_nowait()
                except queue.Empty:
                    return
                try:
                    results[number] = calls[number]()
                except BaseException:
                    failed.set()
                    raise

    failed = threading.Event()
    shares = [_threads(workers).submit(worker) for _ in range(workers)]
    wait(shares)
    for share in shares:
        share.result()
    return [results[number] for number in range(len(calls))]


@functools.lru_cache(maxsize=1)
def _threads(count: int) -> ThreadPoolExecutor:
    """Threads that stay, since an executable has a state of its own in each that runs it."""
    return ThreadPoolExecutor(count, thread_name_prefix="tvm-tiling-run")


os.register_at_fork(after_in_child=_threads.cache_clear)  # threads are not forked


@dataclass(frozen=True)
class _Call:
    executable: Any
    arrays: tuple[Any, ...]
    named: Mapping[str, Any]

    def __call__(self) -> Any:
        return self.executable.run(*self.arrays, **self.named)


def _call(run: Any, number: int) -> _Call:
    if not isinstance(run, tuple | list) or len(run) != 2 or not callable(getattr(run[0], "run", None)):
        raise WorkloadError(f"run_many: run {number} is no pair; accepted: (executable, inputs)")
    executable, inputs = run
    if isinstance(inputs, Mapping):
        return _Call(executable, (), inputs)
    return _Call(executable, tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,), {})
