"""Overhead of tracker, sessions and database per trial, with workers that only predict, after a given delay.

    python -m benchmarks.fleet --workers 200 --delay 0.5 --jobs 2000

Prints one JSON object. The workers do not occupy the machine, so that two cores can run hundreds of them.
docs/distribution.md describes the limits of this benchmark.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from tvm_tiling.decide.configs.neighbourhood import neighbourhood
from tvm_tiling.hardware.description import Hardware
from tvm_tiling.tuning.measuring.measurer import Job, Measured
from tvm_tiling.tuning.shapes.database import ShapeDatabase
from tvm_tiling.tuning.shapes.trials import TrialLog
from tvm_tiling.tuning.workers.fleet import Fleet
from tvm_tiling.tuning.workers.remote import RemoteMeasurer
from tvm_tiling.workload import GemmWorkload


def jobs(hardware: Hardware, count: int) -> list[Job]:
    """Return distinct configurations of matrix multiplications of many sizes."""

    def all_of_them() -> Iterator[Job]:
        for m in itertools.count(64, 64):
            workload = GemmWorkload(m=m, n=1024, k=1024)
            for config in neighbourhood(workload, hardware).configs(100):
                yield Job(workload=workload, config=config, hardware=hardware)

    return list(itertools.islice(all_of_them(), count))


def measure(workers: int, delay: float, count: int) -> dict[str, Any]:
    """Distribute `count` jobs to the workers, each with the given delay, and store the results in a new database on
    disk."""
    hardware = Hardware.detect()
    wanted = jobs(hardware, count)
    start = time.perf_counter()
    with Fleet(predicting=workers, delay=delay) as fleet, tempfile.TemporaryDirectory() as folder:
        fleet_seconds = time.perf_counter() - start
        start = time.perf_counter()
        remote = RemoteMeasurer(fleet.address, hardware)
        while sum(remote.live()) < workers:
            time.sleep(0.01)
        session_seconds = time.perf_counter() - start
        # Incumbents first: the other configurations of a workload wait for its first one.
        first = {job.workload: job for job in reversed(wanted)}
        list(remote.measure(list(first.values())))
        others = [job for job in wanted if first[job.workload] != job]
        spent, cpu = [], _cpu_seconds()
        with ShapeDatabase(f"sqlite:///{Path(folder) / 'shapes.db'}") as database, TrialLog(database) as log:
            start = time.perf_counter()
            for measured in remote.measure(others):
                spent.append(measured.seconds_spent)
                log.add(measured)
            log.flush()
            seconds, database_seconds = time.perf_counter() - start, log.seconds
        busy = _cpu_seconds() - cpu
        remote.close()
    return {
        "workers": workers,
        "delay": delay,
        "jobs": len(others),
        "fleet_start_seconds": round(fleet_seconds, 2),
        "sessions_seconds": round(session_seconds, 2),
        "jobs_per_second": round(len(others) / seconds, 1),
        "ideal_jobs_per_second": round(workers / delay, 1) if delay else None,
        "median_added_ms": round(1e3 * (statistics.median(spent) - delay), 2),
        "database_share": round(database_seconds / seconds, 4),
        "processor_ms_per_job": round(1e3 * busy / len(others), 2),
    }


def writes_per_second(rows: int, at_once: int) -> float:
    """Return the trials per second that one session commits to SQLite on disk, with the given number per
    transaction."""
    hardware = Hardware.detect()
    results = [Measured(job=job, cost=1e-3) for job in jobs(hardware, rows)]
    with tempfile.TemporaryDirectory() as folder, ShapeDatabase(f"sqlite:///{Path(folder) / 'shapes.db'}") as database:
        log = TrialLog(database)
        start = time.perf_counter()
        for first in range(0, rows, at_once):
            for result in results[first : first + at_once]:
                log.add(result)
            log.flush()
        return rows / (time.perf_counter() - start)


def _cpu_seconds() -> float:
    """Return the processor time of this process and of all its children."""
    own = psutil.Process()
    total = 0.0
    for process in (own, *own.children(recursive=True)):
        times = process.cpu_times()
        total += times.user + times.system
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=200)
    parser.add_argument("--delay", type=float, default=0.5, help="seconds per trial and worker")
    parser.add_argument("--jobs", type=int, default=2000)
    given = parser.parse_args()
    result = measure(given.workers, given.delay, given.jobs)
    result["writes_per_second"] = {str(n): round(writes_per_second(1000, n)) for n in (1, 10, 100)}
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
