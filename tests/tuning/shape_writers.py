"""Processes that write to a shape database concurrently, or are killed; they report what is committed."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable

from shapes import CPU, PLAIN, config, gemm

from tvm_tiling.tuning import tuned
from tvm_tiling.tuning.measuring.measurer import Measured
from tvm_tiling.tuning.search import Formulas
from tvm_tiling.tuning.shapes.database import ShapeDatabase
from tvm_tiling.tuning.shapes.entries import Entry
from tvm_tiling.tuning.shapes.trials import TrialLog
from tvm_tiling.tuning.tune import tune

SHAPES = [gemm(m, 64, 32, dtype="float32") for m in range(16, 16 + 24)]
SETTINGS = {"target": CPU, "shapes": SHAPES, "threshold": None, "candidates": 2, "limit": 3}
TUNED = [gemm(96, 128, 160 + 32 * number, dtype="float32") for number in range(3)]
TRIALS = 24
END = "end"
Tell = Callable[[object], None]


def writers_shape(writer: int, number: int):
    """Return a shape that no other writer has."""
    return gemm(number + 1, writer + 1, 8)


def add(tell: Tell, url: str, writer: int, count: int) -> None:
    """Add shapes one by one, every fifth time together with one that all writers have."""
    with ShapeDatabase(url) as db:
        for number in range(count):
            if number % 5:
                db.add(writers_shape(writer, number), config(writer + 1), 10 + number, target=PLAIN)
            else:
                shared = Entry(workload=gemm(7, 7, 7), config=config(writer + 1), cost=1000 - number)
                own = Entry(workload=writers_shape(writer, number), config=config(writer + 1), cost=10 + number)
                db.add_many([own, shared], target=PLAIN)
            tell(number)


class Slowly:
    """Costs proportional to sizes, with a short delay each."""

    def measure(self, jobs):
        for job in jobs:
            time.sleep(0.0005)
            yield Measured(job=job, cost=job.workload.macs * 1e-10)

    def close(self):
        pass


def generate(tell: Tell, url: str) -> None:
    """Generate a database, and report every shape whose job is done."""
    with ShapeDatabase(url) as db:
        done = 0

        def progress(state):
            nonlocal done
            while done < state.done:
                tell(done)
                done += 1

        db.generate(**SETTINGS, measurer=Slowly(), progress=progress)
        tell(END)


class Told:
    """Costs that cannot be predicted, the same in every run, with a short delay each."""

    def measure(self, jobs):
        for job in jobs:
            time.sleep(0.002)
            yield Measured(job=job, cost=1e-3 * (1 + zlib.crc32(str(job.config).encode()) % 1009 / 300))

    def close(self):
        pass


class Telling(TrialLog):
    """A log that reports how many trials it has committed."""

    tell: Tell

    def _write(self, rows, results):
        super()._write(rows, results)
        self.tell(len(rows))


def tune_shapes(tell: Tell, url: str) -> None:
    """Tune shapes one after another, and report what is committed."""
    Telling.tell = staticmethod(tell)
    tuned.TrialLog = Telling  # in this process, which ends with it
    with ShapeDatabase(url) as db:
        for shape in TUNED:
            tune(shape, CPU, database=db, trials=TRIALS, runner=Told(), cost_model=Formulas(), progress=False)
    tell(END)
