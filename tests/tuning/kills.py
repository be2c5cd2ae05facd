"""Processes that write, killed at random moments, and what must remain of their work."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable

from shape_writers import END, SETTINGS, SHAPES, TRIALS, TUNED, Slowly, add, generate, tune_shapes, writers_shape
from shapes import CPU, PLAIN, gemm

from tvm_tiling.tuning.shapes.database import ShapeDatabase
from tvm_tiling.tuning.shapes.trials import TrialLog


class Forked:
    """A process that runs `work(tell, *arguments)`; its lines are read from here."""

    def __init__(self, work: Callable[..., None], *arguments: object) -> None:
        reading, writing = os.pipe()
        self.number = os.fork()
        if not self.number:
            os.close(reading)
            try:
                work(lambda word: os.write(writing, f"{word}\n".encode()), *arguments)
                os._exit(0)
            except BaseException:
                os._exit(1)
        os.close(writing)
        self._lines = os.fdopen(reading)

    def line(self) -> str:
        """Return the next line, empty at the end."""
        return self._lines.readline()

    def rest(self) -> list[str]:
        """Return all lines up to the end."""
        with self._lines as lines:
            return [line.strip() for line in lines if line.endswith("\n")]

    def wait(self) -> int:
        """Return its exit code."""
        return os.waitstatus_to_exitcode(os.waitpid(self.number, 0)[1])

    def killed_after(self, lines: int, seconds: float) -> list[str]:
        """Return what it reported before it was killed, a moment after its line of that number."""
        told = []
        while len(told) < lines and (line := self.line()):
            told.append(line.strip())
        time.sleep(seconds)
        os.kill(self.number, signal.SIGKILL)
        told += self.rest()
        self.wait()
        return told


def kill_adders(url: str, kills: int, seed: int) -> None:
    """Kill a writer repeatedly while it adds; everything that it reported is stored."""
    rng = random.Random(seed)
    for writer in range(kills):
        told = Forked(add, url, writer, 100_000).killed_after(rng.randint(1, 8), rng.uniform(0, 0.03))
        assert told
        with ShapeDatabase(url) as db:
            for number in map(int, told):
                hit = db.match(writers_shape(writer, number), target=PLAIN)
                assert hit is not None and hit.step == 1 and hit.entry.cost == 10 + number
            report = db.check()
            assert report.ok, report.problems


def kill_generation(url: str, kills: int, seed: int) -> int:
    """Kill a generation repeatedly until it finishes or was killed that often; return how often."""
    rng = random.Random(seed)
    for count in range(kills):
        told = Forked(generate, url).killed_after(rng.randint(0, 3), rng.uniform(0, 0.05))
        with ShapeDatabase(url) as db:
            report = db.check()
            assert report.ok, report.problems
            for number in (int(word) for word in told if word != END):
                assert db.match(SHAPES[number], target=CPU).step == 1
        if END in told:
            return count
    return kills


def finish_generation(url: str) -> None:
    """Let it finish: all shapes are stored with their boundary shapes, as if nothing had been killed."""
    process = Forked(generate, url)
    assert process.rest()[-1] == END and process.wait() == 0
    with ShapeDatabase(url) as db, ShapeDatabase("sqlite://") as undisturbed:
        undisturbed.generate(**SETTINGS, measurer=Slowly())
        found, expected = ({str(entry) for _, entry in own.entries(target=CPU)} for own in (db, undisturbed))
        assert found == expected and db.check().ok


def kill_tuning(url: str, kills: int, seed: int) -> int:
    """Kill tuning sessions repeatedly until one finishes or that many were killed; return how many."""
    rng = random.Random(seed)
    for count in range(kills):
        before = _past(url)
        told = Forked(tune_shapes, url).killed_after(rng.randint(0, 4), rng.uniform(0, 0.05))
        after = _past(url)
        for shape, past in before.items():
            assert past.items() <= after[shape].items()  # repeated measurements are not new trials
        committed = sum(int(word) for word in told if word != END)
        assert sum(map(len, after.values())) >= sum(map(len, before.values())) + committed
        if END in told:
            return count
    return kills


def finish_tuning(url: str) -> None:
    """Let it finish: every shape has its trials, each once, and the best of them as its entry."""
    process = Forked(tune_shapes, url)
    assert process.rest()[-1] == END and process.wait() == 0
    with ShapeDatabase(url) as db:
        for shape, past in _past(url).items():
            assert len(past) == TRIALS
            entry = db.match(shape, target=CPU).entry
            assert (entry.workload, entry.cost) == (shape, min(past.values())) and past[entry.config] == entry.cost


def _past(url: str) -> dict:
    """Return the trials of each shape, for a valid database whose entries are as good as the best of them."""
    with ShapeDatabase(url) as db, TrialLog(db) as log:
        report = db.check()
        assert report.ok, report.problems
        found = {shape: log.past(shape, CPU) for shape in TUNED}
        for shape, past in found.items():
            hit = db.match(shape, target=CPU)
            assert (hit.entry.cost if hit and hit.step == 1 else None) == min(past.values(), default=None)
        return found


def check_writers(url: str, writers: int, count: int) -> None:
    """Let several processes add shapes concurrently: nothing is lost."""
    processes = [Forked(add, url, writer, count) for writer in range(writers)]
    for process in processes:
        assert len(process.rest()) == count and process.wait() == 0
    with ShapeDatabase(url) as db:
        assert db.check().ok
        assert len(list(db.entries())) == writers * count + 1
        for writer in range(writers):
            for number in range(count):
                entry = db.match(writers_shape(writer, number), target=PLAIN).entry
                assert entry.cost == 10 + number and dict(entry.config.choices) == {"tile_m": writer + 1}
        last = 1000 - (count - 1) // 5 * 5
        assert db.match(gemm(7, 7, 7), target=PLAIN).entry.cost == last
